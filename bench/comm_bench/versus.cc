// The parent of --versus: one launch a peer, one table.
#include "bench/comm_bench/versus.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/comm_bench/peer_library.h"

namespace bench {
namespace {

using Json = nlohmann::ordered_json;
constexpr off_t kSharedBytes = off_t{1} << 30;  // address space; pages are taken when touched

// A folder of this run, gone afterwards. In shared memory where there is some: its pages are
// measured on.
class Folder {
 public:
  Folder() {
    for (const char* place : {"/dev/shm", "/tmp"}) {
      std::string name = std::string(place) + "/comm-bench-XXXXXX";
      if (mkdtemp(name.data()) == nullptr) continue;
      path_ = name;
      break;
    }
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  bool ok() const {
    if (path_.empty()) return false;
    const int fd = open((path_ + "/shared").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const bool sized = fd >= 0 && ftruncate(fd, kSharedBytes) == 0;
    if (fd >= 0) close(fd);
    return sized;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

pid_t start(std::vector<std::string> words, int rank) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (rank >= 0) setenv("COMM_BENCH_RANK", std::to_string(rank).c_str(), 1);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  perror("comm-bench: exec");
  _exit(127);
}

int wait_all(const std::vector<pid_t>& children) {
  int worst = 0;
  for (size_t left = children.size(); left > 0; left--) {
    int status = 0;
    if (wait(&status) < 0) break;
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    if (worst != 0) {  // the others would wait for the one that is gone
      for (const pid_t child : children) kill(child, SIGTERM);
    }
  }
  return worst;
}

// This program's arguments without those of the parent alone.
std::vector<std::string> child_words(int argc, char** argv, const PeerPlan& plan,
                                     const std::string& folder) {
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe").string()};
  for (int i = 1; i < argc; i++) {
    const std::string word = argv[i];
    const bool takes_value = word == "--versus" || word == "-J" || word == "--json";
    if (takes_value) {
      i++;
      continue;
    }
    if (word.rfind("--versus=", 0) == 0 || word.rfind("--json=", 0) == 0) continue;
    words.push_back(word);
  }
  words.insert(words.end(), {"--versus-peer", plan.name, "--versus-folder", folder});
  return words;
}

// Null: it did not run, and said why.
Json launch_peer(const Options& options, const PeerPlan& plan, int argc, char** argv) {
  const Folder folder;
  if (!folder.ok()) {
    fprintf(stderr, "comm-bench: --versus: no folder for the run: neither /dev/shm nor /tmp\n");
    return nullptr;
  }
  const std::vector<std::string> program = child_words(argc, argv, plan, folder.path());
  std::vector<pid_t> children;
  if (plan.launcher.empty()) {
    for (int rank = 0; rank < options.ranks; rank++) children.push_back(start(program, rank));
  } else {
    std::vector<std::string> words = plan.launcher;
    words.insert(words.end(), program.begin(), program.end());
    children.push_back(start(words, -1));
  }
  const int status = wait_all(children);
  std::ifstream file(folder.path() + "/result.json");
  Json result = Json::parse(file, nullptr, false);
  if (status != 0 || result.is_discarded()) {
    fprintf(stderr, "comm-bench: --versus %s: ended with status %d\n", plan.name.c_str(), status);
    return nullptr;
  }
  return result;
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (size_t from = 0; from <= list.size();) {
    const size_t comma = std::min(list.find(',', from), list.size());
    if (comma > from) names.push_back(list.substr(from, comma - from));
    from = comma + 1;
  }
  return names;
}

struct Launch {
  std::string name;
  Json result;
};

// Ratios of one form over all sizes: the least of all peers at each size, their geometric mean.
struct Summary {
  double log_sum = 0, least = 1e300;
  size_t sizes = 0;
  void add(double ratio) {
    log_sum += std::log(ratio);
    least = std::min(least, ratio);
    sizes++;
  }
};

// Returns how many elements were wrong, ours and theirs.
size_t print_form(const std::vector<Launch>& launches, const char* form, const char* title) {
  printf("#\n# %s: us of the peer, ratio peer / ours (over 1: ours is faster)\n#%11s %12s", title,
         "size", "flag us");
  for (const Launch& launch : launches) printf(" %22s", launch.name.c_str());
  printf(" %10s %10s", "ours us", "to fastest");
  const std::string bound = std::string("private_") + form;
  const bool bounded = launches.front().result["results"][0].contains("bound") &&
                       launches.front().result["results"][0]["bound"].contains(bound);
  printf(bounded ? " %11s %10s\n" : "\n", "private us", "ours to it");
  Summary summary;
  size_t wrong = 0;
  const size_t rows = launches.front().result["results"].size();
  for (size_t i = 0; i < rows; i++) {
    const Json& first = launches.front().result["results"][i];
    const Json& flag = first["flag"];
    printf(" %11zu %5.2f /%5.2f", first["size"].get<size_t>(), flag["before"].get<double>(),
           flag["after"].get<double>());
    double least = 1e300, ours = 1e300;
    for (const Launch& launch : launches) {
      const Json& row = launch.result["results"][i];
      const Json& side = row.contains(form) ? row[form] : Json();
      if (side.is_null()) {
        printf(" %22s", "-");
        continue;
      }
      const auto ratio = side["ratio"].get<double>();
      printf(" %13.3f %7.2f%s", side["time"].get<double>(), ratio,
             row["flag"]["moved"].get<bool>() ? "*" : " ");
      least = std::min(least, ratio);
      ours = std::min(ours, side["ours"].get<double>());
      wrong += side["nwrong"].get<size_t>() + side["nwrong_ours"].get<size_t>();
    }
    if (least < 1e300) {
      printf(" %10.3f %10.2f", ours, least);
      summary.add(least);
      if (bounded) {
        const auto us = first["bound"][bound].get<double>();
        if (us > 0) printf(" %11.3f %10.2f", us, ours / us);
      }
      printf("\n");
    } else {
      printf(" %10s %10s\n", "-", "-");
    }
  }
  if (summary.sizes > 0) {
    printf("# to the fastest peer at each size: geometric mean %.2f, least %.2f\n",
           std::exp(summary.log_sum / static_cast<double>(summary.sizes)), summary.least);
  }
  return wrong;
}

Json merged(const Options& options, const std::vector<Launch>& launches) {
  Json json = {{"config", {{"collective", options.work_name}, {"ranks", options.ranks}}}};
  Json results = Json::array();
  const Json& rows = launches.front().result["results"];
  for (size_t i = 0; i < rows.size(); i++) {
    Json row = {{"size", rows[i]["size"]},
                {"count", rows[i]["count"]},
                {"type", rows[i]["type"]},
                {"redop", rows[i]["redop"]},
                {"root", rows[i]["root"]}};
    if (rows[i].contains("bound")) row["bound"] = rows[i]["bound"];
    for (const Launch& launch : launches) {
      Json peer = launch.result["results"][i];
      for (const char* key : {"size", "count", "type", "redop", "root"}) peer.erase(key);
      row["versus"][launch.name] = std::move(peer);
    }
    results.push_back(std::move(row));
  }
  for (const Launch& launch : launches)
    json["config"]["peers"][launch.name] = launch.result["version"];
  json["results"] = std::move(results);
  return json;
}

}  // namespace

int run_versus(const Options& options, int argc, char** argv) {
  std::vector<Launch> launches;
  bool failed = false;
  for (const std::string& name : names_in(options.versus)) {
    const PeerPlan plan = plan_peer(name, options.ranks);
    if (!plan.missing.empty()) {
      printf("# %s: left out: %s\n", name.c_str(), plan.missing.c_str());
      continue;
    }
    Json result = launch_peer(options, plan, argc, argv);
    if (result.is_null()) {
      failed = true;
      continue;
    }
    printf("# %s: %s\n", name.c_str(), result["version"].get<std::string>().c_str());
    launches.push_back({name, std::move(result)});
  }
  if (launches.empty()) {
    fprintf(stderr, "comm-bench: --versus: none of the peers ran\n");
    return 3;
  }
  printf("# %s, %d ranks; batches alternate in the same processes; median of their ratios.\n",
         options.work_name.c_str(), options.ranks);
  printf(
      "# flag us: one-way latency of a flag between ranks 0 and 1, before and after (first peer's "
      "launch); *: it changed during all %d tries\n",
      4);
  if (options.bound) {
    printf(
        "# private us: the bound of all-reduce in private buffers (float32), first peer's launch; "
        "ours to it: our time / bound\n");
  }
  size_t wrong = print_form(launches, "out_of_place", "out of place");
  wrong += print_form(launches, "in_place", "in place");
  printf("# wrong elements: %zu\n", wrong);
  if (!options.json_file.empty()) {
    std::ofstream file(options.json_file);
    file << merged(options, launches).dump(2) << "\n";
    if (!file.flush()) {
      fprintf(stderr, "comm-bench: --json %s: cannot be written\n", options.json_file.c_str());
      return 3;
    }
  }
  return failed || wrong != 0 ? 1 : 0;
}

}  // namespace bench
