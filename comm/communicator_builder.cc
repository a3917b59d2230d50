#include "comm/communicator_builder.h"

#include <sched.h>
#include <sys/utsname.h>

#include <map>
#include <thread>

#include "base/bytes.h"
#include "base/config.h"
#include "base/log.h"
#include "base/net/endpoint_address.h"
#include "comm/collective_operation.h"
#include "comm/reach.h"
#include "comm/reduce/kernels.h"

namespace unisono {
namespace {

constexpr uint32_t kProtocol =
    3;  // of payloads, handshakes and frames together: ranks must be equal
constexpr int64_t kLookNs = 1'000'000'000;
constexpr size_t kMaxTransports = 16;
constexpr size_t kMaxPlanProblem = 1024;

// For messages only: nothing is decided by a host's name.
std::string host_label() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "unknown-host";
}

// Of whose cores ranks share: tells machines apart that have one name, as "localhost". Simulated
// ranks have no address.
std::string machine_key(const std::string& name, const std::string& endpoint_address) {
  const auto address = net::decode_address(endpoint_address);
  return address.ok() ? fmt::format("{} {:x}", name, address->identity.network) : name;
}

// Of who may share memory, for plans: UNISONO_HOSTID makes several of one machine.
std::string host_key(const std::string& name, const std::string& endpoint_address) {
  const auto address = net::decode_address(endpoint_address);
  return address.ok() ? fmt::format("{:x} {:x}", address->identity.network, address->identity.host)
                      : name;
}

// The cores that this process may run on, a bit each. A pinned rank has one; what counts is how
// many all ranks of a host have together.
std::string core_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  return std::string(reinterpret_cast<const char*>(&set), sizeof set);
}

uint32_t count_bits(const std::string& mask) {
  uint32_t bits = 0;
  for (const char c : mask) {
    bits += static_cast<uint32_t>(__builtin_popcount(static_cast<unsigned char>(c)));
  }
  return bits;
}

std::string plan_words(uint64_t hash) {
  return hash == 0 ? "no plan" : fmt::format("plan {:016x}", hash);
}

void add_bits(std::string* mask, const std::string& more) {
  mask->resize(std::max(mask->size(), more.size()));
  for (size_t i = 0; i < more.size(); i++) {
    (*mask)[i] = static_cast<char>((*mask)[i] | more[i]);
  }
}

}  // namespace

CommunicatorBuilder::CommunicatorBuilder(const Settings& settings, int32_t ranks, int32_t rank,
                                         std::string how, int64_t deadline_ns,
                                         std::shared_ptr<World> world)
    : comm_(new Communicator), how_(std::move(how)), deadline_ns_(deadline_ns) {
  comm_->settings_ = settings;
  comm_->timeout_ms_ = settings.timeout_ms;
  comm_->rank_ = rank;
  comm_->agreement_.ranks = ranks;
  comm_->world_ = std::move(world);
  comm_->env_ = comm_->world_ ? &comm_->world_->env() : &real_env();
  comm_->waiter_ = comm_->env_->make_waiter();
  comm_->links_.resize(static_cast<size_t>(ranks));
  comm_->pair_sent_.resize(static_cast<size_t>(ranks));
  comm_->pair_received_.resize(static_cast<size_t>(ranks));
}

// A file that is not usable is said to all ranks, so that none waits for this one: join() fails on
// each.
void CommunicatorBuilder::load_plan() {
  Communicator& c = *comm_;
  if (c.settings_.plan_file.empty()) return;
  auto loaded = load_plan_file(c.settings_.plan_file, c.rank_, c.ranks());
  if (loaded.ok()) {
    c.plan_file_ = std::move(*loaded);
  } else {
    plan_problem_ = loaded.status().message().substr(0, kMaxPlanProblem);
  }
}

Status CommunicatorBuilder::check_plan() const {
  const Communicator& c = *comm_;
  if (!c.plan_file_) return {};
  const Plan& plan = c.plan_file_->plan;
  TRY(c.plan_file_->check(c.agreement_));
  log_info("{}: {} {}; is for {} of {} ranks{}", c.settings_.name, kPlanFileVariable,
           c.settings_.plan_file, collective_name(plan.collective), plan.ranks,
           plan.ranks == c.ranks() ? "" : ": not used here");
  return {};
}

