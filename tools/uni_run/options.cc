#include "tools/uni_run/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/status.h"
#include "unisono/unisono.h"

namespace unisono::uni_run {
namespace {

constexpr int kMaxRanks = 4096;
constexpr double kMaxSeconds = 1e9;
constexpr int kUsageStatus = 2;
// Without a password's question, and aware of a connection that is gone.
constexpr const char* kSsh = "ssh -T -o BatchMode=yes -o ServerAliveInterval=15";

Status parse_master(std::string_view text, Options* options) {
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && colon > 0) {
    const std::string_view port = text.substr(colon + 1);
    const auto [end, code] =
        std::from_chars(port.data(), port.data() + port.size(), options->master_port);
    if (code == std::errc() && end == port.data() + port.size() && options->master_port >= 1 &&
        options->master_port <= 65535) {
      options->master_host = text.substr(0, colon);
      return ok_status();
    }
  }
  return error(Code::kInvalidArgument, "--master: '{}' is not HOST:PORT", text);
}

Status parse_variables(const std::vector<std::string>& texts, Options* options) {
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return error(Code::kInvalidArgument, "--env: '{}' is not NAME=VALUE", text);
    }
    options->variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return ok_status();
}

// The parser leaves everything from the first word that it does not know.
Status parse_command(std::vector<std::string> rest, Options* options) {
  if (!rest.empty() && rest.front() == "--") {
    rest.erase(rest.begin());
  } else if (!rest.empty() && rest.front().size() > 1 && rest.front().front() == '-') {
    return error(Code::kInvalidArgument, "there is no option {}", rest.front());
  }
  if (rest.empty()) return error(Code::kInvalidArgument, "no command to run");
  options->command = std::move(rest);
  return ok_status();
}

// "FIRST:WORLD:NODE:NODES", as ssh.cc writes it.
Status parse_part(const std::string& text, Part* part) {
  std::istringstream words(text);
  char a = 0, b = 0, c = 0;
  if (words >> part->first_rank >> a >> part->world >> b >> part->node >> c >> part->nodes &&
      a == ':' && b == ':' && c == ':' && words.peek() == EOF) {
    part->is_agent = true;
    return ok_status();
  }
  return error(Code::kInvalidArgument, "--agent: '{}' is not FIRST:WORLD:NODE:NODES", text);
}

Status take_hosts(const std::string& file, const std::optional<std::string>& list,
                  Options* options) {
  std::vector<HostSlots> hosts;
  if (!file.empty()) {
    std::ifstream stream(file);
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    if (!stream.is_open() || stream.bad()) {
      return error(Code::kInvalidArgument, "--hosts: {} cannot be read", file);
    }
    TRY_ASSIGN(hosts, parse_host_file(text, file));
  } else if (list.has_value()) {
    TRY_ASSIGN(hosts, parse_host_list(*list));
  } else if (options->ranks == 0) {
    return Status(Code::kInvalidArgument, "--ranks, -n: how many?");
  } else {
    return ok_status();
  }
  TRY_ASSIGN(options->hosts, place_ranks(hosts, options->ranks));
  return ok_status();
}

int complain(const Status& status) {
  fmt::print(stderr, "uni-run: {}\nRun with --help for more information.\n", status.message());
  return kUsageStatus;
}

}  // namespace

Parsed parse_options(int argc, char** argv) {
  CLI::App app{
      "uni-run -n N [OPTIONS] [--] COMMAND [ARGUMENTS...]\n"
      "Starts N ranks of a command on this machine or, with --hosts or -H, on several, and ends "
      "them together."};
  app.prefix_command();
  Options options;
  bool no_prefix = false;
  std::string master;
  std::vector<std::string> variables;
  std::string bind = "core", host_file, part;
  std::optional<std::string> host_list;  // "" names no host, and is refused
  options.ssh = kSsh;
  app.add_option("-n,--ranks", options.ranks, "how many ranks (with hosts: all their slots)")
      ->check(CLI::Range(1, kMaxRanks));
  auto* const by_file =
      app.add_option("--hosts", host_file, "file with a host a line: NAME, NAME slots=N, NAME:N");
  app.add_option("-H,--host", host_list, "hosts, as a:2,b:2")->excludes(by_file);
  app.add_option("--ssh", options.ssh, fmt::format("how to reach a host ({})", kSsh));
  app.add_option("--remote-program", options.remote_program,
                 "uni-run on the other hosts (where this one lies)");
  app.add_option("--agent", part, "internal: FIRST:WORLD:NODE:NODES")->group("");
  app.add_option("--bind", bind,
                 "core: rank r on the r-th core, round-robin (default); share: the cores in N "
                 "equal parts; none")
      ->check(CLI::IsMember({"core", "share", "none"}));
  app.add_flag("--no-prefix", no_prefix, "ranks write directly, not line by line with '[rank] '");
  app.add_option("--grace", options.grace_s,
                 "seconds from SIGTERM (SIGINT) to SIGKILL when the job is to end (5)")
      ->check(CLI::Range(0.0, kMaxSeconds));
  app.add_option("--timeout", options.timeout_s, "end the job after so many seconds (0: never)")
      ->check(CLI::Range(0.0, kMaxSeconds));
  app.add_option("--env", variables, "NAME=VALUE for every rank; may be repeated")
      ->allow_extra_args(false);  // one value each: the next word may be the command
  app.add_option("--master", master,
                 "HOST:PORT for MASTER_ADDR and MASTER_PORT (127.0.0.1 and a free port)");
  app.set_version_flag("--version", fmt::format("uni-run {}.{}.{}", UNI_VERSION_MAJOR,
                                                UNI_VERSION_MINOR, UNI_VERSION_PATCH));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return {std::nullopt, app.exit(problem) == 0 ? 0 : kUsageStatus};
  }
  options.bind = bind == "none" ? Bind::kNone : bind == "share" ? Bind::kShare : Bind::kCore;
  options.prefix = !no_prefix;
  if (!master.empty()) {
    if (Status status = parse_master(master, &options); !status.ok()) {
      return {std::nullopt, complain(status)};
    }
  }
  if (!part.empty()) {
    if (Status status = parse_part(part, &options.part); !status.ok()) {
      return {std::nullopt, complain(status)};
    }
  }
  if (Status status = take_hosts(host_file, host_list, &options); !status.ok()) {
    return {std::nullopt, complain(status)};
  }
  if (!options.part.is_agent) options.part.world = options.ranks;
  if (Status status = parse_variables(variables, &options); !status.ok()) {
    return {std::nullopt, complain(status)};
  }
  if (Status status = parse_command(app.remaining(), &options); !status.ok()) {
    return {std::nullopt, complain(status)};
  }
  return {std::move(options), 0};
}

}  // namespace unisono::uni_run
