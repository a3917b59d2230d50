// The rendezvous server: one set of listeners for all the ids of a process, on the event loop.
//
// The first message of a connection names the job, so that ids share listeners: ten thousand unused
// ids cost memory, not descriptors. State is touched on the loop's thread only; `setup_mutex_`
// orders those who add and clear away.
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "base/bytes.h"
#include "base/config.h"
#include "base/env.h"
#include "base/log.h"
#include "base/net/event_loop.h"
#include "comm/bootstrap/meeting.h"
#include "comm/bootstrap/rendezvous.h"

namespace unisono::bootstrap {
namespace {

constexpr size_t kMaxUnusedIds = 10'000;
constexpr size_t kMaxUnproven = 1024;  // connections that have not proved themselves yet
constexpr int64_t kProveWithinNs = 10'000'000'000;
constexpr int64_t kAnswerWithinNs = 60'000'000'000;  // for a client that does not read its answer
constexpr int64_t kSweepNs = 250'000'000;

struct Job {
  IdFields id;
  ServeOptions options;
  std::string handout_id;  // the 128 bytes as they are handed out
  Meeting meeting;
  int64_t over_ns = 0;                      // when complete or failed; 0 before
  bool announced = false;                   // everybody has its answer
  std::vector<net::EventLoop::Id> watches;  // of its own listeners
  std::vector<net::Fd> listeners;
  uint64_t serial = 0;
  bool used = false;
};

struct Connection {
  enum class State { kOpening, kNonce, kHandshake, kFrames, kDraining };
  net::Fd fd;
  net::EventLoop::Id watch = 0;
  State state = State::kOpening;
  bool unix_peer = false;
  uint64_t listener_job = 0;  // whose hand-out this listener is; 0: the shared ones
  uint64_t job = 0;
  int32_t rank = -1;
  bool registered = false;
  int64_t since_ns = 0;
  bool knows_secret = false;  // of a hand-out
  std::optional<net::Handshake> handshake;
  std::string in;
  std::deque<std::shared_ptr<const std::string>> out;
  size_t offset = 0;
  std::string told_missing;
};

bool same_uid(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

class Hub {
 public:
  static Hub& instance() {
    static Hub* const kHub = new Hub;  // leaked: the loop may run while the process exits
    return *kHub;
  }

  Result<UniqueId> add(ServeOptions options);
  void withdraw(uint64_t job);
  void finish(uint64_t job, int64_t deadline_ns);
  size_t live() { return live_.load(); }

 private:
  Status open_listeners();
  Status listen_at(const net::Address& address, uint64_t job, std::vector<net::Fd>& fds,
                   std::vector<net::EventLoop::Id>& watches);
  Result<UniqueId> add_on_loop(ServeOptions options);
  void forget_oldest_unused();
  void clear_away();  // setup_mutex_ held, not on the loop

  void accept_from(int listener, uint64_t job);
  void on_event(uint64_t key, uint32_t events);
  // False: the connection is to be dropped.
  bool read_some(Connection& connection);
  bool consume(uint64_t key, Connection& connection);
  bool on_opening(Connection& connection, std::string_view opening);
  bool on_handout(Connection& connection, std::string_view client_nonce);
  bool on_handshake(Connection& connection, std::string_view bytes);
  bool on_frame(uint64_t key, Connection& connection, uint8_t type, std::string_view body);
  void on_register(uint64_t key, Connection& connection, int32_t ranks, int32_t rank,
                   std::string payload);
  void send(Connection& connection, std::shared_ptr<const std::string> bytes);
  bool flush(Connection& connection);
  void answer_all(Job& job);
  void drop(uint64_t key, std::string_view why);
  void close_handout(Job& job);
  void settle(Job& job);  // announces a job that is over once nobody waits for its answer
  void sweep();
  void arm_sweep();

  std::mutex setup_mutex_;
  std::shared_ptr<net::EventLoop> loop_;  // under setup_mutex_; the loop itself uses loop_raw_
  net::EventLoop* loop_raw_ = nullptr;
  std::vector<net::Fd> listeners_;
  std::vector<net::EventLoop::Id> watches_;
  std::vector<net::Address> addresses_;
  uint64_t unix_number_ = 0;
  net::EventLoop::Id sweep_timer_ = 0;
  std::map<uint64_t, Job> jobs_;
  std::map<uint64_t, Connection> connections_;
  uint64_t next_key_ = 1, next_serial_ = 1;
  size_t unproven_ = 0;

  std::atomic<size_t> live_{0};
  std::mutex finished_mutex_;
  std::condition_variable finished_;
  uint64_t finished_count_ = 0;
};

// ---- Setting up and clearing away ----

Status Hub::listen_at(const net::Address& address, uint64_t job, std::vector<net::Fd>& fds,
                      std::vector<net::EventLoop::Id>& watches) {
  TRY_ASSIGN(net::Fd fd, net::listen_on(address));
  const int raw = fd.get();
  TRY_ASSIGN(
      const net::EventLoop::Id watch,
      loop_raw_->add_fd(raw, EPOLLIN, [this, raw, job](uint32_t) { accept_from(raw, job); }));
  fds.push_back(std::move(fd));
  watches.push_back(watch);
  return ok_status();
}

Status Hub::open_listeners() {
  if (!listeners_.empty()) return ok_status();
  addresses_.clear();
  fill_random(&unix_number_, sizeof(unix_number_));
  IdFields fields;
  fields.unix_number = unix_number_;
  Status first = listen_at(net::unix_address(unix_name(fields)), 0, listeners_, watches_);
  auto usable = net::local_addresses(environment().interfaces);
  // An interface named by the user that does not exist is an error; a machine without any network
  // is not.
  if (!usable.ok() && !environment().interfaces.empty()) return usable.status();
  if (usable.ok()) {
    for (const net::Address& address : choose_addresses(*usable)) {
      const Status status = listen_at(address, 0, listeners_, watches_);
      if (!status.ok()) {
        log_info("rendezvous: not on {}: {}", address.text(), status.message());
        if (first.ok()) first = status;
        continue;
      }
      auto bound = net::bound_address(listeners_.back().get());
      if (bound.ok()) addresses_.push_back(*bound);
    }
  }
  if (listeners_.empty()) return first.annotate("the rendezvous can listen nowhere");
  return ok_status();
}

Result<UniqueId> Hub::add_on_loop(ServeOptions options) {
  TRY(open_listeners());
  if (jobs_.size() >= kMaxUnusedIds) forget_oldest_unused();
  Job job;
  fill_random(&job.id.job, sizeof(job.id.job));
  if (job.id.job == 0) job.id.job = 1;  // 0 means no job
  fill_random(job.id.secret.data(), job.id.secret.size());
  job.id.unix_number = unix_number_;
  job.serial = next_serial_++;
  Status nowhere;  // the first refusal
  for (const net::Address& address : options.handout) {
    const Status status = listen_at(address, job.id.job, job.listeners, job.watches);
    if (!status.ok()) {
      if (nowhere.ok()) nowhere = status;
      continue;
    }
    auto bound = net::bound_address(job.listeners.back().get());
    if (bound.ok() && bound->storage.ss_family != AF_UNIX &&
        job.id.addresses.size() < kMaxIdAddresses) {
      job.id.addresses.push_back(*bound);  // where the ranks surely look comes first
    }
  }
  if (job.listeners.empty() && !nowhere.ok()) return nowhere;
  for (const net::Address& address : addresses_) {
    if (job.id.addresses.size() < kMaxIdAddresses) job.id.addresses.push_back(address);
  }
  IdFields public_fields = job.id;
  if (options.job_key) {
    job.id.secret = derived_secret(*options.job_key, job.id.job);
    public_fields.secret = {};
  } else {
    public_fields.secret = job.id.secret;
  }
  const UniqueId handed = encode_id(public_fields);
  job.handout_id.assign(handed.bytes.data(), handed.bytes.size());
  job.options = std::move(options);
  const UniqueId id = encode_id(job.id);
  jobs_.emplace(job.id.job, std::move(job));
  live_.store(jobs_.size());
  arm_sweep();
  return id;
}

Result<UniqueId> Hub::add(ServeOptions options) {
  // Before the lock, which a thread of the parent may have held.
  if (net::is_forked_child()) {
    return error(Code::kInvalidUsage, "an id cannot be made in a forked child");
  }
  const std::lock_guard lock(setup_mutex_);
  if (loop_ == nullptr) {
    TRY_ASSIGN(loop_, net::shared_event_loop());
    loop_raw_ = loop_.get();
  }
  std::optional<Result<UniqueId>> id;
  loop_->run_sync([&] { id.emplace(add_on_loop(std::move(options))); });
  if (!id->ok()) clear_away();
  return std::move(*id);
}

void Hub::forget_oldest_unused() {
  auto oldest = jobs_.end();
  for (auto it = jobs_.begin(); it != jobs_.end(); ++it) {
    if (it->second.used) continue;
    if (oldest == jobs_.end() || it->second.serial < oldest->second.serial) oldest = it;
  }
  if (oldest == jobs_.end()) return;
  close_handout(oldest->second);
  jobs_.erase(oldest);
}

void Hub::clear_away() {
  if (loop_ == nullptr) return;
  bool idle = false;
  loop_->run_sync([&] {
    if (!jobs_.empty()) return;
    idle = true;
    if (sweep_timer_ != 0) loop_raw_->remove(sweep_timer_);
    sweep_timer_ = 0;
    for (const auto watch : watches_) loop_raw_->remove(watch);
    for (auto& [key, connection] : connections_) loop_raw_->remove(connection.watch);
    watches_.clear();
    connections_.clear();
    listeners_.clear();
    addresses_.clear();
    unproven_ = 0;
  });
  if (!idle) return;
  loop_raw_ = nullptr;
  loop_.reset();
}

void Hub::withdraw(uint64_t number) {
  if (net::is_forked_child()) return;
  const std::lock_guard lock(setup_mutex_);
  if (loop_ == nullptr) return;
  loop_->run_sync([&] {
    const auto found = jobs_.find(number);
    if (found == jobs_.end()) return;
    Job& job = found->second;
    if (!job.meeting.complete() && !job.meeting.failed()) {
      job.meeting.leave(0, "it was withdrawn");
      answer_all(job);
    }
    close_handout(job);
    jobs_.erase(found);
    live_.store(jobs_.size());
  });
  clear_away();
}

void Hub::finish(uint64_t number, int64_t deadline_ns) {
  if (net::is_forked_child()) return;
  for (;;) {
    bool present = false;
    uint64_t seen = 0;
    {
      const std::lock_guard setup(setup_mutex_);
      if (loop_ == nullptr) return;
      {
        const std::lock_guard lock(finished_mutex_);
        seen = finished_count_;
      }
      loop_->run_sync([&] {
        const auto found = jobs_.find(number);
        present = found != jobs_.end() && !found->second.announced;
        // A job that is over and announced stays for latecomers only while it failed.
        if (found != jobs_.end() && found->second.announced && found->second.meeting.complete()) {
          jobs_.erase(found);
          live_.store(jobs_.size());
        }
      });
      if (!present) {
        clear_away();
        return;
      }
    }
    const int64_t left_ns = deadline_ns - real_env().now_ns();
    if (left_ns <= 0) return;
    std::unique_lock lock(finished_mutex_);
    finished_.wait_for(lock, std::chrono::nanoseconds(std::min<int64_t>(left_ns, 1'000'000'000)),
                       [&] { return finished_count_ != seen; });
  }
}

// ---- Connections, on the loop ----

void Hub::accept_from(int listener, uint64_t job) {
  for (;;) {
    auto accepted = net::accept_from(listener);
    if (!accepted.ok()) return;
    arm_sweep();
    const int raw = accepted->get();
    Connection connection;
    connection.fd = std::move(*accepted);
    sockaddr_storage name{};
    socklen_t length = sizeof(name);
    (void)getsockname(raw, reinterpret_cast<sockaddr*>(&name), &length);
    connection.unix_peer = name.ss_family == AF_UNIX;
    connection.listener_job = job;
    connection.since_ns = real_env().now_ns();
    if (!connection.unix_peer) net::tune_tcp(raw);
    if (unproven_ >= kMaxUnproven) {
      for (const auto& [key, other] : connections_) {
        if (other.state == Connection::State::kFrames) continue;
        drop(key, "");  // the oldest: keys grow
        break;
      }
    }
    const uint64_t key = next_key_++;
    auto watch =
        loop_raw_->add_fd(raw, EPOLLIN, [this, key](uint32_t events) { on_event(key, events); });
    if (!watch.ok()) return;
    connection.watch = *watch;
    connections_.emplace(key, std::move(connection));
    ++unproven_;
  }
}

void Hub::on_event(uint64_t key, uint32_t events) {
  const auto found = connections_.find(key);
  if (found == connections_.end()) return;
  if ((events & EPOLLOUT) != 0 && !flush(found->second)) return drop(key, "");
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  const bool open = read_some(found->second);
  if (!consume(key, found->second)) return drop(key, "");
  // consume() may have dropped others, never this one.
  if (!open) drop(key, "");
}

bool Hub::read_some(Connection& connection) {
  char buffer[16384];
  for (;;) {
    // What may still come is bounded by the longest frame: read no further than one ahead.
    if (connection.in.size() > kMaxClientFrame + kFrameHeaderBytes) return true;
    const ssize_t got = recv(connection.fd.get(), buffer, sizeof(buffer), 0);
    if (got > 0) {
      if (connection.state != Connection::State::kDraining) connection.in.append(buffer, got);
      if (connection.state != Connection::State::kFrames) return true;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

// Works off what has come, one whole message after another.
bool Hub::consume(uint64_t key, Connection& connection) {
  using State = Connection::State;
  for (;;) {
    const std::string_view in = connection.in;
    size_t wanted = 0;
    uint8_t type = 0;
    switch (connection.state) {
      case State::kOpening:
        wanted = kOpeningBytes;
        break;
      case State::kNonce:
        wanted = kNonceBytes;
        break;
      case State::kHandshake:
        wanted = connection.handshake->wanted();
        break;
      case State::kFrames: {
        if (in.size() < kFrameHeaderBytes) return true;
        ByteReader header(in);
        wanted = kFrameHeaderBytes + header.get<uint32_t>();
        type = header.get<uint8_t>();
        if (wanted > kFrameHeaderBytes + kMaxClientFrame) return false;
        break;
      }
      case State::kDraining:
        connection.in.clear();
        return true;
    }
    if (in.size() < wanted) return true;
    const std::string message(in.substr(0, wanted));
    connection.in.erase(0, wanted);
    bool ok = false;
    switch (connection.state) {
      case State::kOpening:
        ok = on_opening(connection, message);
        break;
      case State::kNonce:
        ok = on_handout(connection, message);
        break;
      case State::kHandshake:
        ok = on_handshake(connection, message);
        break;
      case State::kFrames:
        ok = on_frame(key, connection, type, std::string_view(message).substr(kFrameHeaderBytes));
        break;
      case State::kDraining:
        break;
    }
    if (!ok) return false;
  }
}

bool Hub::on_opening(Connection& connection, std::string_view opening) {
  ByteReader reader(opening);
  const std::string_view magic = reader.get_bytes(kMagicBytes);
  const auto number = reader.get<uint64_t>();
  if (magic == kHandoutMagic) {
    const auto asked = jobs_.find(connection.listener_job);
    if (asked == jobs_.end() || number >> 1 != asked->second.options.tag) return false;
    connection.knows_secret = (number & 1) != 0;
    connection.state = Connection::State::kNonce;
    return true;
  }
  const auto found = jobs_.find(number);
  if (magic != kRendezvousMagic || found == jobs_.end()) return false;
  connection.job = number;
  connection.handshake = net::Handshake::accept(found->second.id.secret, number,
                                                handshake_fields(number).to, fresh_nonce());
  connection.state = Connection::State::kHandshake;
  return true;
}

bool Hub::on_handout(Connection& connection, std::string_view client_nonce) {
  const auto found = jobs_.find(connection.listener_job);
  if (found == jobs_.end()) return false;
  if (connection.unix_peer && !same_uid(connection.fd.get())) return false;
  const Job& job = found->second;
  net::Secret nonce;
  fill_random(nonce.data(), nonce.size());
  net::Secret proof{};
  std::string id = job.handout_id;
  HandoutStatus status = kPlain;
  if (connection.knows_secret != job.options.job_key.has_value()) {
    status = kRefused;
    id.assign(id.size(), '\0');
  } else if (connection.knows_secret) {
    status = kAuthenticated;
    proof = handout_proof(*job.options.job_key, client_nonce, as_text(nonce), id);
  }
  ByteWriter writer;
  writer.put(static_cast<uint8_t>(status));
  writer.put_bytes(as_text(nonce));
  writer.put_bytes(id);
  writer.put_bytes(as_text(proof));
  connection.state = Connection::State::kDraining;
  send(connection, std::make_shared<std::string>(writer.take()));
  return true;
}

bool Hub::on_handshake(Connection& connection, std::string_view bytes) {
  net::Handshake& handshake = *connection.handshake;
  (void)handshake.feed({reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()});
  if (handshake.state() == net::Handshake::State::kProved) handshake.confirm();
  if (handshake.state() == net::Handshake::State::kFailed) {
    log_info("rendezvous: a client failed to prove that it knows the id");
    return false;
  }
  const auto unsent = handshake.unsent();
  if (!unsent.empty()) {
    send(connection, std::make_shared<std::string>(reinterpret_cast<const char*>(unsent.data()),
                                                   unsent.size()));
    handshake.sent(unsent.size());
  }
  if (handshake.state() != net::Handshake::State::kDone) return true;
  if (handshake.fields().purpose != net::Purpose::kRendezvous) return false;
  connection.handshake.reset();
  connection.state = Connection::State::kFrames;
  --unproven_;
  return true;
}

bool Hub::on_frame(uint64_t key, Connection& connection, uint8_t type, std::string_view body) {
  ByteReader reader(body);
  if (type == kLeave) {
    const std::string why(reader.get_string(kMaxErrorText));
    const auto found = jobs_.find(connection.job);
    if (connection.registered && found != jobs_.end()) {
      connection.registered = false;
      found->second.meeting.leave(connection.rank, why);
      answer_all(found->second);
    }
    return false;
  }
  if (type != kRegister || connection.registered) return false;
  const auto ranks = reader.get<int32_t>();
  const auto rank = reader.get<int32_t>();
  std::string payload(reader.get_string(kMaxPayloadBytes));
  if (!reader.done()) return false;
  on_register(key, connection, ranks, rank, std::move(payload));
  return true;
}

void Hub::on_register(uint64_t, Connection& connection, int32_t ranks, int32_t rank,
                      std::string payload) {
  const auto found = jobs_.find(connection.job);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  job.used = true;
  const bool was_over = job.meeting.complete() || job.meeting.failed();
  const Status status = job.meeting.enter(ranks, rank, std::move(payload));
  connection.registered = true;
  connection.rank = rank;
  if (was_over) {
    ByteWriter writer;
    writer.put(static_cast<int32_t>(status.code()));
    writer.put_string(std::string_view(status.message()).substr(0, kMaxErrorText));
    send(connection, std::make_shared<std::string>(frame(kFailure, writer.take())));
    connection.since_ns = real_env().now_ns();
    return;
  }
  if (job.meeting.failed() || job.meeting.complete()) {
    answer_all(job);
    return;
  }
  connection.told_missing = job.meeting.missing();
  ByteWriter writer;
  writer.put_string(connection.told_missing);
  send(connection, std::make_shared<std::string>(frame(kMissing, writer.take())));
}

void Hub::answer_all(Job& job) {
  std::shared_ptr<const std::string> answer;
  if (job.meeting.failed()) {
    ByteWriter writer;
    writer.put(static_cast<int32_t>(job.meeting.failure().code()));
    writer.put_string(std::string_view(job.meeting.failure().message()).substr(0, kMaxErrorText));
    answer = std::make_shared<std::string>(frame(kFailure, writer.take()));
  } else {
    answer = job.meeting.table();
  }
  // Before anybody has the answer: whoever has it may start the next meeting at the same place.
  close_handout(job);
  job.over_ns = real_env().now_ns();
  for (auto& [key, connection] : connections_) {
    if (connection.job != job.id.job || !connection.registered) continue;
    connection.since_ns = job.over_ns;
    send(connection, answer);
  }
  settle(job);
}

void Hub::send(Connection& connection, std::shared_ptr<const std::string> bytes) {
  connection.out.push_back(std::move(bytes));
  // A broken connection is found by its next event.
  (void)flush(connection);
}

bool Hub::flush(Connection& connection) {
  while (!connection.out.empty()) {
    const std::string& bytes = *connection.out.front();
    const ssize_t sent = ::send(connection.fd.get(), bytes.data() + connection.offset,
                                bytes.size() - connection.offset, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      loop_raw_->modify_fd(connection.watch, EPOLLIN | EPOLLOUT);
      return true;
    }
    if (sent < 0) {
      connection.out.clear();
      loop_raw_->modify_fd(connection.watch, EPOLLIN);
      return false;
    }
    connection.offset += static_cast<size_t>(sent);
    if (connection.offset == bytes.size()) {
      connection.out.pop_front();
      connection.offset = 0;
    }
  }
  loop_raw_->modify_fd(connection.watch, EPOLLIN);
  return true;
}

void Hub::drop(uint64_t key, std::string_view why) {
  const auto found = connections_.find(key);
  if (found == connections_.end()) return;
  Connection connection = std::move(found->second);
  connections_.erase(found);
  loop_raw_->remove(connection.watch);
  if (connection.state != Connection::State::kFrames) --unproven_;
  const auto job = jobs_.find(connection.job);
  if (job == jobs_.end() || !connection.registered) return;
  const bool was_over = job->second.meeting.complete() || job->second.meeting.failed();
  job->second.meeting.leave(connection.rank, why);
  if (!was_over) {
    answer_all(job->second);
  } else {
    settle(job->second);
  }
}

void Hub::close_handout(Job& job) {
  for (const auto watch : job.watches) loop_raw_->remove(watch);
  job.watches.clear();
  job.listeners.clear();
  if (job.options.over) job.options.over();
  job.options.over = nullptr;
}

void Hub::settle(Job& job) {
  if (job.announced || (!job.meeting.complete() && !job.meeting.failed())) return;
  for (const auto& [key, connection] : connections_) {
    // A client closes when it has read its answer: only then is it surely there.
    if (connection.job == job.id.job && connection.registered) return;
  }
  job.announced = true;
  const std::lock_guard lock(finished_mutex_);
  ++finished_count_;
  finished_.notify_all();
}

void Hub::arm_sweep() {
  if (sweep_timer_ != 0) return;
  sweep_timer_ = loop_raw_->add_timer(real_env().now_ns() + kSweepNs, [this] {
    sweep_timer_ = 0;
    sweep();
  });
}

void Hub::sweep() {
  const int64_t now_ns = real_env().now_ns();
  std::vector<uint64_t> late;
  bool waiting = false;
  for (auto& [key, connection] : connections_) {
    const bool proven = connection.state == Connection::State::kFrames;
    const auto found = jobs_.find(connection.job);
    const bool over = found == jobs_.end() || found->second.over_ns != 0;
    if ((!proven && now_ns - connection.since_ns > kProveWithinNs) ||
        (proven && over && now_ns - connection.since_ns > kAnswerWithinNs)) {
      late.push_back(key);
      continue;
    }
    waiting = true;
    if (!proven || over || !connection.registered || !connection.out.empty()) continue;
    std::string missing = found->second.meeting.missing();
    if (missing == connection.told_missing) continue;
    connection.told_missing = missing;
    ByteWriter writer;
    writer.put_string(missing);
    send(connection, std::make_shared<std::string>(frame(kMissing, writer.take())));
  }
  for (const uint64_t key : late) drop(key, "it stopped answering");
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    const bool stale = it->second.announced && now_ns - it->second.over_ns > kAnswerWithinNs;
    waiting |= it->second.over_ns != 0;
    it = stale ? jobs_.erase(it) : std::next(it);
  }
  live_.store(jobs_.size());
  // Unused ids alone need no clock; the first connection finds it running again.
  if (waiting) arm_sweep();
}

}  // namespace

Result<UniqueId> serve_meeting(ServeOptions options) {
  return Hub::instance().add(std::move(options));
}

void withdraw_meeting(const UniqueId& id) {
  auto fields = decode_id(id);
  if (fields.ok()) Hub::instance().withdraw(fields->job);
}

void finish_locally(uint64_t job, int64_t deadline_ns) {
  Hub::instance().finish(job, deadline_ns);
}

size_t live_meetings() {
  return Hub::instance().live();
}

}  // namespace unisono::bootstrap

namespace unisono {

Result<UniqueId> create_unique_id() {
  return bootstrap::serve_meeting({});
}

}  // namespace unisono
