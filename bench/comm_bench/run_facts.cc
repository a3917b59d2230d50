#include "bench/comm_bench/run_facts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "bench/comm_bench/launch.h"
#include "bench/comm_bench/page.h"

namespace bench {
namespace {

struct WireLine {
  int32_t rank, pid;
  char host[64], transport[64];
};

uniCommInfo_t query(uniComm_t comm) {
  uniCommInfo_t info{};
  info.size = sizeof info;
  must(uniCommQuery(comm, &info), "uniCommQuery", comm);
  return info;
}

// "model name	: AMD EPYC" -> "AMD EPYC"; empty where the kernel says it otherwise.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "";
}

Json machine_facts() {
  utsname names{};
  (void)uname(&names);
  const auto memory =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {{"host", names.nodename},
          {"system", std::string(names.sysname) + " " + names.release + " " + names.machine},
          {"processor", processor()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"memory_bytes", memory}};
}

bool can_write_file(const std::string& name) {
  if (name.empty()) return true;
  struct stat state {};
  if (stat(name.c_str(), &state) == 0 && S_ISFIFO(state.st_mode)) {
    return true;  // its reader must not see an end yet
  }
  const bool is_new = lstat(name.c_str(), &state) != 0;  // not so a link to what is not there yet
  const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) {
    fprintf(stderr, "comm-bench: cannot write %s: %s\n", name.c_str(), strerror(errno));
    return false;
  }
  close(file);
  if (is_new) unlink(name.c_str());  // a run that is interrupted leaves nothing
  return true;
}

bool write_file(const std::string& name, const std::string& text) {
  if (name.empty()) return true;
  errno = 0;
  std::ofstream file(name, std::ios::binary);
  file << text;
  file.close();
  if (!file) fprintf(stderr, "comm-bench: cannot write %s: %s\n", name.c_str(), strerror(errno));
  return static_cast<bool>(file);
}

}  // namespace

std::vector<RankLine> gather_lines(const Ranks& ranks) {
  WireLine mine{};
  mine.rank = ranks.rank;
  mine.pid = static_cast<int32_t>(getpid());
  utsname names{};
  if (uname(&names) == 0) snprintf(mine.host, sizeof mine.host, "%.63s", names.nodename);
  snprintf(mine.transport, sizeof mine.transport, "%.63s", query(ranks.comm).transports);
  std::vector<WireLine> all(static_cast<size_t>(ranks.ranks));
  must(uniAllGather(&mine, all.data(), sizeof mine, uniUint8, ranks.comm, nullptr), "uniAllGather",
       ranks.comm);
  std::vector<RankLine> lines;
  for (const WireLine& line : all)
    lines.push_back({line.rank, line.pid, line.host, line.transport});
  return lines;
}

Json run_facts(const Options& o, const Ranks& ranks, const std::vector<RankLine>& lines) {
  Json all;
  all["version"] = version_text();
  all["machine"] = machine_facts();
  all["config"] = {{"collective", o.work_name},
                   {"flags", o.flags},
                   {"ranks", ranks.ranks},
                   {"warmup", o.warmup},
                   {"iterations", o.iterations},
                   {"batches", o.batches},
                   {"average", o.average},
                   {"check", o.check},
                   {"blocking", o.barrier_each},
                   {"stream", o.use_stream},
                   {"buffers", o.registered ? "registered" : "private"},
                   {"cache", cache_name(o.cache)},
                   {"kernels", query(ranks.comm).kernels},
                   {"transport", o.transport},
                   {"algorithm", o.algorithm},
                   {"reproducible", o.reproducible}};
  all["devices"] = Json::array();
  for (const RankLine& line : lines) {
    all["devices"].push_back({{"rank", line.rank},
                              {"pid", line.pid},
                              {"host", line.host},
                              {"device", "cpu"},
                              {"transport", line.transport}});
  }
  return all;
}

std::string version_text() {
  int version = 0;
  (void)uniGetVersion(&version);
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

const char* cache_name(Cache cache) {
  return cache == Cache::kHot ? "hot" : cache == Cache::kRewrite ? "rewrite" : "cold";
}

void print_lines(const std::vector<RankLine>& lines) {
  for (const RankLine& line : lines) {
    printf("#  Rank %2d Pid %6d on %s device cpu transport %s\n", line.rank, line.pid,
           line.host.c_str(), line.transport.c_str());
  }
}

bool can_write_files(const Options& options) {
  return can_write_file(options.json_file) && can_write_file(options.report_file);
}

bool write_files(const Options& options, const Json& all) {
  const bool json = write_file(options.json_file, to_text(all, 2) + "\n");
  const bool page = options.report_file.empty() || write_file(options.report_file, make_page(all));
  return json && page;
}

}  // namespace bench
