// Meeting at a file: the id lies there, readable by its owner alone. Its bytes are fresh for each
// meeting, so a file left by a killed job leads to a server that does not exist, which probing
// shows.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

#include "base/env.h"
#include "base/log.h"
#include "comm/bootstrap/meet.h"

namespace unisono::bootstrap {
namespace {

constexpr int64_t kFirstPauseNs = 5'000'000, kLongestPauseNs = 200'000'000;
constexpr int64_t kProbeNs = 3'000'000'000;

struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
};

Status refuse(const std::string& path, const char* why) {
  return error(Code::kInvalidArgument, "url: file://{} {}", path, why);
}

// Reads what lies at `path`. kInProgress: nothing, or an empty file, which may become an id.
Result<UniqueId> read_id_file(const std::string& path) {
  const net::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) {
    if (errno == ENOENT) return Status(Code::kInProgress, "no such file yet");
    return refuse(path, errno == ELOOP ? "is a symbolic link" : std::strerror(errno));
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return refuse(path, "is no regular file");
  if (info.st_uid != geteuid()) return refuse(path, "belongs to another user");
  if ((info.st_mode & 077) != 0)
    return refuse(path, "can be read or written by others (needs mode 0600)");
  if (info.st_size == 0) return Status(Code::kInProgress, "an empty file");
  UniqueId id;
  const ssize_t got = pread(fd.get(), id.bytes.data(), id.bytes.size(), 0);
  if (got != static_cast<ssize_t>(id.bytes.size()) || info.st_size != got || !decode_id(id).ok()) {
    return refuse(path, "holds something else than an id; it is left alone");
  }
  return id;
}

Status write_id_file(const std::string& path, const UniqueId& id, FileIdentity* identity) {
  std::string temporary = path + ".tmp.XXXXXX";
  const net::Fd fd(mkostemp(temporary.data(), O_CLOEXEC));  // mode 0600
  if (!fd.valid()) return refuse(path, std::strerror(errno));
  struct stat info {};
  const bool written =
      write(fd.get(), id.bytes.data(), id.bytes.size()) == static_cast<ssize_t>(id.bytes.size()) &&
      fstat(fd.get(), &info) == 0;
  if (!written || rename(temporary.c_str(), path.c_str()) != 0) {
    const Status status = refuse(path, std::strerror(errno));
    (void)unlink(temporary.c_str());
    return status;
  }
  *identity = {info.st_dev, info.st_ino};
  return ok_status();
}

// Only our own: the next job's file may lie there already.
void remove_if_ours(const std::string& path, const FileIdentity& identity) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return;
  if (info.st_dev == identity.device && info.st_ino == identity.inode) (void)unlink(path.c_str());
}

Result<UniqueId> write_side(const std::string& path) {
  const auto old = read_id_file(path);
  if (!old.ok() && old.status().code() != Code::kInProgress) return old.status();
  if (old.ok() && unlink(path.c_str()) != 0 && errno != ENOENT) {
    return refuse(path, std::strerror(errno));
  }
  auto identity = std::make_shared<FileIdentity>();
  ServeOptions options;
  options.over = [path, identity] { remove_if_ours(path, *identity); };
  TRY_ASSIGN(const UniqueId id, serve_meeting(std::move(options)));
  const Status status = write_id_file(path, id, identity.get());
  if (!status.ok()) {
    withdraw_meeting(id);
    return status;
  }
  return id;
}

}  // namespace

Result<UniqueId> meet_at_file(const std::string& path, int32_t rank, int64_t deadline_ns) {
  if (path.empty() || path.front() != '/') {
    return error(Code::kInvalidArgument, "url: file:// needs an absolute path, not '{}'", path);
  }
  if (rank == 0) return write_side(path);
  int64_t pause_ns = kFirstPauseNs;
  std::string last = "nothing was there";
  for (;;) {
    const auto id = read_id_file(path);
    if (id.ok()) {
      const Status alive =
          probe_unique_id(*id, std::min(deadline_ns, real_env().now_ns() + kProbeNs));
      if (alive.ok()) return *id;
      last = "what lies there is left from another job: " + alive.message();
    } else if (id.status().code() != Code::kInProgress) {
      return id.status();
    }
    const int64_t left_ns = deadline_ns - real_env().now_ns();
    if (left_ns <= 0) {
      return error(Code::kTimeout, "url: rank 0 wrote no id to file://{} in time ({})", path, last);
    }
    // Polling, for network file systems tell nobody of a change on another host.
    pause_ns = std::min({pause_ns * 2, kLongestPauseNs, left_ns});
    const timespec pause{static_cast<time_t>(pause_ns / 1'000'000'000),
                         static_cast<long>(pause_ns % 1'000'000'000)};
    (void)nanosleep(&pause, nullptr);
  }
}

}  // namespace unisono::bootstrap
