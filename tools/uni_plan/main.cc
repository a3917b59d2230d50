// uni-plan: print, list and verify the plans of the algorithms.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/uni_plan/commands.h"

namespace {

int report(const unisono::Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "uni-plan: {}\n", status.message());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace unisono;
  CLI::App app{"The plans of Unisono's algorithms."};
  app.require_subcommand(1);

  uni_plan::PrintOptions print;
  bool no_multicast = false;
  CLI::App* print_command = app.add_subcommand("print", "Print a plan, of one rank or of all");
  print_command->add_option("--algorithm", print.algorithm, "such as ring")->required();
  print_command->add_option("--collective", print.collective, "such as all_reduce")->required();
  print_command->add_option("--ranks", print.request.ranks, "how many ranks")
      ->required()
      ->check(CLI::Range(1, 1 << 15));
  print_command->add_option("--rank", print.rank, "only this rank's plan");
  print_command->add_option("--root", print.request.root, "the root (0)");
  print_command->add_flag("--json", print.json, "as JSON");
  print_command->add_flag("--unroll", print.unroll, "every step of a repeat");
  print_command->add_flag("--no-multicast", no_multicast, "channels have one reader");

  CLI::App* list_command =
      app.add_subcommand("list", "List what the algorithms do, and at what cost");

  uni_plan::VerifySelection selection;
  std::string ranks = "1-8";
  CLI::App* verify_command = app.add_subcommand(
      "verify", "Prove plans: no deadlock, no overlap, right values; every root and in-place form");
  verify_command->add_option("--algorithm", selection.algorithm, "only this one");
  verify_command->add_option("--collective", selection.collective, "only this one");
  verify_command->add_option("--ranks", ranks, "such as 4 or 1-17 (1-8)");

  CLI11_PARSE(app, argc, argv);
  if (print_command->parsed()) {
    print.request.multicast = !no_multicast;
    return report(uni_plan::print(print));
  }
  if (list_command->parsed()) {
    uni_plan::list();
    return 0;
  }
  if (verify_command->parsed()) {
    const Status parsed = uni_plan::parse_ranks(ranks, &selection);
    return report(parsed.ok() ? uni_plan::verify(selection) : parsed);
  }
  return 1;
}
