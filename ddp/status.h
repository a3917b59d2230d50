// What a function of ddp/ gives back: a result of unisono.h and, when it failed, the words.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "unisono/unisono.h"

namespace unisono::ddp {

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(uniResult_t result, std::string message) : result_(result), message_(std::move(message)) {}
  bool ok() const { return result_ == uniSuccess; }
  uniResult_t result() const { return result_; }
  const std::string& message() const { return message_; }

 private:
  uniResult_t result_ = uniSuccess;
  std::string message_;
};

template <class... Args>
Status error(uniResult_t result, fmt::format_string<Args...> format, Args&&... args) {
  return {result, fmt::format(format, std::forward<Args>(args)...)};
}

// Of a call of unisono.h that this thread has just made: keeps its words.
inline Status called(uniResult_t result) {
  if (result == uniSuccess) return {};
  return {result, uniGetLastError(nullptr)};
}

// At the C boundary.
inline uniResult_t report(const Status& status) {
  return status.ok() ? uniSuccess : uniSetLastError(status.result(), status.message().c_str());
}

}  // namespace unisono::ddp

#define DDP_TRY(expression)                                                                    \
  do {                                                                                         \
    if (::unisono::ddp::Status ddp_status = (expression); !ddp_status.ok()) return ddp_status; \
  } while (0)
