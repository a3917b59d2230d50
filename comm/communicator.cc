#include "comm/communicator.h"

#include <algorithm>

#include "comm/collective_operation.h"
#include "comm/device_link.h"
#include "comm/driver.h"
#include "comm/memory.h"

namespace unisono {
namespace {

constexpr uint32_t kPairChannel = 200;       // plans number theirs from 0
constexpr uint64_t kSmallBytes = 16u << 10;  // of one block: longer ones profit from lanes
constexpr uint32_t kFirstCreatedOp = 64;

uint64_t hash_text(const char* text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text != 0; text++) hash = mix(hash, static_cast<unsigned char>(*text));
  return hash;
}

bool same_shape(const Call& a, const Call& b) {
  return a.count == b.count && a.collective == b.collective && a.type == b.type &&
         a.op_handle == b.op_handle && a.root == b.root && a.blocks == nullptr;
}

}  // namespace

Communicator::Communicator() : blocking_operation_(std::make_unique<CollectiveOperation>(*this)) {}

Communicator::~Communicator() {
  close();
}

void Communicator::leave() {
  if (control_) control_->close();
  for (auto& transport : transports_) transport->close();
}

void Communicator::close() {
  if (closed_) return;
  closed_ = true;
  device_.reset();                                 // first: its watcher uses the rest
  if (endpoint_) endpoint_->on_shortage(nullptr);  // or it would be told to control, which goes
  leave();
  transports_.clear();
  control_.reset();
  endpoint_.reset();
}

std::string Communicator::peer_name(int32_t peer) const {
  if (peer < 0) return "any rank";
  const auto index = static_cast<size_t>(peer);
  if (index >= hosts_.size() || hosts_[index].empty()) return fmt::format("rank {}", peer);
  return fmt::format("rank {} ({})", peer, hosts_[index]);
}

void Communicator::complete_turn() {
  done_.fetch_add(1, std::memory_order_seq_cst);
  if (turn_waiter_count_.load(std::memory_order_seq_cst) == 0) return;
  const std::lock_guard lock(mutex_);
  for (Waiter* waiter : turn_waiters_) waiter->notify();
}

void Communicator::add_turn_waiter(Waiter* waiter) {
  const std::lock_guard lock(mutex_);
  turn_waiters_.push_back(waiter);
  turn_waiter_count_.fetch_add(1, std::memory_order_seq_cst);
}

void Communicator::remove_turn_waiter(Waiter* waiter) {
  const std::lock_guard lock(mutex_);
  std::erase(turn_waiters_, waiter);
  turn_waiter_count_.store(static_cast<int>(turn_waiters_.size()), std::memory_order_seq_cst);
}

bool Communicator::poll() {
  bool moved = false;
  for (auto& transport : transports_) {
    moved = transport->progress() || moved;
    if (Status status = transport->status(); !status.ok()) fail(status);
  }
  return moved;
}

bool Communicator::arm() {
  bool ready = false;
  for (auto& transport : transports_) ready = transport->arm() || ready;
  return ready || failed();
}

bool Communicator::flushed() const {
  return std::all_of(transports_.begin(), transports_.end(),
                     [](const auto& transport) { return transport->flushed(); });
}

void Communicator::disarm() {
  for (auto& transport : transports_) transport->disarm();
}

bool Communicator::peer_left(int32_t peer) const {
  if (peer < 0 || peer >= ranks() || peer == rank_) return false;
  const Transport* transport = links_[static_cast<size_t>(peer)].transport;
  return transport != nullptr && transport->peer_left(peer);
}

bool Communicator::out_of_reach(int32_t peer) const {
  if (peer < 0 || peer >= ranks() || peer == rank_ || !control_ || !control_->has_left(peer)) {
    return false;
  }
  const Transport* transport = links_[static_cast<size_t>(peer)].transport;
  return transport != nullptr && !transport->linked(peer);
}

Communicator::Gone Communicator::gone_for(const StallReport& stall) const {
  if (!control_) return {};
  if (stall.call.sequence != 0) {
    if (const int32_t rank = control_->left_before(stall.call.sequence); rank >= 0)
      return {rank, true};
  }
  if (stall.peer >= 0) {
    if (peer_left(stall.peer)) return {stall.peer, control_->has_left(stall.peer)};
    if (out_of_reach(stall.peer)) return {stall.peer, false};
    return {};
  }
  if (stall.call.sequence != 0) return {};
  // Waits for anybody: in vain only when nobody is left.
  Gone gone;
  for (int32_t peer = 0; peer < ranks(); peer++) {
    if (peer == rank_) continue;
    const bool ended = peer_left(peer);
    if (!ended && !out_of_reach(peer)) return {};
    gone = {peer, ended && control_->has_left(peer)};
  }
  return gone;
}

