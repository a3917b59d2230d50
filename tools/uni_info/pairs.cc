#include "tools/uni_info/pairs.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstring>

#include "base/config.h"
#include "transports/registry.h"

namespace unisono::uni_info {
namespace {

constexpr int kMostTransports = 8;

struct WireTransport {
  char name[16];
  int32_t available;
  char detail[108];
};
// What each rank tells all others.
struct WireRank {
  int32_t rank, pid, local_ranks, transport_count;
  char host[64], used[64], order[64];
  WireTransport transports[kMostTransports];
};

template <size_t size>
void set_text(char (&to)[size], const std::string& text) {
  const size_t length = std::min(size - 1, text.size());
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

// "sim:seed=7,latency_us=2,tcp" -> sim, tcp: what follows a name is its options.
std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (size_t from = 0; from < list.size();) {
    const size_t comma = std::min(list.find(',', from), list.size());
    const std::string word = list.substr(from, comma - from);
    const std::string name = word.substr(0, word.find(':'));
    if (!name.empty() && name.find('=') == std::string::npos) names.push_back(name);
    from = comma + 1;
  }
  return names;
}

WireRank describe_self(const uniCommInfo_t& info) {
  WireRank self{};
  self.rank = info.rank;
  self.pid = static_cast<int32_t>(getpid());
  self.local_ranks = info.local_ranks;
  utsname names{};
  if (uname(&names) == 0) set_text(self.host, names.nodename);
  set_text(self.used, info.transports);
  const std::string order = read_environment().transports;
  uniTransportInfo_t transport{};
  transport.size = sizeof(transport);
  for (int i = 0; i < kMostTransports && uniTransportQuery(i, &transport) == uniSuccess; ++i) {
    WireTransport& wire = self.transports[self.transport_count++];
    set_text(wire.name, transport.name);
    wire.available = transport.available;
    set_text(wire.detail, transport.detail);
  }
  set_text(self.order, order.empty() ? default_transports() : order);
  return self;
}

const WireTransport* find_transport(const WireRank& rank, const std::string& name) {
  for (int i = 0; i < rank.transport_count; ++i) {
    if (name == rank.transports[i].name) return &rank.transports[i];
  }
  return nullptr;
}

// Why `name`, which comes earlier in the order, was not taken.
std::string why_not(const std::string& name, const WireRank& a, const WireRank& b) {
  for (const WireRank* rank : {&a, &b}) {
    const WireTransport* const transport = find_transport(*rank, name);
    if (transport == nullptr) return fmt::format("{}: rank {} does not know it", name, rank->rank);
    if (transport->available == 0) {
      return fmt::format("{}: not available at rank {}: {}", name, rank->rank, transport->detail);
    }
  }
  if (std::strcmp(a.host, b.host) == 0) {
    return fmt::format(
        "{}: does not join them, though both say host {}: their network spaces or "
        "UNISONO_HOSTID differ",
        name, a.host);
  }
  return fmt::format("{}: does not join hosts {} and {}", name, a.host, b.host);
}

std::string why(const std::string& chosen, const WireRank& a, const WireRank& b) {
  std::string text;
  for (const std::string& name : names_in(a.order)) {
    if (name == chosen) break;
    if (name == "self") continue;
    text += (text.empty() ? "" : "; ") + why_not(name, a, b);
  }
  if (!text.empty()) return fmt::format("next of {}; {}", a.order, text);
  return fmt::format("first of {}", a.order);
}

class Asker {
 public:
  explicit Asker(uniComm_t comm) : comm_(comm) {}
  const std::string& problem() const { return problem_; }

  bool well(uniResult_t result, const char* what) {
    if (result == uniSuccess) return true;
    if (problem_.empty()) problem_ = fmt::format("{}: {}", what, uniGetLastError(comm_));
    return false;
  }

  // What carries the pair; both ends ask. A rank that uses one transport uses it for all peers;
  // else a communicator of the two, which chooses as the large one did, tells.
  std::string transport_between(const WireRank& a, const WireRank& b, int ranks, int self) {
    for (const WireRank* rank : {&a, &b}) {
      if (std::strchr(rank->used, ',') == nullptr) return rank->used;
    }
    if (self != a.rank && self != b.rank) return "";
    const int members[] = {a.rank, b.rank};
    uniComm_t pair = nullptr;
    uniCommInfo_t info{};
    info.size = sizeof(info);
    if (well(uniCommCreateGroup(comm_, members, 2, a.rank * ranks + b.rank, &pair, nullptr),
             "uniCommCreateGroup")) {
      (void)well(uniCommQuery(pair, &info), "uniCommQuery");
    }
    (void)well(uniCommDestroy(pair), "uniCommDestroy");
    return info.transports;
  }

 private:
  uniComm_t comm_;
  std::string problem_;
};

struct Name {
  char text[32];
};

// [a][b] for a < b, at every rank.
std::vector<Name> chosen_between(uniComm_t comm, Asker* asker, const std::vector<WireRank>& all,
                                 int self) {
  const size_t ranks = all.size();
  std::vector<Name> names(ranks * ranks), merged(ranks * ranks);
  for (size_t a = 0; a < ranks; ++a) {
    for (size_t b = a + 1; b < ranks && asker->problem().empty(); ++b) {
      set_text(names[a * ranks + b].text,
               asker->transport_between(all[a], all[b], static_cast<int>(ranks), self));
    }
  }
  // Who knows a pair knows it alike; who does not has zeros.
  (void)asker->well(uniAllReduce(names.data(), merged.data(), names.size() * sizeof(Name), uniUint8,
                                 uniBor, comm, nullptr),
                    "uniAllReduce");
  return merged;
}

}  // namespace

Json describe_pairs(uniComm_t comm) {
  Asker asker(comm);
  uniCommInfo_t info{};
  info.size = sizeof(info);
  if (!asker.well(uniCommQuery(comm, &info), "uniCommQuery")) return {{"problem", asker.problem()}};
  const WireRank self = describe_self(info);
  std::vector<WireRank> all(static_cast<size_t>(info.ranks));
  if (!asker.well(uniAllGather(&self, all.data(), sizeof(self), uniUint8, comm, nullptr),
                  "uniAllGather")) {
    return {{"problem", asker.problem()}};
  }
  const std::vector<Name> names = chosen_between(comm, &asker, all, info.rank);
  if (!asker.problem().empty()) return {{"problem", asker.problem()}};
  if (info.rank != 0) return nullptr;
  Json job = {{"ranks", Json::array()}, {"order", all[0].order}, {"pairs", Json::array()}};
  for (const WireRank& rank : all) {
    job["ranks"].push_back({{"rank", rank.rank},
                            {"pid", rank.pid},
                            {"host", rank.host},
                            {"ranks_sharing_memory", rank.local_ranks},
                            {"transports", rank.used}});
  }
  for (size_t a = 0; a < all.size(); ++a) {
    for (size_t b = a + 1; b < all.size(); ++b) {
      const std::string chosen = names[a * all.size() + b].text;
      job["pairs"].push_back(
          {{"ranks", {a, b}}, {"transport", chosen}, {"why", why(chosen, all[a], all[b])}});
    }
  }
  return job;
}

}  // namespace unisono::uni_info
