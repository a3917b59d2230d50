// UCX as loaded at run time: a table of the functions that the transport calls. One binary serves
// machines with and without UCX, and its versions from 1.13 on.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "base/status.h"

namespace unisono::ucx {

// What the transport was written and tested against first; older ones lack parts of active
// messages.
inline constexpr unsigned kLeastMajor = 1, kLeastMinor = 13;

#define UNI_UCX_FUNCTIONS(CALL)        \
  CALL(ucp_get_version)                \
  CALL(ucp_get_version_string)         \
  CALL(ucp_config_read)                \
  CALL(ucp_config_modify)              \
  CALL(ucp_config_release)             \
  CALL(ucp_init_version)               \
  CALL(ucp_worker_create)              \
  CALL(ucp_worker_destroy)             \
  CALL(ucp_worker_get_address)         \
  CALL(ucp_worker_release_address)     \
  CALL(ucp_worker_get_efd)             \
  CALL(ucp_worker_arm)                 \
  CALL(ucp_worker_progress)            \
  CALL(ucp_worker_set_am_recv_handler) \
  CALL(ucp_ep_create)                  \
  CALL(ucp_ep_close_nbx)               \
  CALL(ucp_ep_print_info)              \
  CALL(ucp_am_send_nbx)                \
  CALL(ucp_am_recv_data_nbx)           \
  CALL(ucp_am_data_release)            \
  CALL(ucp_request_check_status)       \
  CALL(ucp_request_free)               \
  CALL(ucs_status_string)

// The members are named as the functions are.
struct Library {
#define UNI_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  UNI_UCX_FUNCTIONS(UNI_UCX_MEMBER)
#undef UNI_UCX_MEMBER
};

// Loads UCX at the first call, and remembers the outcome for the process. Any thread.
Result<const Library*> load_library();
// The loaded one; only after load_library() was ok.
const Library& library();

// kCode with `what` and UCX's words for `status`.
Status ucx_error(Code code, ucs_status_t status, const std::string& what);

}  // namespace unisono::ucx
