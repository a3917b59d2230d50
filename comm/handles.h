// What the C API's opaque handles are, and the few things that all of its files share.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/stream.h"
#include "unisono/unisono.h"

struct uniComm {
  std::unique_ptr<unisono::Communicator> communicator;
  bool finalized = false;
  std::mutex mutex{};                    // guards what follows
  std::vector<std::string> borrowers{};  // uniCommBorrow's words
};

struct uniStream {
  uniStream() = default;
  explicit uniStream(std::shared_ptr<unisono::DeviceStream> device) : stream(std::move(device)) {}
  unisono::Stream stream;
};

struct uniEvent {
  std::shared_ptr<unisono::Event> event = std::make_shared<unisono::Event>();
};

namespace unisono {

// Keeps the message for uniGetLastError of this thread and gives the C result. The success path
// does nothing else.
uniResult_t report_error(const Status& status);
inline uniResult_t report(const Status& status) {
  return __builtin_expect(status.ok(), 1) ? uniSuccess : report_error(status);
}
// The same, of a call of this name, which comes first in the message: once.
uniResult_t report_call(const Status& status, std::string_view name);
const char* last_error_text();
const char* keep_error_text(const std::string& text);
// Ok, or why the handle cannot be used: null, finalized, or in a forked child.
Status check_comm(uniComm_t comm);
// kInvalidUsage in a process forked from one that has used the library.
Status not_in_forked_child();
// The caller's config (null allowed) over the environment, checked.
Result<Settings> make_settings(const uniConfig_t* config);
// A child's: the parent's settings where config is null.
Result<Settings> child_settings(const Communicator& parent, const uniConfig_t* config);

}  // namespace unisono
