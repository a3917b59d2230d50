// The ranks' output: read from pipes, written on line by line with the rank before each line.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "base/net/socket.h"

namespace unisono::uni_run {

// Our standard output or error: a bounded queue that is written only as far as it does not block,
// so that a stopped reader stops the ranks' output and nothing else.
class Sink {
 public:
  explicit Sink(int fd);  // the descriptor stays the caller's
  void append(std::string_view text);
  // While full nothing more should be read from the ranks.
  bool full() const { return queue_.size() - written_ >= kFullBytes; }
  bool pending() const { return written_ < queue_.size(); }
  bool broken() const { return broken_; }  // its reader is gone: what is appended is dropped
  int fd() const { return fd_; }
  // Call when poll() says that fd() is writable.
  void write_some();
  // Whether both lead to one file, pipe or terminal.
  bool same_target(const Sink& other) const;

 private:
  static constexpr size_t kFullBytes = 256u << 10;

  int fd_;
  size_t most_bytes_;  // of one write
  std::string queue_;
  size_t written_ = 0;
  bool broken_ = false;
};

// The last lines of a stream, bounded.
class Tail {
 public:
  void add(std::string_view line);
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  std::deque<std::string> lines_;
};

// One stream of one rank.
class LineStream {
 public:
  // `intercept`: sees each line first; true: it is not passed on.
  LineStream(net::Fd pipe, std::string prefix, Sink* sink,
             std::function<bool(std::string_view)> intercept = {});
  bool open() const { return pipe_.valid(); }
  bool readable_now() const { return open() && !sink_->full(); }
  int fd() const { return pipe_.get(); }
  // Reads what is there, up to a limit, and passes whole lines on; false: nothing was there. At
  // the end of the stream closes. If the sink is broken closes as well: the rank's next write fails
  // as it would without us.
  bool read_some();
  // What is left of an unfinished line, ended by a newline. Closes.
  void finish();
  const Tail& tail() const { return tail_; }

 private:
  static constexpr size_t kMaxLineBytes = 1u << 20;  // a longer one is cut

  void take(std::string_view bytes);
  void emit(std::string_view line);

  net::Fd pipe_;
  const std::string prefix_;
  Sink* const sink_;
  const std::function<bool(std::string_view)> intercept_;
  std::string partial_;
  Tail tail_;
};

}  // namespace unisono::uni_run
