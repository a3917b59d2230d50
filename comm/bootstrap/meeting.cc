#include "comm/bootstrap/meeting.h"

#include "base/bytes.h"
#include "comm/bootstrap/rendezvous.h"

namespace unisono::bootstrap {

std::string list_ranks(const std::vector<int32_t>& ranks, size_t total) {
  std::string text;
  for (const int32_t rank : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  if (total > ranks.size()) text += fmt::format(" and {} more", total - ranks.size());
  return text;
}

Status Meeting::enter(int32_t ranks, int32_t rank, std::string payload) {
  if (failed()) return failure_;
  if (complete()) {
    // Only the late one hears it: the others have their answer.
    return error(Code::kInvalidUsage, "this id has been used already; one id serves one exchange");
  }
  if (ranks < 1 || ranks > kMaxRanks) {
    failure_ = error(Code::kInvalidArgument, "rank {} asked for {} ranks; 1 to {} are possible",
                     rank, ranks, kMaxRanks);
  } else if (rank < 0 || rank >= ranks) {
    failure_ = error(Code::kInvalidArgument, "rank {} is not in 0..{}", rank, ranks - 1);
  } else if (ranks_ >= 0 && ranks != ranks_) {
    failure_ = error(Code::kInvalidArgument, "rank {} asked for {} ranks, rank {} for {}", rank,
                     ranks, first_rank_, ranks_);
  } else if (payloads_.count(rank) != 0) {
    failure_ = error(Code::kInvalidArgument, "rank {} was taken twice", rank);
  } else if (bytes_ + payload.size() > kMaxTableBytes) {
    failure_ = error(Code::kInvalidArgument, "the payloads of {} ranks exceed {} bytes",
                     payloads_.size() + 1, kMaxTableBytes);
  }
  if (failed()) return failure_;
  if (ranks_ < 0) {
    ranks_ = ranks;
    first_rank_ = rank;
  }
  bytes_ += payload.size() + 4;
  payloads_.emplace(rank, std::move(payload));
  if (payloads_.size() == static_cast<size_t>(ranks_)) build_table();
  return ok_status();
}

void Meeting::leave(int32_t rank, std::string_view why) {
  if (failed() || complete()) return;
  payloads_.erase(rank);
  const std::string absent = missing();
  failure_ = error(Code::kRemoteError, "rank {} left the rendezvous before all had come ({})", rank,
                   why.empty() ? "its process ended" : why);
  if (!absent.empty())
    failure_ = error(Code::kRemoteError, "{}; not there: {}", failure_.message(), absent);
}

std::string Meeting::missing() const {
  if (ranks_ < 0 || complete()) return "";
  constexpr size_t kMost = 16;
  std::vector<int32_t> absent;
  auto present = payloads_.begin();
  for (int32_t rank = 0; rank < ranks_ && absent.size() < kMost; ++rank) {
    if (present != payloads_.end() && present->first == rank) {
      ++present;
    } else {
      absent.push_back(rank);
    }
  }
  return list_ranks(absent, static_cast<size_t>(ranks_) - payloads_.size());
}

void Meeting::build_table() {
  ByteWriter writer;
  writer.put(static_cast<uint32_t>(ranks_));
  for (const auto& [rank, payload] : payloads_) writer.put_string(payload);
  table_ = std::make_shared<const std::string>(frame(kTable, writer.take()));
  payloads_.clear();
}

}  // namespace unisono::bootstrap
