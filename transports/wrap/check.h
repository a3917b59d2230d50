// check: holds the caller and the transport to transport.h. What breaks the contract is reported,
// not passed on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transports/transport.h"

namespace unisono {

// What the writers of one process sent, for its readers to compare: every message arrives once, in
// order, unchanged. Ranks as threads share one. Any thread.
class CheckLedger {
 public:
  void sent(const ChannelKey& key, const MessageHeader& header, uint64_t hash);
  void unsent(const ChannelKey& key);  // the last one was not accepted
  // Empty, or what is wrong with the next message that `reader` got. A channel whose writer is
  // elsewhere is never wrong.
  std::string received(const ChannelKey& key, int32_t reader, const MessageHeader& header,
                       uint64_t hash);

 private:
  struct Sent {
    MessageHeader header;
    uint64_t hash;
  };
  struct Channel {
    std::vector<Sent> messages;
    std::map<int32_t, uint64_t> next_of_reader;
  };
  std::mutex mutex_;
  std::map<ChannelKey, Channel> channels_;
};

// status() is the first violation (kInternalError, "check: ..."), else the inner transport's.
// `rank` is the driving rank; `ledger` may be null. Hashes every payload: for tests.
std::unique_ptr<Transport> wrap_check(std::unique_ptr<Transport> inner, int32_t rank,
                                      std::shared_ptr<CheckLedger> ledger = nullptr);

}  // namespace unisono
