// uni-plan: print, draw, prove, simulate, export and import plans.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "tools/uni_plan/commands.h"

namespace {

using namespace unisono;
using uni_plan::ExchangeOptions;
using uni_plan::PrintOptions;
using uni_plan::SimulateOptions;
using uni_plan::VerifySelection;

constexpr int kUsageStatus = 2;

int report(Status status) {
  errno = 0;
  if (status.ok() && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0))
    status = system_error(errno != 0 ? errno : EIO, "standard output");
  if (status.ok()) return 0;
  fmt::print(stderr, "uni-plan: {}\n", status.message());
  return 1;
}

const CLI::Range kRanks(1, 1 << 15);

// Of print, draw, export and verify: where ranks are, for plans of two levels.
void add_hosts(CLI::App* app, CLI::Option* ranks, std::string* hosts) {
  app->add_option("--hosts", *hosts, "ranks on each host, such as 3,2; instead of --ranks")
      ->excludes(ranks);
}

void add_print(CLI::App* app, PrintOptions* print, bool* no_multicast, std::string* hosts) {
  app->add_option("--algorithm", print->algorithm, "such as ring")->required();
  app->add_option("--collective", print->collective, "such as all_reduce")->required();
  print->request.ranks = 0;
  add_hosts(app, app->add_option("--ranks", print->request.ranks, "how many ranks")->check(kRanks),
            hosts);
  app->add_option("--rank", print->rank, "only this rank's plan");
  app->add_option("--root", print->request.root, "the root (0)");
  app->add_flag("--json", print->json, "as JSON");
  app->add_flag("--unroll", print->unroll, "every step of a repeat");
  app->add_flag("--no-multicast", *no_multicast, "channels have one reader");
}

// Of draw and export.
void add_exchange(CLI::App* app, ExchangeOptions* options, bool* no_multicast, std::string* hosts) {
  options->request.ranks = 0;
  CLI::Option* const algorithm =
      app->add_option("algorithm,--algorithm", options->algorithm, "such as ring");
  CLI::Option* const collective =
      app->add_option("--collective", options->collective, "such as all_reduce");
  CLI::Option* const ranks =
      app->add_option("--ranks", options->request.ranks, "how many ranks")->check(kRanks);
  add_hosts(app, ranks, hosts);
  app->add_option("--root", options->request.root, "the root (0)");
  app->add_flag("--no-multicast", *no_multicast, "channels have one reader");
  app->add_option("-o,--output", options->file, "where to (standard output)");
  app->add_option("--plan", options->plan_file, "a plan as text instead; it is proved first")
      ->excludes(algorithm, collective, ranks);
}

void add_topology(CLI::App* app, uni_plan::Topology* t) {
  app->add_option("--hosts", t->hosts, "how many hosts")->check(kRanks);
  app->add_option("--ranks-per-host", t->ranks_per_host, "ranks on each")->check(kRanks);
  app->add_option("--nic-gbit", t->nic.gbit_per_s, "rate of a host's card, Gbit/s each way");
  app->add_option("--nic-latency-us", t->nic.latency_us, "host to host");
  app->add_option("--nic-burst-bytes", t->nic.burst_bytes, "of a shaper's token bucket (none)");
  app->add_option("--memory-gbit", t->memory.gbit_per_s, "rate of a rank to ranks of its host");
  app->add_option("--memory-latency-us", t->memory.latency_us, "rank to rank of one host");
  app->add_option("--overhead-us", t->overhead_us, "of a core, for each message, at either end");
  app->add_option("--cores", t->cores, "of all ranks together; 0: a core each");
  app->add_option("--switch-us", t->switch_us, "from one rank to another on a shared core");
  app->add_option("--reduce-gbytes", t->reduce_gigabytes_per_s,
                  "operands, GB/s of a rank; 0: free");
  app->add_option("--message-gbytes", t->message_gigabytes_per_s,
                  "what a core moves into or out of its link, as by sockets, GB/s; 0: free");
  app->add_option("--copy-gbytes", t->copy_gigabytes_per_s, "copies, GB/s of a rank; 0: free");
}

void add_simulate(CLI::App* app, SimulateOptions* options, std::string* topology_file) {
  CLI::Option* const collective =
      app->add_option("--collective", options->collective, "such as all_reduce");
  CLI::Option* const algorithms =
      app->add_option("--algorithms", options->algorithms, "such as ring,chain (all)");
  algorithms->delimiter(',');
  app->add_option("--plan", options->plan_file, "a plan as text instead; it is proved first")
      ->excludes(collective, algorithms);
  app->add_option("--root", options->root, "the root (0)");
  app->add_option("--topology", *topology_file, "a file of JSON; the flags below come after it");
  add_topology(app, &options->topology);
  app->add_option("--sizes", options->sizes, "8K,1M or 8K-1G in steps of four (8K-1G)");
  app->add_option("--most-rounds", options->most_rounds, "simulated of a long pipeline (16 to 96)")
      ->check(CLI::Range(8, 1 << 20));
  app->add_option("--calls", options->calls, "back to back; more than 1: the time of one of them")
      ->check(CLI::Range(1, 1000));
  app->add_flag("--whole", options->whole, "all ranks, also where a period stands for all");
  app->add_flag("--json", options->json, "as JSON");
  app->add_option("-o,--output", options->file, "where to (standard output)");
}