Status Communicator::prepare(const Call& call, const Prepared** prepared) {
  Prepared& entry =
      call.blocks != nullptr ? varying_ : prepared_[slot_of(call.collective, call.count)];
  *prepared = &entry;
  if (__builtin_expect(entry.bound != nullptr && same_shape(entry.call, call), 1)) {
    note_algorithm(*entry.bound);
    return {};
  }
  const BoundPlan* bound = nullptr;
  if (plan_file_ && plan_file_->serves(call, ranks())) {
    TRY_ASSIGN(bound, bind_plan_file(call));
  } else {
    TRY_ASSIGN(const Algorithm* algorithm, choose_algorithm(agreement_, call));
    TRY_ASSIGN(bound, bind(*algorithm, call));
  }
  entry.bound = bound;
  entry.call = call;
  entry.call.send = nullptr;
  entry.call.recv = nullptr;
  entry.hash = call_hash(call, bound->hash);
  entry.geometry = make_geometry(bound->plan, call.count, type_bytes(call.type), bound->slice_bytes,
                                 call.blocks.get());
  entry.small = call.blocks == nullptr && entry.geometry.rounds == 1 &&
                entry.geometry.length(0) * type_bytes(call.type) <= kSmallBytes;
  if (entry.small) entry.program = make_small_program(*bound, call, entry.geometry);
  entry.express = entry.small && agreement_.cheap_poll && world_ == nullptr &&
                  fits_express(entry.program, call);
  note_algorithm(*bound);
  return {};
}

Result<BoundChannel> Communicator::open_channel(const ChannelId& id, uint32_t number) {
  BoundChannel channel;
  channel.id = id;
  const bool everyone = id.reader == kAllButWriter;
  const int32_t other = id.writer == rank_ ? id.reader : id.writer;
  channel.transport = everyone ? multicast_ : links_[static_cast<size_t>(other)].transport;
  if (channel.transport == nullptr) {
    return error(Code::kInternalError, "no transport reaches {}", peer_name(other));
  }
  channel.peer = everyone && id.writer == rank_ ? -1 : other;
  channel.prefers_reserve = channel.transport->caps().prefers_reserve;
  channel.by_reference = channel.transport->caps().by_reference;
  const ChannelKey key{number, id.writer, everyone ? kEveryone : id.reader};
  const ChannelShape shape{agreement_.slice_bytes, agreement_.slots};
  if (id.writer == rank_) {
    TRY_ASSIGN(channel.send, channel.transport->open_send(key, shape));
  }
  if (id.writer != rank_ || id.reader == rank_) {
    TRY_ASSIGN(channel.recv, channel.transport->open_recv(key, shape));
  }
  return channel;
}

Result<const BoundPlan*> Communicator::bind(const Algorithm& algorithm, const Call& call) {
  const PlanKey key{&algorithm, call.collective, call.root};
  if (auto found = plans_.find(key); found != plans_.end()) return found->second.get();
  PlanRequest request;
  request.collective = call.collective;
  request.ranks = ranks();
  request.rank = rank_;
  request.root = std::max(call.root, 0);
  request.multicast = agreement_.multicast;
  request.hosts = agreement_.hosts;
  uint64_t hash = mix(hash_text(algorithm.name), static_cast<uint64_t>(ranks()));
  for (const int32_t host : agreement_.hosts) hash = mix(hash, static_cast<uint64_t>(host));
  return bind_plan(key, algorithm.build(request), algorithm.name, hash);
}

Result<const BoundPlan*> Communicator::bind_plan_file(const Call& call) {
  const PlanKey key{nullptr, call.collective, call.root};
  if (auto found = plans_.find(key); found != plans_.end()) return found->second.get();
  return bind_plan(key, plan_file_->plan, "plan file", plan_file_->hash);
}

Result<const BoundPlan*> Communicator::bind_plan(const PlanKey& key, Plan plan, const char* name,
                                                 uint64_t hash) {
  auto bound = std::make_unique<BoundPlan>();
  bound->plan = std::move(plan);
  bound->algorithm_name = name;
  bound->hash = hash;
  bound->slice_bytes = agreement_.slice_bytes;
  for (const ChannelId& id : bound->plan.channels) {
    TRY_ASSIGN(BoundChannel channel, open_channel(id, static_cast<uint32_t>(id.number)));
    bound->channels.push_back(channel);
  }
  for (const auto& [lane, index] : bound->plan.order) {
    const Step& step =
        bound->plan.lanes[static_cast<size_t>(lane)].steps[static_cast<size_t>(index)];
    bound->order.push_back({&step, lane, index});
    bound->max_operands = std::max(bound->max_operands, static_cast<int32_t>(step.sources.size()));
  }
  const BoundPlan* result = bound.get();
  plans_.emplace(key, std::move(bound));
  return result;
}

Result<BoundChannel> Communicator::open_pair_send(int32_t peer) {
  return open_channel({static_cast<int32_t>(kPairChannel), rank_, peer}, kPairChannel);
}

Result<BoundChannel> Communicator::open_pair_recv(int32_t peer) {
  return open_channel({static_cast<int32_t>(kPairChannel), peer, rank_}, kPairChannel);
}