Status CommunicatorBuilder::prepare(const IdContents* id) {
  Communicator& c = *comm_;
  load_plan();
  find_device();
  if (id != nullptr) {
    TRY_ASSIGN(c.loop_, net::shared_event_loop());
    net::EndpointOptions options;
    options.rank = c.rank_;
    options.secret = id->secret;
    options.job = id->job;
    options.interfaces = environment().interfaces;
    TRY_ASSIGN(c.endpoint_, net::Endpoint::create(*c.loop_, options));
  }
  TransportContext context;
  context.env = c.env_;
  context.waiter = c.waiter_.get();
  context.endpoint = c.endpoint_.get();
  context.rank = c.rank_;
  context.ranks = c.ranks();
  context.world = c.world_;
  TRY_ASSIGN(std::unique_ptr<Transport> self, find_transport("self")->create(context));
  c.transports_.push_back(std::move(self));
  c.links_[static_cast<size_t>(c.rank_)].transport = c.transports_.front().get();
  if (c.ranks() == 1) return {};
  std::string reasons;
  for (const TransportChoice& choice : c.settings_.transports) {
    const TransportEntry* entry = find_transport(choice.name);
    std::string detail;
    if (Status status = entry->available(&detail); !status.ok()) {
      log_info("transport {} is not available: {}", choice.name, status.message());
      reasons +=
          fmt::format("{}{}: {}", reasons.empty() ? " (" : "; ", choice.name, status.message());
      continue;
    }
    context.options = choice.options;
    TRY_ASSIGN(std::unique_ptr<Transport> transport, entry->create(context));
    c.transports_.push_back(std::move(transport));
  }
  if (c.transports_.size() == 1) {
    if (!reasons.empty()) reasons += ")";
    return error(Code::kInvalidArgument, "transports: none of '{}' is available here{}",
                 c.settings_.transports_text(), reasons);
  }
  return {};
}

std::string CommunicatorBuilder::payload() const {
  const Communicator& c = *comm_;
  ByteWriter out;
  out.put(kProtocol);
  out.put_string(host_label());
  out.put_string(c.endpoint_ ? c.endpoint_->address() : "");
  out.put_string(c.settings_.algorithm);
  out.put(static_cast<uint32_t>(usable_cores()));
  out.put_string(core_mask());
  out.put(static_cast<uint8_t>(c.settings_.reproducible));
  out.put(c.settings_.slice_bytes);
  out.put(c.plan_file_ ? c.plan_file_->hash : uint64_t{0});
  out.put_string(plan_problem_);
  out.put_string(c.settings_.device);
  out.put_string(device_problem_);
  out.put(runtime_ == nullptr ? int32_t{0} : runtime_->version());
  out.put(static_cast<uint32_t>(c.transports_.size() - 1));
  for (size_t i = 1; i < c.transports_.size(); i++) {
    out.put_string(c.transports_[i]->caps().name);
    out.put_string(c.transports_[i]->address());
  }
  return out.take();
}

Result<CommunicatorBuilder::RankEntry> CommunicatorBuilder::parse_entry(const std::string& payload,
                                                                        int32_t rank) const {
  const Status bad = error(Code::kRemoteError, "rank {}: its start-up message is malformed", rank);
  ByteReader in(payload);
  RankEntry entry;
  const auto protocol = in.get<uint32_t>();
  if (!in.ok()) return bad;
  if (protocol != kProtocol) {
    return error(Code::kRemoteError,
                 "rank {} speaks protocol {}, this one {}: mixed library versions?", rank, protocol,
                 kProtocol);
  }
  entry.host = in.get_string(256);
  entry.endpoint_address = in.get_string(net::kMaxAddressBytes);
  entry.algorithm = in.get_string(64);
  entry.cores = in.get<uint32_t>();
  entry.core_mask = in.get_string(sizeof(cpu_set_t));
  entry.reproducible = in.get<uint8_t>();
  entry.slice_bytes = in.get<decltype(entry.slice_bytes)>();
  entry.plan_hash = in.get<uint64_t>();
  entry.plan_problem = in.get_string(kMaxPlanProblem);
  entry.device = in.get_string(32);
  entry.device_problem = in.get_string(kMaxPlanProblem);
  entry.device_version = in.get<int32_t>();
  const auto transports = in.get<uint32_t>();
  if (transports > kMaxTransports) return bad;
  for (uint32_t i = 0; i < transports; i++) {
    const std::string_view name = in.get_string(32), address = in.get_string(4096);
    entry.transports.emplace_back(name, address);
  }
  if (!in.done()) return bad;
  return entry;
}

