#include "ddp/reducer/agreement.h"

#include <algorithm>
#include <optional>

#include "ddp/reducer/description.h"
#include "ddp/reducer/messages.h"

namespace unisono::ddp {
namespace {

// What every rank tells first. Fixed layout: it goes over the wire.
struct Digest {
  uint64_t bytes = 0;
  uint64_t hash[2] = {};
  bool operator==(const Digest&) const = default;
};

// FNV-1a from two starting points.
Digest digest_of(const std::string& text) {
  Digest digest{text.size(), {0xcbf29ce484222325u, 0x9ae16a3b2f90404fu}};
  for (const char c : text) {
    for (uint64_t& hash : digest.hash) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
  }
  return digest;
}

// More than any description in earnest; a peer's number is not trusted with the memory.
constexpr uint64_t kLongestDescription = uint64_t{1} << 30;

Status broadcast_text(uniComm_t comm, uniStream_t stream, int root, const Digest& digest,
                      std::string* text) {
  if (digest.bytes > kLongestDescription) {
    return error(uniMismatch, "rank {} describes its parameters in {} bytes", root, digest.bytes);
  }
  text->resize(digest.bytes);
  DDP_TRY(
      called(uniBroadcast(text->data(), text->data(), text->size(), uniUint8, root, comm, stream)));
  return called(uniStreamSynchronize(stream));
}

Status compare(const Description& first, const Description& other, int rank) {
  for (size_t i = 0; i < first.settings.size() && i < other.settings.size(); i++) {
    if (first.settings[i] == other.settings[i]) continue;
    return error(uniMismatch, "config.{} is {} on rank 0, {} on rank {}", kSettingNames[i],
                 first.settings[i], other.settings[i], rank);
  }
  if (first.parameters.size() != other.parameters.size()) {
    return error(uniMismatch, "count: {} parameters on rank 0, {} on rank {}",
                 first.parameters.size(), other.parameters.size(), rank);
  }
  for (size_t i = 0; i < first.parameters.size(); i++) {
    const Parameter& mine = first.parameters[i];
    const Parameter& theirs = other.parameters[i];
    const std::string label = parameter_label(first.parameters, static_cast<int>(i));
    if (mine.type != theirs.type || mine.shape != theirs.shape) {
      return error(uniMismatch, "{} is {} on rank 0, {} on rank {}", label,
                   shape_text(mine.type, mine.shape), shape_text(theirs.type, theirs.shape), rank);
    }
    if (mine.name != theirs.name) {
      return error(uniMismatch, "{} is called '{}' on rank 0, '{}' on rank {}", label, mine.name,
                   theirs.name, rank);
    }
  }
  return error(uniMismatch, "rank {} describes its parameters otherwise than rank 0", rank);
}

}  // namespace

Status verify_agreement(uniComm_t comm, uniStream_t stream, std::span<const Parameter> parameters,
                        const Settings& settings) {
  int ranks = 0, rank = 0;
  DDP_TRY(called(uniCommCount(comm, &ranks)));
  DDP_TRY(called(uniCommUserRank(comm, &rank)));
  const std::string mine = write_description(parameters, settings);
  std::vector<Digest> digests(static_cast<size_t>(ranks));
  digests[static_cast<size_t>(rank)] = digest_of(mine);
  DDP_TRY(called(uniAllGather(&digests[static_cast<size_t>(rank)], digests.data(), sizeof(Digest),
                              uniUint8, comm, stream)));
  DDP_TRY(called(uniStreamSynchronize(stream)));
  // Everybody sees all digests, so that everybody goes on alike.
  const auto other = std::find_if(digests.begin(), digests.end(),
                                  [&](const Digest& digest) { return digest != digests[0]; });
  if (other == digests.end()) return {};
  const int other_rank = static_cast<int>(other - digests.begin());
  std::string first_text = mine, other_text = mine;
  DDP_TRY(broadcast_text(comm, stream, 0, digests[0], &first_text));
  DDP_TRY(broadcast_text(comm, stream, other_rank, *other, &other_text));
  const std::optional<Description> first = read_description(first_text);
  const std::optional<Description> second = read_description(other_text);
  if (!first || !second) {
    return error(uniMismatch, "rank {}: its description of the parameters cannot be read",
                 first ? other_rank : 0);
  }
  return compare(*first, *second, other_rank);
}

bool is_permutation_of_indices(std::span<const int32_t> order) {
  std::vector<bool> seen(order.size());
  for (const int32_t index : order) {
    if (index < 0 || static_cast<size_t>(index) >= order.size() ||
        seen[static_cast<size_t>(index)]) {
      return false;
    }
    seen[static_cast<size_t>(index)] = true;
  }
  return true;
}

}  // namespace unisono::ddp
