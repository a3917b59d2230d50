#include "tools/uni_plan/files.h"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <vector>

namespace unisono::uni_plan {
namespace {

struct Close {
  void operator()(FILE* file) const {
    if (file != stdin && file != stdout) std::fclose(file);
  }
};
using File = std::unique_ptr<FILE, Close>;

}  // namespace

Result<std::string> read_file(const std::string& path, size_t most) {
  const File file(path == "-" ? stdin : std::fopen(path.c_str(), "re"));
  if (!file) return system_error(errno, "'" + path + "'");
  std::string text;
  std::vector<char> piece(1 << 16);
  while (const size_t got = std::fread(piece.data(), 1, piece.size(), file.get())) {
    text.append(piece.data(), got);
    if (text.size() > most)
      return error(Code::kInvalidArgument, "'{}' has more than {} bytes", path, most);
  }
  if (std::ferror(file.get()) != 0) return system_error(errno, "'" + path + "'");
  return text;
}

Status write_file(const std::string& path, std::string_view text) {
  File file(path.empty() ? stdout : std::fopen(path.c_str(), "we"));
  if (!file) return system_error(errno, "'" + path + "'");
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                       std::fflush(file.get()) == 0;
  if (!written) return system_error(errno, path.empty() ? "standard output" : "'" + path + "'");
  return {};
}

}  // namespace unisono::uni_plan
