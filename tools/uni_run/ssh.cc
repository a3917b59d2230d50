#include "tools/uni_run/ssh.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <climits>
#include <csignal>
#include <sstream>

namespace unisono::uni_run {
namespace {

// Never blocks: the pipe holds far more than all that is ever said. False: nobody reads it.
bool tell(const Spawned& host, const std::string& line) {
  if (!host.input.valid()) return false;
  const std::string text = line + "\n";
  return write(host.input.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::vector<std::string> split(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> result;
  for (std::string word; words >> word;) result.push_back(word);
  return result;
}

std::string own_path() {
  std::array<char, PATH_MAX> path;
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  return length > 0 ? std::string(path.data(), static_cast<size_t>(length)) : "uni-run";
}

std::string working_folder() {
  std::array<char, PATH_MAX> path;
  return getcwd(path.data(), path.size()) != nullptr ? path.data() : "/";
}

// What of our environment counts for ranks elsewhere. A secret is not for command lines, which
// every user of the host can read, and the meeting point is made anew.
bool travels(std::string_view entry) {
  const auto begins = [&](std::string_view with) { return entry.substr(0, with.size()) == with; };
  return begins("UNISONO_") && !begins("UNISONO_JOB_SECRET") && !begins("UNISONO_MEETING=");
}

const char* bind_word(Bind bind) {
  return bind == Bind::kNone ? "none" : bind == Bind::kShare ? "share" : "core";
}

// Two numbers after the greeting.
bool parse_hello(std::string_view line, int* meeting_port, int* master_port) {
  if (line.substr(0, kHello.size()) != kHello) return false;
  std::istringstream words{std::string(line.substr(kHello.size()))};
  return static_cast<bool>(words >> *meeting_port >> *master_port);
}

}  // namespace

std::string encode_start(const StartOrder& order) {
  return fmt::format("start {} {} {} {} {} {}", order.id, order.secret, order.address,
                     order.meeting_port, order.master_host, order.master_port);
}

Result<StartOrder> decode_start(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string verb;
  StartOrder order;
  if (words >> verb >> order.id >> order.secret >> order.address >> order.meeting_port >>
          order.master_host >> order.master_port &&
      verb == "start") {
    return order;
  }
  return error(Code::kInvalidArgument, "not an order to start");
}

std::string quote(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string remote_command(const Options& options, const std::vector<HostSlots>& hosts,
                           size_t node) {
  int first = 0, world = 0;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (i < node) first += hosts[i].slots;
    world += hosts[i].slots;
  }
  std::vector<std::string> words{
      options.remote_program.empty() ? own_path() : options.remote_program,
      "-n",
      std::to_string(hosts[node].slots),
      "--agent",
      fmt::format("{}:{}:{}:{}", first, world, node, hosts.size()),
      "--bind",
      bind_word(options.bind),
      "--grace",
      fmt::format("{}", options.grace_s)};
  if (!options.prefix) words.emplace_back("--no-prefix");
  const auto pass = [&](const std::string& variable) {
    words.emplace_back("--env");
    words.push_back(variable);
  };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (travels(*entry)) pass(*entry);
  }
  for (const auto& [name, value] : options.variables) pass(name + "=" + value);
  words.emplace_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  std::string text = "cd " + quote(working_folder()) + " && exec";
  for (const std::string& word : words) text += " " + quote(word);
  return text;
}

HostCrew::HostCrew(const Options& options, const std::vector<HostSlots>& hosts)
    : options_(options), hosts_(hosts), nodes_(hosts.size()) {
  order_.id = random_hex(16);
  order_.secret = random_hex(32);
  order_.address = address_of(hosts.front());
}

Result<RankSpec> HostCrew::spec(int number) {
  const auto node = static_cast<size_t>(number);
  RankSpec spec;
  spec.command = split(options_.ssh);
  if (spec.command.empty()) return Status(Code::kInvalidArgument, "--ssh: no command");
  spec.command.push_back(hosts_[node].name);
  spec.command.push_back(remote_command(options_, hosts_, node));
  for (char** entry = environ; *entry != nullptr; ++entry) spec.environment.emplace_back(*entry);
  spec.input = Input::kPiped;
  return spec;
}

std::string HostCrew::name(int number) const {
  return "host " + hosts_[static_cast<size_t>(number)].name;
}

std::string HostCrew::names(const std::vector<int>& ascending) const {
  std::string text = ascending.size() == 1 ? "host" : "hosts";
  for (size_t i = 0; i < ascending.size(); ++i) {
    text += (i == 0 ? " " : ", ") + hosts_[static_cast<size_t>(ascending[i])].name;
  }
  return text;
}

void HostCrew::started(int number, const Spawned& process) {
  nodes_[static_cast<size_t>(number)].process = &process;
}

void HostCrew::finished(int number) {
  nodes_[static_cast<size_t>(number)].process = nullptr;
}

bool HostCrew::heard(int number, std::string_view line) {
  Node& node = nodes_[static_cast<size_t>(number)];
  int meeting_port = 0, master_port = 0;
  if (node.ready || !parse_hello(line, &meeting_port, &master_port)) return false;
  node.ready = true;
  if (number == 0) {
    order_.meeting_port = meeting_port;
    order_.master_host = options_.master_host.empty() ? order_.address : options_.master_host;
    order_.master_port = options_.master_host.empty() ? master_port : options_.master_port;
  }
  for (const Node& one : nodes_) {
    if (!one.ready) return true;
  }
  start_all();
  return true;
}

// Not before every host has answered: a host that cannot be reached then costs nobody anything.
void HostCrew::start_all() {
  for (const Node& node : nodes_) {
    if (node.process != nullptr) (void)tell(*node.process, encode_start(order_));
  }
}

void SshSpawner::send_signal(const Spawned& host, int number) {
  const bool told = tell(host, fmt::format("signal {}", number));
  if (number == SIGKILL && (!told || std::exchange(killed_[host.pid], true))) {
    local_.send_signal(host, SIGKILL);
  }
}

void SshSpawner::end(const Spawned& host) {
  (void)tell(host, "end");
}

}  // namespace unisono::uni_run
