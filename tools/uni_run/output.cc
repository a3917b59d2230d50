#include "tools/uni_run/output.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace unisono::uni_run {
namespace {

constexpr size_t kTailLines = 10;
constexpr size_t kTailLineBytes = 400;
constexpr size_t kReadBytes = 64u << 10;

}  // namespace

Sink::Sink(int fd) : fd_(fd), most_bytes_(PIPE_BUF) {
  struct stat info {};
  // A pipe that is writable takes PIPE_BUF without blocking; a file never blocks.
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) most_bytes_ = kFullBytes;
}

void Sink::append(std::string_view text) {
  if (broken_) return;
  if (written_ == queue_.size()) {
    queue_.clear();
    written_ = 0;
  } else if (written_ > kFullBytes) {
    queue_.erase(0, written_);
    written_ = 0;
  }
  queue_ += text;
}

void Sink::write_some() {
  if (!pending()) return;
  const size_t count = std::min(most_bytes_, queue_.size() - written_);
  const ssize_t put = write(fd_, queue_.data() + written_, count);
  if (put >= 0) {
    written_ += static_cast<size_t>(put);
  } else if (errno != EAGAIN && errno != EINTR) {
    broken_ = true;
    queue_.clear();
    written_ = 0;
  }
}

bool Sink::same_target(const Sink& other) const {
  struct stat mine {
  }, theirs{};
  return fstat(fd_, &mine) == 0 && fstat(other.fd_, &theirs) == 0 && mine.st_dev == theirs.st_dev &&
         mine.st_ino == theirs.st_ino;
}

void Tail::add(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (line.empty()) return;
  lines_.emplace_back(line.substr(0, kTailLineBytes));
  if (lines_.size() > kTailLines) lines_.pop_front();
}

LineStream::LineStream(net::Fd pipe, std::string prefix, Sink* sink,
                       std::function<bool(std::string_view)> intercept)
    : pipe_(std::move(pipe)),
      prefix_(std::move(prefix)),
      sink_(sink),
      intercept_(std::move(intercept)) {}

bool LineStream::read_some() {
  if (!open()) return false;
  if (sink_->broken()) {
    pipe_.reset();
    return false;
  }
  std::array<char, kReadBytes> bytes;
  const ssize_t got = read(pipe_.get(), bytes.data(), bytes.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    finish();
    return false;
  }
  take({bytes.data(), static_cast<size_t>(got)});
  return true;
}

// A line ends with "\n", or with a "\r" that no "\n" follows: progress bars redraw themselves so.
void LineStream::take(std::string_view bytes) {
  size_t scanned = partial_.empty() ? 0 : partial_.size() - 1;  // its last may be a "\r"
  partial_ += bytes;
  size_t start = 0;
  for (size_t at = partial_.find_first_of("\r\n", scanned); at != std::string::npos;
       at = partial_.find_first_of("\r\n", at + 1)) {
    if (partial_[at] == '\r' && (at + 1 == partial_.size() || partial_[at + 1] == '\n')) continue;
    emit(std::string_view(partial_).substr(start, at + 1 - start));
    start = at + 1;
  }
  partial_.erase(0, start);
  if (partial_.size() > kMaxLineBytes) {
    partial_ += '\n';
    emit(partial_);
    partial_.clear();
  }
}

void LineStream::emit(std::string_view line) {
  if (intercept_ && intercept_(line)) return;
  sink_->append(prefix_);
  sink_->append(line);
  tail_.add(line);
}

void LineStream::finish() {
  if (!partial_.empty()) {
    partial_ += '\n';
    emit(partial_);
    partial_.clear();
  }
  pipe_.reset();
}

}  // namespace unisono::uni_run
