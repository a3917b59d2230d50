#include "algorithms/verify/wiring.h"

#include <algorithm>

namespace unisono::verify {
namespace {

// Channels with equal reader sets are the same channel (rule 1).
ChannelId canonical(ChannelId id, int32_t ranks) {
  if (id.reader == kAllButWriter && ranks == 2) id.reader = 1 - id.writer;
  return id;
}

bool reads(const ChannelId& id, int32_t rank) {
  return id.reader == kAllButWriter ? id.writer != rank : id.reader == rank;
}

// Where `rank` stands among the readers.
int32_t reader_index(const ChannelId& id, int32_t rank) {
  if (id.reader != kAllButWriter) return 0;
  return rank < id.writer ? rank : rank - 1;
}

Status check_channel(const Plan& plan, const ChannelId& id) {
  const int32_t n = plan.ranks;
  const bool ends_exist = id.number >= 0 && id.writer >= 0 && id.writer < n && id.reader < n &&
                          id.reader >= kAllButWriter && (id.reader != kAllButWriter || n >= 2);
  if (!ends_exist) {
    return violation("1", Place{plan}, "no such channel {}: {} -> {}", id.number, id.writer,
                     id.reader);
  }
  if (id.writer != plan.rank && !reads(id, plan.rank)) {
    return violation("1", Place{plan}, "is at no end of channel {}: {} -> {}", id.number, id.writer,
                     id.reader);
  }
  return {};
}

}  // namespace

std::string Place::text() const {
  std::string text =
      fmt::format("{} {} of {} ranks, root {}: rank {}", plan.algorithm,
                  collective_name(plan.collective), plan.ranks, plan.root, plan.rank);
  if (lane >= 0)
    text += fmt::format(" lane {} '{}' step {}", lane, plan.lanes[at(lane)].name, step);
  if (round >= 0) text += fmt::format(" round {}", round);
  return text;
}

Result<Wiring> wire(const std::vector<const Plans*>& calls) {
  std::vector<ChannelId> ids;
  const size_t ranks = calls.front()->size();
  for (const Plans* plans : calls) {
    if (plans->size() != ranks) {
      return error(Code::kInvalidArgument, "calls of {} and {} ranks", ranks, plans->size());
    }
    for (const Plan& plan : *plans) {
      for (const ChannelId& id : plan.channels) {
        TRY(check_channel(plan, id));
        ids.push_back(canonical(id, plan.ranks));
      }
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());

  Wiring wiring;
  for (const ChannelId& id : ids) {
    const int32_t readers = id.reader == kAllButWriter ? static_cast<int32_t>(ranks) - 1 : 1;
    wiring.channels.push_back({id, wiring.ends, readers});
    wiring.ends += readers;
  }
  for (const Plans* plans : calls) {
    CallWiring call;
    for (const Plan& plan : *plans) {
      std::vector<int32_t> channel, end;
      for (const ChannelId& given : plan.channels) {
        const ChannelId id = canonical(given, plan.ranks);
        const auto found = std::lower_bound(ids.begin(), ids.end(), id);
        channel.push_back(static_cast<int32_t>(found - ids.begin()));
        const int32_t first_end = wiring.channels[at(channel.back())].first_end;
        end.push_back(reads(id, plan.rank) ? first_end + reader_index(id, plan.rank) : -1);
      }
      std::vector<int32_t> sorted = channel;
      std::sort(sorted.begin(), sorted.end());
      const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
      if (twice != sorted.end()) {
        const ChannelId& id = ids[at(*twice)];
        return violation("1", Place{plan}, "lists channel {}: {} -> {} twice", id.number, id.writer,
                         id.reader);
      }
      call.channel.push_back(std::move(channel));
      call.end.push_back(std::move(end));
    }
    wiring.calls.push_back(std::move(call));
  }
  return wiring;
}

}  // namespace unisono::verify
