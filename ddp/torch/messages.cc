#include "ddp/torch/messages.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "unisono/torch/tensors.h"

namespace unisono::ddp {

void check(uniResult_t result, const char* what) {
  TORCH_CHECK(result == uniSuccess, "unisono: ", what, ": ", uniGetErrorString(result), ": ",
              uniGetLastError(nullptr));
}

std::string broadcast_text(const std::string& text, int root, uniComm_t comm) {
  uint64_t bytes = text.size();
  check(uniBroadcast(&bytes, &bytes, 1, uniUint64, root, comm, nullptr), "the broadcast of a text");
  std::string all = text;
  all.resize(bytes);
  check(uniBroadcast(all.data(), all.data(), bytes, uniUint8, root, comm, nullptr),
        "the broadcast of a text");
  return all;
}

void fail_together(const std::string& problem, uniComm_t comm) {
  int ranks = 0;
  int rank = 0;
  check(uniCommCount(comm, &ranks), "the number of ranks");
  check(uniCommUserRank(comm, &rank), "the rank");
  std::vector<uint8_t> failed(static_cast<size_t>(ranks));
  failed[static_cast<size_t>(rank)] = !problem.empty();
  check(uniAllGather(&failed[static_cast<size_t>(rank)], failed.data(), 1, uniUint8, comm, nullptr),
        "the exchange of failures");
  const auto first = std::find(failed.begin(), failed.end(), 1);
  if (first == failed.end()) return;
  const std::string words = broadcast_text(problem, static_cast<int>(first - failed.begin()), comm);
  TORCH_CHECK(false, "unisono: ", words);
}

}  // namespace unisono::ddp
