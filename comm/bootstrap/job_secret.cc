#include "comm/bootstrap/job_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/net/socket.h"
#include "comm/bootstrap/unique_id.h"

namespace unisono::bootstrap {
namespace {

constexpr size_t kMaxSecretBytes = 4096;

// From its beginning where that is possible, so that several processes may share a file's
// descriptor.
Result<std::string> read_all(int fd, const char* variable) {
  std::string text(kMaxSecretBytes + 1, '\0');
  size_t length = 0;
  bool seekable = true;
  while (length < text.size()) {
    const ssize_t got =
        seekable ? pread(fd, text.data() + length, text.size() - length, static_cast<off_t>(length))
                 : read(fd, text.data() + length, text.size() - length);
    if (got > 0) {
      length += static_cast<size_t>(got);
    } else if (got == 0) {
      break;
    } else if (errno == ESPIPE) {
      seekable = false;
    } else if (errno != EINTR) {
      return error(Code::kInvalidArgument, "{}: {}", variable,
                   system_error(errno, "read").message());
    }
  }
  text.resize(length);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty() || text.size() > kMaxSecretBytes) {
    return error(Code::kInvalidArgument, "{}: holds {} bytes; 1 to {} are possible", variable,
                 text.size(), kMaxSecretBytes);
  }
  return text;
}

Result<std::string> read_file(const std::string& path) {
  constexpr const char* kVariable = "UNISONO_JOB_SECRET_FILE";
  const net::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    return error(Code::kInvalidArgument, "{}: {}", kVariable, system_error(errno, path).message());
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return error(Code::kInvalidArgument, "{}: {} is no regular file", kVariable, path);
  }
  if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return error(Code::kInvalidArgument, "{}: {} must be this user's own and have mode 0600",
                 kVariable, path);
  }
  return read_all(fd.get(), kVariable);
}

}  // namespace

Result<std::optional<net::Secret>> read_job_secret(const Environment& environment) {
  std::string text;
  if (!environment.job_secret_fd.empty()) {
    TRY_ASSIGN(text,
               read_all(std::atoi(environment.job_secret_fd.c_str()), "UNISONO_JOB_SECRET_FD"));
  } else if (!environment.job_secret_file.empty()) {
    TRY_ASSIGN(text, read_file(environment.job_secret_file));
  } else if (!environment.job_secret.empty()) {
    text = environment.job_secret;
  } else {
    return std::optional<net::Secret>();
  }
  return std::optional<net::Secret>(key_from_text(text));
}

Result<std::optional<net::Secret>> job_secret() {
  static const auto* const kSecret =
      new Result<std::optional<net::Secret>>(read_job_secret(environment()));
  return *kSecret;
}

}  // namespace unisono::bootstrap
