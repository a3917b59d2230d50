// Version, errors, communicators, memory: the calls of unisono.h that are not collectives or
// streams.
#include <algorithm>
#include <cstring>

#include "comm/bootstrap/bootstrap.h"
#include "comm/communicator_builder.h"
#include "comm/group.h"
#include "comm/handles.h"
#include "comm/memory.h"
#include "comm/reduce/kernels.h"
#include "comm/split.h"

using unisono::Code;
using unisono::error;
using unisono::Result;
using unisono::Status;

static_assert(static_cast<int>(Code::kMismatch) == uniMismatch &&
              static_cast<int>(Code::kSystemError) == uniSystemError &&
              static_cast<int>(Code::kInProgress) == uniInProgress);
static_assert(static_cast<int>(unisono::DataType::kBool) == uniBool &&
              static_cast<int>(unisono::DataType::kBfloat16) == uniBfloat16 &&
              unisono::kDataTypes == uniNumTypes);
static_assert(static_cast<int>(unisono::RedOp::kBxor) == uniBxor &&
              static_cast<int>(unisono::RedOp::kAvg) == uniAvg);

namespace unisono {
namespace {

Status need(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return error(Code::kInvalidArgument, "{}: is null", name);
}

Status check_ranks(int ranks, int rank) {
  if (ranks < 1 || ranks > kMaxRanks) {
    return error(Code::kInvalidArgument, "ranks: {} is not between 1 and {}", ranks, kMaxRanks);
  }
  if (rank < 0 || rank >= ranks) {
    return error(Code::kInvalidArgument, "rank: {} is not between 0 and {}", rank, ranks - 1);
  }
  return {};
}

Status hand_out(Result<std::unique_ptr<Communicator>> made, uniComm_t* comm) {
  TRY(made.status());
  *comm = *made == nullptr ? nullptr : new uniComm{std::move(*made)};
  return {};
}

Status init_rank(uniComm_t* comm, int ranks, const uniUniqueId& id, int rank,
                 const uniConfig_t* config) {
  TRY(need(comm, "comm"));
  *comm = nullptr;
  TRY(check_ranks(ranks, rank));
  TRY_ASSIGN(const Settings settings, make_settings(config));
  Place place;
  place.ranks = ranks;
  place.rank = rank;
  place.how = "unique id";
  std::memcpy(place.id.bytes.data(), id.internal, place.id.bytes.size());
  TRY(read_unique_id(place.id).status());
  return hand_out(create_communicator(settings, place), comm);
}

Status init_all(uniComm_t* comms, int ranks, const uniConfig_t* config) {
  TRY(need(comms, "comms"));
  TRY(check_ranks(ranks, 0));
  std::fill(comms, comms + ranks, nullptr);
  TRY_ASSIGN(const Settings settings, make_settings(config));
  TRY_ASSIGN(auto all, create_all(settings, ranks));
  for (int r = 0; r < ranks; r++) comms[r] = new uniComm{std::move(all[static_cast<size_t>(r)])};
  return {};
}

Status not_in_group(const uniComm& comm, const char* what) {
  if (!group_uses(*comm.communicator)) return {};
  return error(Code::kInvalidUsage,
               "comm: calls of it wait in the open group; {} after uniGroupEnd", what);
}

int64_t deadline_of(const Settings& settings) {
  const int64_t now = real_env().now_ns();
  return settings.timeout_ms > (kNeverNs - now) / 1'000'000 ? kNeverNs
                                                            : now + settings.timeout_ms * 1'000'000;
}

Status init_url(uniComm_t* comm, const char* url, int ranks, int rank, const uniConfig_t* config) {
  TRY(need(comm, "comm"));
  *comm = nullptr;
  if (ranks != -1 || rank != -1) TRY(check_ranks(ranks, rank));
  TRY_ASSIGN(const Settings settings, make_settings(config));
  TRY_ASSIGN(const Place place,
             meet_by_url(url == nullptr ? "env://" : url, ranks, rank, deadline_of(settings)));
  return hand_out(create_communicator(settings, place), comm);
}

// Largest value that is asked of a store: an id or a short note.
constexpr size_t kStoreValueBytes = 4096;

Status init_store(uniComm_t* comm, const uniStore_t* store, const char* prefix, int ranks, int rank,
                  const uniConfig_t* config) {
  TRY(need(comm, "comm"));
  *comm = nullptr;
  TRY(check_ranks(ranks, rank));
  TRY(need(store, "store"));
  if (store->set == nullptr || store->get == nullptr) {
    return error(Code::kInvalidArgument, "store: set and get are needed");
  }
  TRY_ASSIGN(const Settings settings, make_settings(config));
  StoreCalls calls;
  calls.set = [store](const std::string& key, const std::string& value) -> Status {
    if (store->set(store->context, key.c_str(), value.data(), value.size()) == 0) return {};
    return error(Code::kRemoteError, "store: set of '{}' failed", key);
  };
  calls.get = [store](const std::string& key, int64_t timeout_ms) -> Result<std::string> {
    std::string value(kStoreValueBytes, '\0');
    size_t bytes = 0;
    if (store->get(store->context, key.c_str(), value.data(), value.size(), &bytes, timeout_ms) !=
        0) {
      return error(Code::kRemoteError, "store: get of '{}' failed or timed out", key);
    }
    if (bytes > value.size()) return error(Code::kRemoteError, "store: '{}' is too long", key);
    value.resize(bytes);
    return value;
  };
  TRY_ASSIGN(const Place place, meet_by_store(calls, prefix == nullptr ? "" : prefix, ranks, rank,
                                              deadline_of(settings)));
  return hand_out(create_communicator(settings, place), comm);
}

void fill_text(char* to, size_t bytes, const std::string& text) {
  const size_t length = std::min(bytes - 1, text.size());
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

// Copies what the caller's (perhaps older) struct has room for.
template <class Info>
Status copy_info(const Info& full, Info* out) {
  const size_t size = out->size;
  if (size < 2 * sizeof(size_t))
    return error(Code::kInvalidArgument, "info.size: {} is not set", size);
  std::memcpy(out, &full, std::min(size, sizeof full));
  out->size = size;
  return {};
}

Status query(uniComm_t comm, uniCommInfo_t* out) {
  TRY(check_comm(comm));
  TRY(need(out, "info"));
  const Communicator& c = *comm->communicator;
  uniCommInfo_t info{};
  info.ranks = c.ranks();
  info.rank = c.rank();
  info.local_ranks = c.local_ranks();
  info.failed = c.failed() ? 1 : 0;
  info.collectives = c.sequence();
  info.memory_bytes = c.memory_bytes();
  fill_text(info.name, sizeof info.name, c.settings().name);
  fill_text(info.transports, sizeof info.transports, c.transports_in_use());
  fill_text(info.last_algorithm, sizeof info.last_algorithm, c.last_algorithm());
  fill_text(info.last_transport, sizeof info.last_transport, c.transports_in_use());
  fill_text(info.kernels, sizeof info.kernels, kernel_target());
  return copy_info(info, out);
}

Status query_transport(int index, uniTransportInfo_t* out) {
  TRY(need(out, "info"));
  const auto entries = transport_registry();
  if (index < 0 || static_cast<size_t>(index) >= entries.size()) {
    return error(Code::kInvalidArgument, "index: {} is not under {}", index, entries.size());
  }
  const TransportEntry& entry = entries[static_cast<size_t>(index)];
  uniTransportInfo_t info{};
  std::string detail;
  const Status status = entry.available(&detail);
  info.available = status.ok() ? 1 : 0;
  fill_text(info.name, sizeof info.name, entry.name);
  fill_text(info.detail, sizeof info.detail, status.ok() ? detail : status.message());
  return copy_info(info, out);
}

Status query_algorithm(int index, uniAlgorithmInfo_t* out) {
  TRY(need(out, "info"));
  const auto rows = algorithms();
  if (index < 0 || static_cast<size_t>(index) >= rows.size()) {
    return error(Code::kInvalidArgument, "index: {} is not under {}", index, rows.size());
  }
  uniAlgorithmInfo_t info{};
  fill_text(info.name, sizeof info.name, rows[static_cast<size_t>(index)].name);
  fill_text(info.paper, sizeof info.paper, rows[static_cast<size_t>(index)].paper);
  return copy_info(info, out);
}

Status make_split(uniComm_t comm, int color, int key, uniComm_t* child, const uniConfig_t* config) {
  TRY(check_comm(comm));
  TRY(need(child, "child"));
  *child = nullptr;
  if (color < UNI_SPLIT_NOCOLOR)
    return error(Code::kInvalidArgument, "color: {} is negative", color);
  TRY_ASSIGN(const Settings settings, child_settings(*comm->communicator, config));
  return hand_out(split(*comm->communicator, color, key, settings), child);
}

Status make_group(uniComm_t comm, const int* members, int count, int tag, uniComm_t* child,
                  const uniConfig_t* config) {
  TRY(check_comm(comm));
  TRY(need(child, "child"));
  *child = nullptr;
  TRY(need(members, "members"));
  if (count < 1 || count > comm->communicator->ranks()) {
    return error(Code::kInvalidArgument, "count: {} members of {} ranks", count,
                 comm->communicator->ranks());
  }
  std::vector<bool> seen(static_cast<size_t>(comm->communicator->ranks()));
  for (int i = 0; i < count; i++) {
    if (members[i] < 0 || members[i] >= comm->communicator->ranks()) {
      return error(Code::kInvalidArgument, "members[{}]: {} is no rank", i, members[i]);
    }
    const auto member = static_cast<size_t>(members[i]);
    if (seen[member])
      return error(Code::kInvalidArgument, "members[{}]: {} is there twice", i, members[i]);
    seen[member] = true;
  }
  TRY_ASSIGN(const Settings settings, child_settings(*comm->communicator, config));
  const std::span<const int32_t> list(members, static_cast<size_t>(count));
  return hand_out(create_group(*comm->communicator, list, tag, settings), child);
}

Status not_borrowed(uniComm& comm) {
  const std::lock_guard lock(comm.mutex);
  if (comm.borrowers.empty()) return {};
  return error(Code::kInvalidUsage, "comm: is still borrowed by {}",
               fmt::join(comm.borrowers, ", "));
}

Status borrow(uniComm_t comm, const char* by) {
  TRY(check_comm(comm));
  TRY(need(by, "by"));
  const std::lock_guard lock(comm->mutex);
  comm->borrowers.emplace_back(by);
  return {};
}

// Also of a finalized communicator.
Status give_back(uniComm_t comm, const char* by) {
  TRY(need(comm, "comm"));
  TRY(need(by, "by"));
  if (net::is_forked_child()) return {};  // the lock may be held for ever there
  const std::lock_guard lock(comm->mutex);
  const auto found = std::find(comm->borrowers.begin(), comm->borrowers.end(), by);
  if (found == comm->borrowers.end()) {
    return error(Code::kInvalidUsage, "by: '{}' does not borrow this communicator", by);
  }
  comm->borrowers.erase(found);
  return {};
}

Status set_timeout(uniComm_t comm, int64_t timeout_ms) {
  TRY(check_comm(comm));
  if (timeout_ms != UNI_TIMEOUT_DEFAULT && timeout_ms <= 0) {
    return error(Code::kInvalidArgument, "timeout_ms: {} is not positive", timeout_ms);
  }
  comm->communicator->set_timeout_ms(timeout_ms > 0 ? timeout_ms : kDefaultTimeoutMs);
  return {};
}

}  // namespace
}  // namespace unisono

uniResult_t uniGetVersion(int* version) {
  const Status status = unisono::need(version, "version");
  if (status.ok()) *version = UNI_VERSION_CODE;
  return unisono::report(status);
}

const char* uniGetErrorString(uniResult_t result) {
  return unisono::code_name(static_cast<Code>(result));
}

const char* uniGetLastError(uniComm_t comm) {
  if (comm != nullptr && comm->communicator->failed()) {
    return unisono::keep_error_text(comm->communicator->status().message());
  }
  return unisono::last_error_text();
}

uniResult_t uniSetLastError(uniResult_t result, const char* message) {
  (void)unisono::keep_error_text(message == nullptr ? "" : message);
  return result;
}

uniResult_t uniGetUniqueId(uniUniqueId* id) {
  const Status status = [&]() -> Status {
    TRY(unisono::need(id, "id"));
    TRY(unisono::make_settings(nullptr)
            .status());  // a broken environment or a forked child is told here already
    TRY_ASSIGN(const unisono::UniqueId made, unisono::create_unique_id());
    std::memcpy(id->internal, made.bytes.data(), sizeof id->internal);
    return {};
  }();
  return unisono::report(status);
}

uniResult_t uniCommInitRank(uniComm_t* comm, int ranks, uniUniqueId id, int rank) {
  return unisono::report(unisono::init_rank(comm, ranks, id, rank, nullptr));
}

uniResult_t uniCommInitRankConfig(uniComm_t* comm, int ranks, uniUniqueId id, int rank,
                                  const uniConfig_t* config) {
  return unisono::report(unisono::init_rank(comm, ranks, id, rank, config));
}

uniResult_t uniCommInitAll(uniComm_t* comms, int ranks, const uniConfig_t* config) {
  return unisono::report(unisono::init_all(comms, ranks, config));
}

uniResult_t uniCommInitUrl(uniComm_t* comm, const char* url, int ranks, int rank,
                           const uniConfig_t* config) {
  return unisono::report(unisono::init_url(comm, url, ranks, rank, config));
}

uniResult_t uniCommInitStore(uniComm_t* comm, const uniStore_t* store, const char* prefix,
                             int ranks, int rank, const uniConfig_t* config) {
  return unisono::report(unisono::init_store(comm, store, prefix, ranks, rank, config));
}

uniResult_t uniCommFinalize(uniComm_t comm) {
  Status status = unisono::check_comm(comm);
  if (status.ok()) status = unisono::not_in_group(*comm, "finalize it");
  if (!status.ok()) return unisono::report(status);
  comm->communicator->env().enter(comm->communicator->rank());
  comm->communicator->drain();
  comm->communicator->env().leave(comm->communicator->rank());
  status = comm->communicator->finish_device();
  comm->finalized = true;
  // Before leaving: that others then fail, for want of this rank, is no failure of this rank's.
  if (comm->communicator->failed()) status = comm->communicator->status();
  comm->communicator->leave();  // who still waits for this rank learns it now
  return unisono::report(status);
}

uniResult_t uniCommDestroy(uniComm_t comm) {
  if (comm == nullptr) return uniSuccess;
  if (!unisono::net::is_forked_child()) {
    Status status = unisono::not_in_group(*comm, "destroy it");
    if (status.ok()) status = unisono::not_borrowed(*comm);
    if (!status.ok()) return unisono::report(status);
    unisono::Env& env = comm->communicator->env();
    const int32_t rank = comm->communicator->rank();
    if (!comm->communicator->idle()) {
      env.enter(rank);
      comm->communicator->drain();
      env.leave(rank);
    }
    const Status ended = comm->communicator->finish_device();
    delete comm;
    return unisono::report(ended);
  }
  // The child of a fork: the links are closed, the rest is the parent's, and this memory is a copy.
  // Leave it be.
  return uniSuccess;
}

uniResult_t uniCommBorrow(uniComm_t comm, const char* by) {
  return unisono::report(unisono::borrow(comm, by));
}

uniResult_t uniCommReturn(uniComm_t comm, const char* by) {
  return unisono::report(unisono::give_back(comm, by));
}

uniResult_t uniCommAbort(uniComm_t comm) {
  if (comm == nullptr) return unisono::report(unisono::need(comm, "comm"));
  if (unisono::net::is_forked_child()) return unisono::report(unisono::check_comm(comm));
  comm->communicator->fail(error(Code::kAborted, "uniCommAbort was called on {}",
                                 comm->communicator->peer_name(comm->communicator->rank())));
  return uniSuccess;
}

uniResult_t uniCommGetAsyncError(uniComm_t comm, uniResult_t* result) {
  Status status = unisono::need(comm, "comm");
  if (status.ok() && unisono::net::is_forked_child()) status = unisono::check_comm(comm);
  if (status.ok()) status = unisono::need(result, "error");
  if (!status.ok()) return unisono::report(status);
  *result = comm->communicator->failed()
                ? static_cast<uniResult_t>(comm->communicator->status().code())
                : uniSuccess;
  return uniSuccess;
}

uniResult_t uniCommCount(uniComm_t comm, int* ranks) {
  Status status = unisono::check_comm(comm);
  if (status.ok()) status = unisono::need(ranks, "ranks");
  if (status.ok()) *ranks = comm->communicator->ranks();
  return unisono::report(status);
}

uniResult_t uniCommUserRank(uniComm_t comm, int* rank) {
  Status status = unisono::check_comm(comm);
  if (status.ok()) status = unisono::need(rank, "rank");
  if (status.ok()) *rank = comm->communicator->rank();
  return unisono::report(status);
}

uniResult_t uniCommSetTimeout(uniComm_t comm, int64_t timeout_ms) {
  return unisono::report(unisono::set_timeout(comm, timeout_ms));
}

uniResult_t uniCommSplit(uniComm_t comm, int color, int key, uniComm_t* child,
                         const uniConfig_t* config) {
  return unisono::report(unisono::make_split(comm, color, key, child, config));
}

uniResult_t uniCommCreateGroup(uniComm_t comm, const int* members, int count, int tag,
                               uniComm_t* child, const uniConfig_t* config) {
  return unisono::report(unisono::make_group(comm, members, count, tag, child, config));
}

uniResult_t uniCommQuery(uniComm_t comm, uniCommInfo_t* info) {
  return unisono::report(unisono::query(comm, info));
}

uniResult_t uniTransportQuery(int index, uniTransportInfo_t* info) {
  return unisono::report(unisono::query_transport(index, info));
}

uniResult_t uniAlgorithmQuery(int index, uniAlgorithmInfo_t* info) {
  return unisono::report(unisono::query_algorithm(index, info));
}

uniResult_t uniMemAlloc(void** pointer, size_t bytes) {
  Status status = unisono::need(pointer, "pointer");
  if (status.ok()) status = unisono::not_in_forked_child();
  if (!status.ok()) return unisono::report(status);
  auto made = unisono::allocate_shareable(bytes);
  *pointer = made.ok() ? *made : nullptr;
  return unisono::report(made.status());
}

uniResult_t uniMemFree(void* pointer) {
  if (unisono::net::is_forked_child()) return uniSuccess;  // the parent's
  return unisono::report(unisono::free_shareable(pointer));
}

uniResult_t uniCommRegister(uniComm_t comm, void* pointer, size_t bytes, void** handle) {
  Status status = unisono::check_comm(comm);
  if (status.ok()) status = unisono::need(pointer, "pointer");
  if (status.ok()) status = unisono::need(handle, "handle");
  if (status.ok() && (bytes == 0 || bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(pointer))) {
    status = error(Code::kInvalidArgument, "bytes: {} bytes at {} are no range", bytes, pointer);
  }
  if (status.ok()) status = comm->communicator->register_memory(pointer, bytes, handle);
  return unisono::report(status);
}

uniResult_t uniCommDeregister(uniComm_t comm, void* handle) {
  Status status = unisono::check_comm(comm);
  if (status.ok()) status = comm->communicator->deregister_memory(handle);
  return unisono::report(status);
}