Status CommunicatorBuilder::check_agreement(const std::vector<RankEntry>& entries) const {
  for (size_t r = 0; r < entries.size(); r++) {
    if (entries[r].plan_problem.empty()) continue;
    return error(Code::kInvalidArgument, "{} (on rank {})", entries[r].plan_problem, r);
  }
  for (size_t r = 1; r < entries.size(); r++) {
    const RankEntry &zero = entries[0], &entry = entries[r];
    if (entry.plan_hash != zero.plan_hash) {
      return error(Code::kInvalidArgument,
                   "{}: rank {} has {}, rank 0 {}: all ranks must have the same", kPlanFileVariable,
                   r, plan_words(entry.plan_hash), plan_words(zero.plan_hash));
    }
    if (entry.algorithm != zero.algorithm) {
      return error(Code::kInvalidArgument, "algorithm: rank {} wants '{}', rank 0 '{}'", r,
                   entry.algorithm, zero.algorithm);
    }
    if (entry.reproducible != zero.reproducible) {
      return error(Code::kInvalidArgument, "reproducible: rank {} wants {}, rank 0 {}", r,
                   entry.reproducible, zero.reproducible);
    }
    if (entry.slice_bytes != zero.slice_bytes) {
      return error(Code::kInvalidArgument, "UNISONO_SLICE_BYTES: rank {} has {}, rank 0 {}", r,
                   entry.slice_bytes, zero.slice_bytes);
    }
  }
  return check_devices(entries);
}

void CommunicatorBuilder::count_hosts(const std::vector<RankEntry>& entries) {
  // Good enough here: it decides how soon to yield and which costs are assumed, not who shares
  // memory.
  struct Host {
    uint32_t ranks = 0, quota = UINT32_MAX;
    std::string cores;
    bool oversubscribed() const { return ranks > std::min(count_bits(cores), quota); }
  };
  std::map<std::string, Host> hosts;
  for (const RankEntry& entry : entries) {
    Host& host = hosts[machine_key(entry.host, entry.endpoint_address)];
    host.ranks++;
    add_bits(&host.cores, entry.core_mask);
    // Fewer than its affinity allows: a quota, which all share.
    if (entry.cores < count_bits(entry.core_mask)) host.quota = std::min(host.quota, entry.cores);
    comm_->hosts_.push_back(entry.host);
  }
  std::map<std::string, int32_t> numbers;
  for (const RankEntry& entry : entries) {
    const auto next = static_cast<int32_t>(numbers.size());
    comm_->agreement_.hosts.push_back(
        numbers.try_emplace(host_key(entry.host, entry.endpoint_address), next).first->second);
  }
  if (numbers.size() == 1) comm_->agreement_.hosts.clear();
  for (const auto& [name, host] : hosts) oversubscribed_ = oversubscribed_ || host.oversubscribed();
  const RankEntry& mine = entries[static_cast<size_t>(comm_->rank_)];
  const Host& here = hosts[machine_key(mine.host, mine.endpoint_address)];
  // Pinned ranks that have a core each are as good as one rank that has one.
  if (!comm_->world_) set_local_ranks(here.oversubscribed() ? static_cast<int>(here.ranks) : 1);
}

