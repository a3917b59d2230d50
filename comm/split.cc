#include "comm/split.h"

#include <algorithm>

#include "comm/communicator_builder.h"
#include "comm/device_link.h"
#include "comm/group.h"

namespace unisono {
namespace {

struct Membership {
  int32_t color = 0, key = 0;
  int32_t on_device = 0;  // wants one, or wants no child
};

// A blocking all-gather of `bytes` of every rank over the parent itself: it keeps split in the
// parent's order of calls.
Status gather_all(Communicator& parent, const void* mine, void* all, size_t bytes) {
  Call call;
  call.collective = Collective::kAllGather;
  call.count = bytes;
  call.send = mine;
  call.recv = all;
  return issue_on_host(parent, call, nullptr);
}

Status refuse_simulation(const Communicator& parent) {
  if (parent.world() == nullptr) return {};
  return error(Code::kInvalidUsage, "comm: a simulated communicator cannot make others");
}

Result<std::unique_ptr<Communicator>> meet(const Communicator& parent, const UniqueId& id,
                                           size_t members, size_t index, const Settings& settings,
                                           std::unique_ptr<CollectiveProvider> provider) {
  Place place;
  place.id = id;
  place.ranks = static_cast<int32_t>(members);
  place.rank = static_cast<int32_t>(index);
  place.how = fmt::format("parent {}", parent.settings().name);
  return create_communicator(settings, place, std::move(provider));
}

// The child's membership in the device's library, from the parent's, where all children want one;
// null: it is made anew. All ranks of the parent call.
Result<std::unique_ptr<CollectiveProvider>> split_device(Communicator& parent,
                                                         const std::vector<Membership>& all,
                                                         size_t members, size_t index) {
  DeviceLink* const device = parent.device();
  const bool together =
      std::all_of(all.begin(), all.end(), [](const Membership& m) { return m.on_device != 0; });
  if (device == nullptr || !together || !device->runtime().can_split()) {
    return std::unique_ptr<CollectiveProvider>();
  }
  const Membership& mine = all[static_cast<size_t>(parent.rank())];
  return device->split(mine.color, mine.key, static_cast<int32_t>(members),
                       static_cast<int32_t>(index));
}

}  // namespace

Result<std::unique_ptr<Communicator>> split(Communicator& parent, int32_t color, int32_t key,
                                            const Settings& settings) {
  TRY(refuse_simulation(parent));
  if (group_open()) return error(Code::kInvalidUsage, "uniCommSplit inside a group");
  const auto ranks = static_cast<size_t>(parent.ranks());
  const Membership mine{color, key, color < 0 || !settings.device.empty() ? 1 : 0};
  std::vector<Membership> all(ranks);
  TRY(gather_all(parent, &mine, all.data(), sizeof mine));
  std::vector<size_t> members;
  for (size_t r = 0; r < ranks; r++) {
    if (color >= 0 && all[r].color == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](size_t a, size_t b) { return all[a].key < all[b].key; });
  const auto self = static_cast<size_t>(parent.rank());
  UniqueId id;
  Status made;
  if (members.size() > 1 && members.front() == self) {
    auto created = create_unique_id();
    made = created.status();
    if (created.ok()) id = *created;
  }
  // Every rank takes part in the second exchange, also one that failed: the others must not wait.
  std::vector<UniqueId> ids(ranks);
  TRY(gather_all(parent, &id, ids.data(), sizeof id));
  TRY(made);
  const auto index =
      static_cast<size_t>(std::find(members.begin(), members.end(), self) - members.begin());
  TRY_ASSIGN(auto provider, split_device(parent, all, members.size(), index));
  if (members.empty()) return std::unique_ptr<Communicator>();
  return meet(parent, ids[members.front()], members.size(), index, settings, std::move(provider));
}

Result<std::unique_ptr<Communicator>> create_group(Communicator& parent,
                                                   std::span<const int32_t> members, int32_t tag,
                                                   const Settings& settings) {
  TRY(refuse_simulation(parent));
  const auto found = std::find(members.begin(), members.end(), parent.rank());
  if (found == members.end()) {
    return error(Code::kInvalidArgument, "members: do not contain the calling rank {}",
                 parent.rank());
  }
  const auto index = static_cast<size_t>(found - members.begin());
  UniqueId id;
  if (members.size() > 1) {
    const std::string key = fmt::format("group {} {}", tag, fmt::join(members, ","));
    if (index == 0) {
      TRY_ASSIGN(id, create_unique_id());
      const std::string bytes(id.bytes.begin(), id.bytes.end());
      for (const int32_t member : members.subspan(1)) parent.control()->post(member, key, bytes);
    } else {
      const int64_t deadline_ns = parent.env().now_ns() + settings.timeout_ms * 1'000'000;
      TRY_ASSIGN(const std::string bytes, parent.control()->await(members[0], key, deadline_ns));
      if (bytes.size() != id.bytes.size()) {
        return error(Code::kRemoteError, "{} sent a malformed group id",
                     parent.peer_name(members[0]));
      }
      std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
    }
  }
  return meet(parent, id, members.size(), index, settings, nullptr);
}

}  // namespace unisono
