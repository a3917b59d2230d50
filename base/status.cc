#include "base/status.h"

#include <cstring>
#include <system_error>

namespace unisono {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "success";
    case Code::kSystemError:
      return "system error";
    case Code::kInternalError:
      return "internal error";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kInvalidUsage:
      return "invalid usage";
    case Code::kRemoteError:
      return "remote error";
    case Code::kInProgress:
      return "in progress";
    case Code::kTimeout:
      return "timeout";
    case Code::kAborted:
      return "aborted";
    case Code::kMismatch:
      return "mismatched operations";
  }
  return "unknown result";
}

Status::Status(Code code, std::string message)
    : detail_(code == Code::kOk
                  ? nullptr
                  : std::make_shared<const Detail>(Detail{code, std::move(message)})) {}

Code Status::code() const {
  return detail_ ? detail_->code : Code::kOk;
}

const std::string& Status::message() const {
  static const std::string empty;
  return detail_ ? detail_->message : empty;
}

Status Status::annotate(std::string_view context) const {
  if (ok()) return *this;
  return Status(code(), fmt::format("{}: {}", context, message()));
}

Status system_error(int error_number, std::string_view what) {
  return error(Code::kSystemError, "{}: {} (errno {})", what,
               std::generic_category().message(error_number), error_number);
}

}  // namespace unisono