Status CommunicatorBuilder::connect_transports(const std::vector<RankEntry>& entries) {
  Communicator& c = *comm_;
  // Rank 0's order, of those that every rank has.
  std::vector<std::unique_ptr<Transport>> kept;
  kept.push_back(std::move(c.transports_.front()));
  for (const auto& [name, ignored] : entries[0].transports) {
    std::vector<std::string> addresses;
    for (const RankEntry& entry : entries) {
      for (const auto& [other, address] : entry.transports) {
        if (other == name) addresses.push_back(address);
      }
    }
    const auto mine = std::find_if(c.transports_.begin() + 1, c.transports_.end(),
                                   [&, n = name](auto& t) { return t && n == t->caps().name; });
    if (addresses.size() != entries.size() || mine == c.transports_.end()) {
      log_info("transport {} is not used: not every rank has it", name);
      continue;
    }
    TRY((*mine)->connect(addresses));
    kept.push_back(std::move(*mine));
  }
  std::swap(c.transports_, kept);
  for (auto& unused : kept) {
    if (unused) unused->close();
  }
  if (c.transports_.size() > 1) return {};
  return error(Code::kInvalidArgument, "transports: there is none that every rank has");
}

Status CommunicatorBuilder::connect_control() {
  Communicator& c = *comm_;
  ControlOptions options;
  options.rank = c.rank_;
  options.ranks = c.ranks();
  options.env = c.env_;
  options.hosts = c.hosts_;
  options.recorder = [comm = &c](uint64_t sequence) { return comm->recorder_.find(sequence); };
  options.latest = [comm = &c]() -> std::optional<CallRecord> {
    const uint64_t sequence = comm->sequence();
    auto record = comm->recorder_.find(sequence);
    return record ? record : comm->recorder_.find(sequence - 1);  // perhaps it is being written
  };
  options.left = [comm = &c] { comm->notify_all(); };
  options.failed = [comm = &c] {
    comm->failed_.store(true, std::memory_order_release);
    comm->notify_all();
  };
  std::unique_ptr<MessageLinks> links =
      c.world_ ? c.world_->make_links(c.rank_) : make_socket_links(*c.endpoint_, c.rank_);
  TRY_ASSIGN(c.control_, Control::create(std::move(links), std::move(options), deadline_ns_));
  // The others wait for links that this rank cannot make or take.
  if (c.endpoint_) {
    c.endpoint_->on_shortage([comm = &c](const Status& status) { comm->fail(status); });
  }
  return {};
}

Status CommunicatorBuilder::join(const std::vector<std::string>& payloads) {
  Communicator& c = *comm_;
  if (c.ranks() == 1) {
    c.hosts_.push_back(host_label());
    if (!plan_problem_.empty()) return error(Code::kInvalidArgument, "{}", plan_problem_);
    if (!device_problem_.empty()) return error(Code::kInvalidArgument, "{}", device_problem_);
    return {};
  }
  std::vector<RankEntry> entries;
  for (size_t r = 0; r < payloads.size(); r++) {
    TRY_ASSIGN(RankEntry entry, parse_entry(payloads[r], static_cast<int32_t>(r)));
    entries.push_back(std::move(entry));
  }
  TRY(check_agreement(entries));
  count_hosts(entries);
  if (c.endpoint_) {
    for (size_t r = 0; r < entries.size(); r++) {
      if (static_cast<int32_t>(r) == c.rank_) continue;
      TRY(c.endpoint_->set_peer(static_cast<int32_t>(r), entries[r].endpoint_address));
    }
  }
  TRY(connect_transports(entries));
  TRY(connect_control());
  return wait_ready();
}

Status CommunicatorBuilder::wait_ready() {
  Communicator& c = *comm_;
  for (;;) {
    bool ready = true;
    for (auto& transport : c.transports_) {
      transport->progress();
      ready = ready && transport->ready();
    }
    if (ready) return {};
    if (c.failed()) return c.status();
    if (c.env_->now_ns() > deadline_ns_) {
      return error(Code::kTimeout, "start-up: links of shared memory are not settled in time");
    }
    Waiter* const waiters[] = {c.waiter_.get()};
    // Transports give up on links by the clock, which progress() looks at.
    if (!c.arm()) {
      c.env_->wait(waiters, std::min(deadline_ns_, c.env_->now_ns() + kLookNs));
    }
    c.disarm();
  }
}

