#include "comm/reach.h"

#include <algorithm>

#include "base/bytes.h"
#include "transports/registry.h"

namespace unisono {

ReachRow reach_row(const std::vector<std::unique_ptr<Transport>>& transports, int32_t rank,
                   int32_t ranks) {
  ReachRow row(transports.size(), std::vector<bool>(static_cast<size_t>(ranks)));
  for (size_t t = 1; t < transports.size(); t++) {
    for (int32_t peer = 0; peer < ranks; peer++) {
      row[t][static_cast<size_t>(peer)] = peer != rank && transports[t]->reaches(peer);
    }
  }
  return row;
}

std::string encode_reach(const ReachRow& row) {
  std::string bytes;
  for (const std::vector<bool>& transport : row) {
    for (const bool reached : transport) bytes += reached ? '1' : '0';
  }
  return bytes;
}

Result<ReachRow> decode_reach(const std::string& bytes, size_t transports, int32_t ranks,
                              int32_t from) {
  const auto width = static_cast<size_t>(ranks);
  if (bytes.size() != transports * width) {
    return error(Code::kRemoteError, "rank {}: its report on links is malformed", from);
  }
  ReachRow row(transports, std::vector<bool>(width));
  for (size_t i = 0; i < bytes.size(); i++) row[i / width][i % width] = bytes[i] == '1';
  return row;
}

namespace {

// The first transport by which both reach each other; 0: none.
uint8_t pick(const std::vector<ReachRow>& rows, size_t a, size_t b) {
  for (size_t t = 1; t < rows[a].size(); t++) {
    if (rows[a][t][b] && rows[b][t][a]) return static_cast<uint8_t>(t);
  }
  return 0;
}

// What there is, in words, for the reader of an error.
std::string choices(const std::vector<std::unique_ptr<Transport>>& transports) {
  std::string used, left_out;
  bool only_memory = true;
  for (size_t t = 1; t < transports.size(); t++) {
    const TransportCaps& caps = transports[t]->caps();
    used += fmt::format("{}{}", used.empty() ? "" : ", ", caps.name);
    only_memory = only_memory && caps.same_memory;
  }
  for (const TransportEntry& entry : transport_registry()) {
    const std::string_view name = entry.name;
    const bool is_used = std::any_of(transports.begin(), transports.end(),
                                     [&](const auto& t) { return name == t->caps().name; });
    if (is_used || entry.make_world != nullptr) continue;
    left_out += fmt::format("{}{}", left_out.empty() ? "" : ", ", name);
  }
  std::string text = used + (only_memory ? " joins ranks of one host only" : " did not");
  if (!left_out.empty()) text += "; not used, or not by every rank: " + left_out;
  return text + " (UNISONO_TRANSPORTS, uniConfig_t.transports)";
}

}  // namespace

Result<Verdict> judge_reach(const std::vector<ReachRow>& rows,
                            const std::vector<std::unique_ptr<Transport>>& transports,
                            int64_t slice_bytes) {
  Verdict v;
  const size_t ranks = rows.size();
  v.transport_of.assign(ranks, std::vector<uint8_t>(ranks, 0));
  std::vector<bool> used(transports.size());
  for (size_t a = 0; a < ranks; a++) {
    for (size_t b = 0; b < ranks; b++) {
      if (a == b) continue;
      const uint8_t t = pick(rows, a, b);
      if (t == 0) {
        return error(Code::kRemoteError, "ranks {} and {} have no transport that joins them: {}", a,
                     b, choices(transports));
      }
      v.transport_of[a][b] = t;
      used[t] = true;
    }
  }
  const bool one = std::count(used.begin(), used.end(), true) == 1;
  v.slice_bytes = kMaxSliceBytes;
  v.slots = 64;
  v.gigabytes_per_s = 1e9;
  for (size_t t = 1; t < transports.size(); t++) {
    if (!used[t]) continue;
    const TransportCaps& caps = transports[t]->caps();
    if (one && caps.multicast) v.multicast = static_cast<uint8_t>(t);
    v.slice_bytes = std::min(v.slice_bytes, caps.slice_bytes);
    v.slots = std::min(v.slots, caps.slots);
    v.latency_us = std::max(v.latency_us, caps.latency_us);
    v.gigabytes_per_s = std::min(v.gigabytes_per_s, caps.gigabytes_per_s);
  }
  if (slice_bytes > 0) {
    v.slice_bytes = static_cast<uint32_t>(std::clamp<int64_t>(slice_bytes, 64, kMaxSliceBytes));
  }
  return v;
}

std::string encode_verdict(const Verdict& verdict, int32_t rank, bool oversubscribed) {
  ByteWriter out;
  out.put(verdict.multicast);
  out.put(static_cast<uint8_t>(oversubscribed));
  out.put(verdict.slice_bytes);
  out.put(verdict.slots);
  out.put_double(verdict.latency_us);
  out.put_double(verdict.gigabytes_per_s);
  for (const uint8_t t : verdict.transport_of[static_cast<size_t>(rank)]) out.put(t);
  return out.take();
}

bool decode_verdict(const std::string& bytes, size_t transports, int32_t ranks,
                    LinkChoice* choice) {
  ByteReader in(bytes);
  choice->multicast = in.get<decltype(choice->multicast)>();
  choice->oversubscribed = in.get<uint8_t>() != 0;
  choice->slice_bytes = in.get<uint32_t>();
  choice->slots = in.get<uint32_t>();
  choice->latency_us = in.get_double();
  choice->gigabytes_per_s = in.get_double();
  choice->transport_of.resize(static_cast<size_t>(ranks));
  for (uint8_t& t : choice->transport_of) {
    t = in.get<uint8_t>();
    if (t >= transports) return false;
  }
  return in.done() && choice->multicast < transports && choice->slice_bytes >= 64 &&
         choice->slice_bytes <= kMaxSliceBytes && choice->slots >= 2 && choice->slots <= 64;
}

}  // namespace unisono