void Communicator::tally_pairs(StallReport* report) const {
  for (size_t peer = 0; peer < pair_sent_.size(); peer++) {
    if (pair_sent_[peer] == 0 && pair_received_[peer] == 0) continue;
    if (report->tallies.size() == kMaxPairTallies) {
      report->all_tallies = false;
      return;
    }
    report->tallies.push_back(
        {static_cast<int32_t>(peer), pair_sent_[peer], pair_received_[peer], 0});
  }
}

void Communicator::foreign_message(int32_t peer, const MessageHeader&) {
  foreign_peer_.store(peer, std::memory_order_relaxed);
}

bool Communicator::take_foreign(int32_t* peer) {
  const int64_t found = foreign_peer_.exchange(-1, std::memory_order_relaxed);
  *peer = static_cast<int32_t>(found);
  return found >= 0;
}

void Communicator::notify_all() {
  waiter_->notify();
  const std::lock_guard lock(mutex_);
  for (Waiter* waiter : turn_waiters_) waiter->notify();
}

void Communicator::fail(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (local_status_.ok()) local_status_ = status;
  }
  if (control_) control_->raise(status);
  failed_.store(true, std::memory_order_release);
  notify_all();
}

Status Communicator::status() const {
  if (control_ && control_->failed()) return control_->error();
  const std::lock_guard lock(mutex_);
  return local_status_;
}

uint64_t Communicator::registration_of(const Transport* transport, const std::byte* data,
                                       uint64_t bytes) const {
  for (const Registration& r : registrations_) {
    if (data < r.begin || data + bytes > r.begin + r.bytes) continue;
    for (const auto& [owner, id] : r.ids) {
      if (owner == transport) return id;
    }
  }
  return 0;
}

Status Communicator::register_memory(void* pointer, size_t bytes, void** handle) {
  TRY_ASSIGN(const Region region, shareable_region(pointer, bytes));
  Registration registration;
  registration.begin = static_cast<std::byte*>(pointer);
  registration.bytes = bytes;
  drain();
  if (device_) {
    *handle = pointer;
    return device_->register_memory(pointer, bytes);
  }
  for (auto& transport : transports_) {
    if (region.fd < 0 || !transport->caps().by_reference) continue;
    TRY_ASSIGN(const uint64_t id, transport->register_memory(region));
    registration.ids.emplace_back(transport.get(), id);
  }
  registrations_.push_back(registration);
  *handle = pointer;
  return {};
}

Status Communicator::deregister_memory(void* handle) {
  drain();
  if (device_) return device_->deregister_memory(handle);
  const auto found = std::find_if(registrations_.begin(), registrations_.end(),
                                  [&](const Registration& r) { return r.begin == handle; });
  if (found == registrations_.end()) {
    return error(Code::kInvalidArgument, "handle: not registered on this communicator");
  }
  for (const auto& [transport, id] : found->ids) transport->deregister_memory(id);
  registrations_.erase(found);
  return {};
}

Result<uint32_t> Communicator::create_premul_sum(const void* scalar, double value, DataType type) {
  const uint32_t handle = kFirstCreatedOp + static_cast<uint32_t>(created_ops_.size());
  if (device_) TRY(device_->create_op(handle, scalar, type));
  created_ops_.push_back({value, type, true});
  return handle;
}

Status Communicator::op_scalar(uint32_t handle, DataType type, double* scalar) const {
  const size_t index = handle - kFirstCreatedOp;
  if (handle < kFirstCreatedOp || index >= created_ops_.size() || !created_ops_[index].live) {
    return error(Code::kInvalidArgument, "op: {} is no operation of this communicator", handle);
  }
  if (created_ops_[index].type != type) {
    return error(Code::kInvalidArgument, "op: made for {}, the call has type {}",
                 type_name(created_ops_[index].type), type_name(type));
  }
  *scalar = created_ops_[index].scalar;
  return {};
}

Status Communicator::destroy_op(uint32_t handle) {
  const size_t index = handle - kFirstCreatedOp;
  if (handle < kFirstCreatedOp || index >= created_ops_.size() || !created_ops_[index].live) {
    return error(Code::kInvalidArgument, "op: {} is no created operation of this communicator",
                 handle);
  }
  created_ops_[index].live = false;
  return device_ ? device_->destroy_op(handle) : ok_status();
}

size_t Communicator::memory_bytes() const {
  size_t bytes = sizeof *this;
  for (const auto& transport : transports_) bytes += transport->memory_bytes();
  return bytes;
}

std::string Communicator::transports_in_use() const {
  std::string text;
  for (const auto& transport : transports_) {
    const bool used = std::any_of(links_.begin(), links_.end(), [&](const PairLink& link) {
      return link.transport == transport.get();
    });
    if (!used || (transport == transports_.front() && ranks() > 1)) continue;
    if (!text.empty()) text += ',';
    text += transport->caps().name;
  }
  return text;
}

const char* Communicator::last_algorithm() const {
  return last_algorithm_.load(std::memory_order_relaxed);
}

Status Communicator::finish_device() {
  return device_ ? device_->finish() : ok_status();
}

void Communicator::drain() {
  if (device_) device_->settle();
  if (done_.load(std::memory_order_acquire) == issued_) return;
  wait_for_turn(*this, issued_);
}

}  // namespace unisono