Status CommunicatorBuilder::send_reach() {
  Communicator& c = *comm_;
  if (c.ranks() == 1 || c.rank_ == 0) return {};
  c.control_->post(0, "reach", encode_reach(reach_row(c.transports_, c.rank_, c.ranks())));
  return {};
}

Status CommunicatorBuilder::judge() {
  Communicator& c = *comm_;
  if (c.ranks() == 1 || c.rank_ != 0) return {};
  std::vector<ReachRow> rows(static_cast<size_t>(c.ranks()));
  rows[0] = reach_row(c.transports_, 0, c.ranks());
  for (int32_t r = 1; r < c.ranks(); r++) {
    TRY_ASSIGN(const std::string bytes, c.control_->await(r, "reach", deadline_ns_));
    TRY_ASSIGN(rows[static_cast<size_t>(r)],
               decode_reach(bytes, c.transports_.size(), c.ranks(), r));
  }
  auto judged = judge_reach(rows, c.transports_, c.settings_.slice_bytes);
  if (!judged.ok()) {
    c.fail(judged.status());  // or the others would hear only that rank 0 has left
    return judged.status();
  }
  const Verdict& verdict = *judged;
  for (int32_t r = 1; r < c.ranks(); r++) {
    c.control_->post(r, "links", encode_verdict(verdict, r, oversubscribed_));
  }
  finish_links(encode_verdict(verdict, 0, oversubscribed_));
  return {};
}

Status CommunicatorBuilder::receive_links() {
  Communicator& c = *comm_;
  if (c.ranks() == 1) {
    TRY(check_plan());
    say_hello();
    return {};
  }
  if (c.rank_ != 0) {
    TRY_ASSIGN(const std::string bytes, c.control_->await(0, "links", deadline_ns_));
    finish_links(bytes);
  }
  if (c.failed()) return c.status();
  TRY(check_plan());
  say_hello();
  return {};
}

void CommunicatorBuilder::finish_links(const std::string& bytes) {
  Communicator& c = *comm_;
  LinkChoice choice;
  if (!decode_verdict(bytes, c.transports_.size(), c.ranks(), &choice)) {
    c.fail(error(Code::kRemoteError, "rank 0's verdict on links is malformed"));
    return;
  }
  Agreement& a = c.agreement_;
  a.cheap_poll = c.ranks() > 1;
  for (int32_t peer = 0; peer < c.ranks(); peer++) {
    if (peer == c.rank_) continue;
    const auto index = static_cast<size_t>(peer);
    c.links_[index].transport = c.transports_[choice.transport_of[index]].get();
    a.cheap_poll = a.cheap_poll && c.links_[index].transport->caps().cheap_poll;
    c.local_ranks_ += c.links_[index].transport->caps().same_memory;
  }
  a.multicast = choice.multicast != 0;
  c.multicast_ = a.multicast ? c.transports_[choice.multicast].get() : nullptr;
  a.same_memory = c.multicast_ != nullptr && c.multicast_->caps().same_memory;
  a.cheap_poll = a.cheap_poll || a.same_memory;
  a.reproducible = c.settings_.reproducible;
  a.algorithm = c.settings_.algorithm;
  a.oversubscribed = choice.oversubscribed;
  a.slice_bytes = choice.slice_bytes;
  a.slots = choice.slots;
  a.latency_us = choice.latency_us;
  a.gigabytes_per_s = choice.gigabytes_per_s;
}

