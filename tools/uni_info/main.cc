// uni-info: what the library finds on this machine and in this environment.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/uni_info/gather.h"
#include "tools/uni_info/text.h"

int main(int argc, char** argv) {
  CLI::App app{"What Unisono finds on this machine and in this environment."};
  bool json = false;
  app.add_flag("--json", json, "as JSON");
  CLI11_PARSE(app, argc, argv);
  const unisono::uni_info::Json all = unisono::uni_info::gather();
  const std::string text = json ? all.dump(2) + "\n" : unisono::uni_info::to_text(all);
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0
             ? 0
             : 1;
}
