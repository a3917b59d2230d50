// What the registry finds where UCX's headers were absent when this was built.
#include "transports/ucx/ucx_transport.h"

namespace unisono {

Status ucx_available(std::string*) {
  return error(Code::kSystemError, "ucx: not built: UCX headers were absent");
}

bool ucx_preferred() {
  return false;
}

Result<std::unique_ptr<Transport>> make_ucx_transport(const TransportContext&) {
  return ucx_available(nullptr);
}

}  // namespace unisono