void CommunicatorBuilder::say_hello() const {
  const Communicator& c = *comm_;
  std::map<std::string, int> peers;
  for (int32_t peer = 0; peer < c.ranks(); peer++) {
    if (peer == c.rank_) continue;
    peers[c.links_[static_cast<size_t>(peer)].transport->caps().name]++;
  }
  std::string over;
  for (const auto& [name, count] : peers) over += fmt::format(", {} with {}", name, count);
  log_info("{}: rank {} of {} on {}; met by {}{}; kernels {}; {}{}", c.settings_.name, c.rank_,
           c.ranks(), c.hosts_[static_cast<size_t>(c.rank_)], how_, over, kernel_target(),
           c.agreement_.algorithm.empty() ? "algorithm by cost"
                                          : "algorithm forced: " + c.agreement_.algorithm,
           oversubscribed_ ? "; more ranks than cores: yields early" : "");
}

Result<std::unique_ptr<Communicator>> create_communicator(
    const Settings& settings, const Place& place, std::unique_ptr<CollectiveProvider> provider) {
  const int64_t now = real_env().now_ns();
  const int64_t deadline_ns = settings.timeout_ms > (kNeverNs - now) / 1'000'000
                                  ? kNeverNs
                                  : now + settings.timeout_ms * 1'000'000;
  CommunicatorBuilder builder(settings, place.ranks, place.rank, place.how, deadline_ns, nullptr);
  std::vector<std::string> payloads;
  if (place.ranks > 1) {
    TRY_ASSIGN(const IdContents contents, read_unique_id(place.id));
    TRY(builder.prepare(&contents));
    TRY_ASSIGN(payloads,
               exchange(place.id, place.ranks, place.rank, builder.payload(), deadline_ns));
  } else {
    TRY(builder.prepare(nullptr));
  }
  TRY(builder.join(payloads));
  TRY(builder.send_reach());
  TRY(builder.judge());
  TRY(builder.receive_links());
  TRY(builder.connect_device(std::move(provider)));
  return builder.finish();
}

namespace {

Result<std::vector<std::unique_ptr<Communicator>>> create_world(const Settings& settings,
                                                                int32_t ranks,
                                                                const TransportEntry& entry) {
  if (!settings.device.empty()) {
    return error(Code::kInvalidArgument, "config.device: a simulated world has no {}",
                 settings.device);
  }
  TRY_ASSIGN(std::shared_ptr<World> world,
             entry.make_world(settings.transports.front().options, ranks));
  std::vector<CommunicatorBuilder> builders;
  std::vector<std::string> payloads;
  const int64_t deadline_ns = world->env().now_ns() + 60'000'000'000;
  for (int32_t r = 0; r < ranks; r++) {
    builders.emplace_back(settings, ranks, r, entry.name, deadline_ns, world);
    TRY(builders.back().prepare(nullptr));
    payloads.push_back(builders.back().payload());
  }
  for (CommunicatorBuilder& builder : builders) TRY(builder.join(payloads));
  for (CommunicatorBuilder& builder : builders) TRY(builder.send_reach());
  TRY(builders.front().judge());
  std::vector<std::unique_ptr<Communicator>> all;
  for (CommunicatorBuilder& builder : builders) {
    TRY(builder.receive_links());
    all.push_back(builder.finish());
  }
  return all;
}

}  // namespace

Result<std::vector<std::unique_ptr<Communicator>>> create_all(const Settings& settings,
                                                              int32_t ranks) {
  const TransportEntry* first = find_transport(settings.transports.front().name);
  if (first->make_world != nullptr) return create_world(settings, ranks, *first);
  Place place;
  place.ranks = ranks;
  place.how = "one process";
  if (ranks > 1) {
    TRY_ASSIGN(place.id, create_unique_id());
  }
  const auto count = static_cast<size_t>(ranks);
  std::vector<std::unique_ptr<Communicator>> all(count);
  std::vector<Status> statuses(count);
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < ranks; r++) {
    threads.emplace_back([&, r] {
      Place mine = place;
      mine.rank = r;
      Settings own = settings;
      if (own.device_index < 0) own.device_index = r;  // as ncclCommInitAll: a device a rank
      auto made = create_communicator(own, mine);
      if (made.ok()) {
        all[static_cast<size_t>(r)] = std::move(*made);
      } else {
        statuses[static_cast<size_t>(r)] = made.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) TRY(status);
  return all;
}

}  // namespace unisono
