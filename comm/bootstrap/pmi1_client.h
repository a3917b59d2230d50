// A client of PMI-1, by which MPICH's and Intel MPI's process managers let ranks exchange values.
//
// Protocol: lines of "name=value" words over an inherited descriptor (PMI_FD), one answer a
// question.
#pragma once

#include <string>

#include "base/status.h"

namespace unisono::bootstrap {

class Pmi1Client {
 public:
  // `fd` stays the process manager's business: it is never closed here. Blocks up to the deadline,
  // as every function of this class; an error is final.
  static Result<Pmi1Client> start(int fd, int64_t deadline_ns);
  // Texts without blanks, '=' and newlines, within the manager's limits.
  Status put(const std::string& key, const std::string& value, int64_t deadline_ns);
  // All ranks call it; what was put before it can be got after it.
  Status barrier(int64_t deadline_ns);
  Result<std::string> get(const std::string& key, int64_t deadline_ns);
  // Before the process ends: without it the manager takes the end for a failure of the job.
  void finish();

 private:
  explicit Pmi1Client(int fd) : fd_(fd) {}
  // Sends the question; gives the answer, whose "cmd" must be `expected`.
  Result<std::string> ask(const std::string& question, const char* expected, int64_t deadline_ns);
  Result<std::string> read_line(int64_t deadline_ns);

  int fd_;
  std::string space_, input_;
  size_t most_key_bytes_ = 0, most_value_bytes_ = 0;
};

}  // namespace unisono::bootstrap