// The file's topology, and over it the flags that were given.
Status merge_topology(const CLI::App& app, const std::string& file, SimulateOptions* options) {
  if (file.empty() && app.count("--hosts") == 0 && app.count("--ranks-per-host") == 0)
    return error(Code::kInvalidArgument,
                 "--hosts, --ranks-per-host or --topology: how many ranks, and where?");
  if (file.empty()) return ok_status();
  const uni_plan::Topology flags = options->topology;
  uni_plan::Topology& t = options->topology = {};
  TRY(uni_plan::read_topology(file, &t));
  if (app.count("--hosts") > 0) t.hosts = flags.hosts;
  if (app.count("--ranks-per-host") > 0) t.ranks_per_host = flags.ranks_per_host;
  if (app.count("--nic-gbit") > 0) t.nic.gbit_per_s = flags.nic.gbit_per_s;
  if (app.count("--nic-latency-us") > 0) t.nic.latency_us = flags.nic.latency_us;
  if (app.count("--nic-burst-bytes") > 0) t.nic.burst_bytes = flags.nic.burst_bytes;
  if (app.count("--memory-gbit") > 0) t.memory.gbit_per_s = flags.memory.gbit_per_s;
  if (app.count("--memory-latency-us") > 0) t.memory.latency_us = flags.memory.latency_us;
  if (app.count("--overhead-us") > 0) t.overhead_us = flags.overhead_us;
  if (app.count("--cores") > 0) t.cores = flags.cores;
  if (app.count("--switch-us") > 0) t.switch_us = flags.switch_us;
  if (app.count("--reduce-gbytes") > 0) t.reduce_gigabytes_per_s = flags.reduce_gigabytes_per_s;
  if (app.count("--message-gbytes") > 0) t.message_gigabytes_per_s = flags.message_gigabytes_per_s;
  if (app.count("--copy-gbytes") > 0) t.copy_gigabytes_per_s = flags.copy_gigabytes_per_s;
  return ok_status();
}

// Else says so: CLI11's words are only that one is required.
bool is_subcommand(const CLI::App& app, const std::string& word) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return true;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  fmt::print(stderr, "uni-plan: {} is no subcommand; they are {}\n", word, names);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"The plans of Unisono's algorithms.", "uni-plan"};
  app.require_subcommand(1);
  bool no_multicast = false;
  std::string hosts_text;
  std::vector<int32_t> hosts;

  PrintOptions print;
  CLI::App* print_command = app.add_subcommand("print", "Print a plan, of one rank or of all");
  add_print(print_command, &print, &no_multicast, &hosts_text);
  CLI::App* list_command =
      app.add_subcommand("list", "List what the algorithms do, and at what cost");

  VerifySelection selection;
  std::string ranks = "1-8";
  CLI::App* verify_command = app.add_subcommand(
      "verify", "Prove plans: no deadlock, no overlap, right values; every root and in-place form");
  verify_command->add_option("--algorithm", selection.algorithm, "only this one");
  verify_command->add_option("--collective", selection.collective, "only this one");
  add_hosts(verify_command, verify_command->add_option("--ranks", ranks, "such as 4 or 1-17 (1-8)"),
            &hosts_text);

  ExchangeOptions drawn, exported;
  CLI::App* draw_command = app.add_subcommand("draw", "Draw a plan as SVG");
  add_exchange(draw_command, &drawn, &no_multicast, &hosts_text);
  CLI::App* export_command = app.add_subcommand("export", "Write a plan as text");
  add_exchange(export_command, &exported, &no_multicast, &hosts_text);
  std::string imported;
  CLI::App* import_command = app.add_subcommand("import", "Read a plan as text, and prove it");
  import_command->add_option("file", imported, "- is standard input")->required();

  SimulateOptions simulated;
  std::string topology_file;
  CLI::App* simulate_command =
      app.add_subcommand("simulate", "Time of each algorithm at each size on many ranks");
  add_simulate(simulate_command, &simulated, &topology_file);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    if (argc > 1 && argv[1][0] != '-' && !is_subcommand(app, argv[1])) return kUsageStatus;
    return app.exit(problem) == 0 ? 0 : kUsageStatus;
  }
  if (!hosts_text.empty()) {
    const Status parsed = uni_plan::parse_hosts(hosts_text, &hosts);
    if (!parsed.ok()) return report(parsed);
    selection.hosts = hosts;
    ranks = std::to_string(hosts.size());
  }
  for (PlanRequest* request : {&print.request, &drawn.request, &exported.request}) {
    request->multicast = !no_multicast;
    if (hosts.empty()) continue;
    request->hosts = hosts;
    request->ranks = static_cast<int32_t>(hosts.size());
  }
  if (print_command->parsed()) return report(uni_plan::print(print));
  if (list_command->parsed()) {
    uni_plan::list();
    return report(ok_status());
  }
  if (verify_command->parsed()) {
    const Status parsed = uni_plan::parse_ranks(ranks, &selection);
    return report(parsed.ok() ? uni_plan::verify(selection) : parsed);
  }
  if (draw_command->parsed()) return report(uni_plan::draw(drawn));
  if (export_command->parsed()) return report(uni_plan::export_plan(exported));
  if (import_command->parsed()) return report(uni_plan::import_plan(imported));
  const Status merged = merge_topology(*simulate_command, topology_file, &simulated);
  return report(merged.ok() ? uni_plan::simulate(simulated) : merged);
}
