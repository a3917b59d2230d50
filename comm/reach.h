// Reach: who can talk to whom over which transport. Each rank reports what it sees, rank 0 judges,
// so that both ends of every pair choose the same transport. Pure but for reading transports.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transports/transport.h"

namespace unisono {

// [transport][peer]; transport 0 is self and reaches nobody.
using ReachRow = std::vector<std::vector<bool>>;

ReachRow reach_row(const std::vector<std::unique_ptr<Transport>>& transports, int32_t rank,
                   int32_t ranks);
std::string encode_reach(const ReachRow& row);
Result<ReachRow> decode_reach(const std::string& bytes, size_t transports, int32_t ranks,
                              int32_t from);

struct Verdict {
  std::vector<std::vector<uint8_t>>
      transport_of;       // [rank][peer], by preference among those that reach both ways
  uint8_t multicast = 0;  // index of the transport that joins all ranks; 0: none
  uint32_t slice_bytes = 0, slots = 2;
  double latency_us = 0, gigabytes_per_s = 0;
};
// kRemoteError naming a pair that nothing joins. slice_bytes 0: the transports' wish.
Result<Verdict> judge_reach(const std::vector<ReachRow>& rows,
                            const std::vector<std::unique_ptr<Transport>>& transports,
                            int64_t slice_bytes);

// One rank's part of the verdict.
struct LinkChoice {
  std::vector<uint8_t> transport_of;  // by peer
  uint8_t multicast = 0;
  uint32_t slice_bytes = 0, slots = 2;
  double latency_us = 0, gigabytes_per_s = 0;
  bool oversubscribed = false;
};
std::string encode_verdict(const Verdict& verdict, int32_t rank, bool oversubscribed);
bool decode_verdict(const std::string& bytes, size_t transports, int32_t ranks, LinkChoice* choice);

}  // namespace unisono
