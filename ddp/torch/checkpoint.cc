#include "unisono/torch/checkpoint.h"

#include <c10/util/StringUtil.h>
#include <fcntl.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <sstream>

#include "ddp/torch/messages.h"
#include "unisono/torch/tensors.h"

namespace unisono::ddp {
namespace {

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) (void)::close(descriptor_);
  }
  File(const File&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

std::string failure(const char* what, const std::string& path) {
  return c10::str("checkpoint ", path, ": ", what, ": ", std::strerror(errno));
}

// Empty: all is on disk.
std::string write_and_sync(const std::string& path, const std::string& bytes) {
  const File file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.descriptor() < 0) return failure("cannot be created", path);
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t written = ::write(file.descriptor(), bytes.data() + at, bytes.size() - at);
    if (written < 0 && errno != EINTR) return failure("cannot be written", path);
    if (written > 0) at += static_cast<size_t>(written);
  }
  if (::fsync(file.descriptor()) != 0) return failure("cannot be brought to disk", path);
  return {};
}

std::string replace_file(const std::string& path, const std::string& bytes) {
  // Of this process: another job that writes the same checkpoint shall not mix with ours.
  const std::string part = c10::str(path, ".part", ::getpid());
  std::string problem = write_and_sync(part, bytes);
  if (problem.empty() && ::rename(part.c_str(), path.c_str()) != 0) {
    problem = failure("cannot be renamed", part);
  }
  if (!problem.empty()) {
    (void)::unlink(part.c_str());
    return problem;
  }
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const File entry(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Not every file system can; the data are safe, and at worst the old file is found again.
  if (entry.descriptor() >= 0) (void)::fsync(entry.descriptor());
  return {};
}

std::string write_archive(const std::string& path,
                          const std::function<void(torch::serialize::OutputArchive&)>& fill) {
  try {
    torch::serialize::OutputArchive archive;
    fill(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    return replace_file(path, stream.str());
  } catch (const std::exception& error) {
    return c10::str("checkpoint ", path, ": ", error.what());
  }
}

// Empty, with *exists false, if there is none.
std::string read_file(const std::string& path, bool* exists, std::string* problem) {
  *exists = ::access(path.c_str(), F_OK) == 0;
  if (!*exists) return {};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (!file || !bytes) *problem = failure("cannot be read", path);
  return bytes.str();
}

int rank_of(uniComm_t comm) {
  int rank = 0;
  check(uniCommUserRank(comm, &rank), "the rank");
  return rank;
}

}  // namespace

void save_checkpoint(uniComm_t comm, const std::string& path,
                     const std::function<void(torch::serialize::OutputArchive&)>& fill) {
  fail_together(rank_of(comm) == 0 ? write_archive(path, fill) : std::string(), comm);
}

bool load_checkpoint(uniComm_t comm, const std::string& path,
                     const std::function<void(torch::serialize::InputArchive&)>& take) {
  bool exists = false;
  std::string bytes, problem;
  if (rank_of(comm) == 0) bytes = read_file(path, &exists, &problem);
  fail_together(problem, comm);
  uint8_t exists_at_root = exists ? 1 : 0;
  check(uniBroadcast(&exists_at_root, &exists_at_root, 1, uniUint8, 0, comm, nullptr),
        "whether there is a checkpoint");
  if (exists_at_root == 0) return false;
  bytes = broadcast_text(bytes, 0, comm);
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(bytes.data(), bytes.size());
    take(archive);
  } catch (const std::exception& error) {
    problem = c10::str("checkpoint ", path, ": ", error.what());
  }
  fail_together(problem, comm);
  return true;
}

}  // namespace unisono::ddp
