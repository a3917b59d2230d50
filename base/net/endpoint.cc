// The endpoint of one rank: its listeners, the half-open links on them, and its dials. All of it
// lives on the loop's thread, in a Core that posted functions keep alive; the Endpoint that callers
// hold is a thin handle on it.
#include "base/net/endpoint.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/net/auth.h"
#include "base/net/dial.h"
#include "base/net/endpoint_address.h"
#include "base/net/handshake_link.h"

namespace unisono::net {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kHalfOpenNs = 5'000 * kMs;
constexpr int64_t kParkedNs = 600'000 * kMs;  // an authenticated rank may be minutes ahead of us
constexpr int64_t kOutOfDescriptorsNs = 100 * kMs;
// How long no descriptor may be had before that is an error; and longer than any pause between two
// tries, so that what lies further apart is not one shortage.
constexpr int64_t kShortageNs = 1'500 * kMs;
constexpr int64_t kBetweenTriesNs = 1'000 * kMs;
constexpr size_t kMaxHalfOpen = 256;
constexpr size_t kMaxParked = 64;  // of one purpose
constexpr int kAcceptsATurn = 16;  // then handshakes under way get theirs
constexpr size_t kPurposes = 6;

struct Listener {
  Fd fd;
  bool is_unix = false;
  EventLoop::Id watch = 0;
  EventLoop::Id pause = 0;
};

struct Parked {
  int32_t peer = 0;
  Fd fd;
  bool is_unix = false;
  EventLoop::Id timer = 0;
};

bool hung_up(const Fd& fd) {
  pollfd one{fd.get(), POLLRDHUP, 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0;
}

class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(EventLoop& loop, const EndpointOptions& options)
      : loop_(loop), secret_(options.secret), job_(options.job), rank_(options.rank) {}
  ~Core() { sodium_memzero(secret_.data(), secret_.size()); }

  // Before any other thread knows of it.
  Status listen(const EndpointOptions& options);
  const std::string& address() const { return address_; }
  EventLoop& loop() { return loop_; }

  // Any thread.
  Status set_peer(int32_t peer, std::string_view address);
  bool same_host_hint(int32_t peer) const;
  void dial(int32_t peer, Purpose purpose, Via via, int64_t deadline_ns, Endpoint::Dialled done);

  // The loop's thread.
  Status watch();
  void set_handler(Purpose purpose, Endpoint::Accepted handler);
  void stop_handler(Purpose purpose);
  void set_shortage_handler(std::function<void(const Status&)> handler);
  void shut_down();

 private:
  struct Service {
    std::shared_ptr<const Endpoint::Accepted> handler;
    bool stopped = false;
    std::deque<Parked> parked;
  };

  Status listen_tcp(const std::string& interfaces, EndpointAddress* published);
  void on_listener(size_t index);
  void pause_listener(size_t index);
  void short_of_descriptors(const Status& why);
  void finish_dials(const Status& status, bool control_too);
  std::vector<std::shared_ptr<Dial>> control_dials() const;
  void admit(Fd fd, bool is_unix);
  void half_open_changed(uint64_t number);
  bool wanted(Purpose purpose);
  bool has_room(Service* service);
  void deliver(int32_t peer, Purpose purpose, Fd fd, bool is_unix);
  void start_dials();
  void start_dial(uint64_t number);
  Service& service(Purpose purpose) { return services_[static_cast<size_t>(purpose)]; }

  EventLoop& loop_;
  Secret secret_;
  const uint64_t job_;
  const int32_t rank_;
  HostIdentity identity_;
  std::string address_;
  std::vector<Listener> listeners_;
  std::array<Service, kPurposes> services_;
  std::map<uint64_t, std::unique_ptr<HandshakeLink>> half_open_;  // oldest first
  uint64_t next_half_open_ = 1;
  Fd reserve_;  // given back when there is no other descriptor left
  int64_t short_since_ns_ = 0, last_short_ns_ = 0;
  Status shortage_;
  std::function<void(const Status&)> on_shortage_;

  struct Peer {
    std::string address;  // as given: a tenth of its decoded size, and most are never dialled
    uint64_t host = 0;
  };
  mutable std::mutex mutex_;  // guards what follows
  bool stopped_ = false;
  std::unordered_map<int32_t, Peer> peers_;
  std::map<uint64_t, std::shared_ptr<Dial>> dials_;  // started and waiting to be
  std::vector<uint64_t> new_dials_;
  uint64_t next_dial_ = 1;
};

Status Core::listen(const EndpointOptions& options) {
  identity_ = host_identity();
  EndpointAddress published;
  published.identity = identity_;
  uint64_t token = 0;
  randombytes_buf(&token, sizeof token);
  token |= 1;  // never 0, which says that there is none
  auto local = listen_on(unix_address(unix_name(token)));
  if (local.ok()) {
    published.unix_token = token;
    listeners_.push_back(Listener{std::move(*local), true, 0, 0});
  } else {
    log_warn("no unix socket: {}", local.status().message());
  }
  if (options.tcp) TRY(listen_tcp(options.interfaces, &published));
  if (listeners_.empty()) {
    TRY(check_descriptors());
    return error(Code::kSystemError, "rank {} can listen neither by TCP nor by unix socket", rank_);
  }
  reserve_ = Fd(::open("/", O_PATH | O_CLOEXEC));
  address_ = encode_address(published);
  return ok_status();
}

Status Core::listen_tcp(const std::string& interfaces, EndpointAddress* published) {
  TRY_ASSIGN(std::vector<Address> addresses, local_addresses(interfaces));
  bool routable = false;
  bool beyond_loopback = false;
  for (const Address& one : addresses) {
    beyond_loopback |= !is_loopback(one);
    routable |= !is_loopback(one) && !is_link_local(one);
  }
  // A link-local address costs a peer one probe an interface: only where nothing better is there.
  if (routable) std::erase_if(addresses, is_link_local);
  // All interfaces wanted: one listener a family. Else only what was asked for is bound, and never
  // more than loopback where there is nothing but loopback.
  const bool wildcard = interfaces.empty() && beyond_loopback;
  std::map<int, in_port_t> ports;  // of the wildcard listeners, by family
  Status last;
  for (Address address : addresses) {
    const int family = address.storage.ss_family;
    in_port_t& port = family == AF_INET
                          ? reinterpret_cast<sockaddr_in&>(address.storage).sin_port
                          : reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port;
    if (!wildcard || !ports.contains(family)) {
      Address where = address;
      if (wildcard) {
        where.storage = {};
        where.storage.ss_family = static_cast<sa_family_t>(family);
      }
      auto fd = listen_on(where);
      Result<Address> bound = fd.ok() ? bound_address(fd->get()) : Result<Address>(fd.status());
      if (!bound.ok()) {
        last = bound.status();
        continue;
      }
      ports[family] = family == AF_INET ? reinterpret_cast<sockaddr_in&>(bound->storage).sin_port
                                        : reinterpret_cast<sockaddr_in6&>(bound->storage).sin6_port;
      listeners_.push_back(Listener{std::move(*fd), false, 0, 0});
    }
    port = ports[family];
    published->tcp.push_back(address);
    if (published->tcp.size() == kMaxPublishedAddresses) break;
  }
  if (published->tcp.empty() && !last.ok()) log_warn("no TCP listener: {}", last.message());
  return ok_status();
}

Status Core::watch() {
  for (size_t i = 0; i < listeners_.size(); i++) {
    TRY_ASSIGN(listeners_[i].watch, loop_.add_fd(listeners_[i].fd.get(), EPOLLIN,
                                                 [this, i](uint32_t) { on_listener(i); }));
  }
  return ok_status();
}

void Core::on_listener(size_t index) {
  for (int i = 0; i < kAcceptsATurn; i++) {
    auto fd = accept_from(listeners_[index].fd.get());
    if (fd.ok()) {
      admit(std::move(*fd), listeners_[index].is_unix);
      continue;
    }
    if (fd.status().code() == Code::kInProgress) return;
    pause_listener(index);
    return short_of_descriptors(fd.status());
  }
}

// Out of descriptors or memory: the listener stays readable, so watching on would spin.
void Core::pause_listener(size_t index) {
  Listener& listener = listeners_[index];
  if (listener.pause != 0) return;
  loop_.modify_fd(listener.watch, 0);
  listener.pause = loop_.add_timer(monotonic_ns() + kOutOfDescriptorsNs, [this, index] {
    listeners_[index].pause = 0;
    loop_.modify_fd(listeners_[index].watch, EPOLLIN);
  });
}

void Core::short_of_descriptors(const Status& why) {
  const auto self = shared_from_this();  // callbacks may end the endpoint
  const int64_t now = monotonic_ns();
  if (now - std::exchange(last_short_ns_, now) > kBetweenTriesNs) short_since_ns_ = now;
  if (now - short_since_ns_ < kShortageNs || !shortage_.ok()) return;
  shortage_ = why.annotate("no link to another rank can be made");
  log_warn("rank {}: {}", rank_, shortage_.message());
  half_open_.clear();
  finish_dials(shortage_, false);
  reserve_.reset();
  // Before the listener takes the descriptor for somebody else.
  for (const auto& dial : control_dials()) dial->try_now();
  if (const auto handler = on_shortage_) handler(shortage_);
}

std::vector<std::shared_ptr<Dial>> Core::control_dials() const {
  std::vector<std::shared_ptr<Dial>> found;
  const std::lock_guard lock(mutex_);
  for (const auto& [number, dial] : dials_) {
    if (dial->purpose() == Purpose::kControl) found.push_back(dial);
  }
  return found;
}

void Core::set_shortage_handler(std::function<void(const Status&)> handler) {
  on_shortage_ = std::move(handler);
  if (const auto now = on_shortage_; now && !shortage_.ok()) now(shortage_);
}

void Core::admit(Fd fd, bool is_unix) {
  if (is_unix && !same_user(fd.get())) return;
  if (!is_unix) tune_tcp(fd.get());
  // Full: the one that has been silent longest goes. An honest handshake takes milliseconds, and an
  // honest dialler that was driven out tries again; strangers who hold their tongue cannot keep
  // anybody out.
  if (half_open_.size() >= kMaxHalfOpen) half_open_.erase(half_open_.begin());
  const uint64_t number = next_half_open_++;
  auto link = std::make_unique<HandshakeLink>(
      loop_, std::move(fd), is_unix, Handshake::accept(secret_, job_, rank_, fresh_nonce()),
      [this, number] { half_open_changed(number); });
  if (!link->start(false, monotonic_ns() + kHalfOpenNs).ok()) return;
  half_open_.emplace(number, std::move(link));
}

void Core::half_open_changed(uint64_t number) {
  const auto found = half_open_.find(number);
  HandshakeLink& link = *found->second;
  switch (link.state()) {
    case Handshake::State::kRunning:
      return;
    case Handshake::State::kFailed:
      log_debug("rank {} refused a connection: {}", rank_, link.error().message());
      half_open_.erase(found);
      return;
    case Handshake::State::kProved:
      // Refused before the last word, so that the dialler knows and tries again.
      if (!wanted(link.fields().purpose)) {
        half_open_.erase(found);
        return;
      }
      return link.confirm();
    case Handshake::State::kDone: {
      const HandshakeFields fields = link.fields();
      const bool is_unix = link.is_unix();
      Fd fd = link.take();
      half_open_.erase(found);
      if (!is_unix) tune_for(fields.purpose, fd.get());
      return deliver(fields.from, fields.purpose, std::move(fd), is_unix);
    }
  }
}

bool Core::wanted(Purpose purpose) {
  return (shortage_.ok() || purpose == Purpose::kControl) && has_room(&service(purpose));
}

bool Core::has_room(Service* service) {
  if (service->handler != nullptr) return true;
  if (service->stopped) return false;
  if (service->parked.size() < kMaxParked) return true;
  std::erase_if(service->parked, [this](Parked& one) {
    if (!hung_up(one.fd)) return false;
    loop_.remove(one.timer);
    return true;
  });
  return service->parked.size() < kMaxParked;
}

void Core::deliver(int32_t peer, Purpose purpose, Fd fd, bool is_unix) {
  Service& to = service(purpose);
  if (const auto handler = to.handler) return (*handler)(peer, std::move(fd), is_unix);
  if (!has_room(&to)) return;
  const int raw = fd.get();
  Parked parked{peer, std::move(fd), is_unix, 0};
  parked.timer = loop_.add_timer(monotonic_ns() + kParkedNs, [this, purpose, raw] {
    std::erase_if(service(purpose).parked,
                  [raw](const Parked& one) { return one.fd.get() == raw; });
  });
  to.parked.push_back(std::move(parked));
}

void Core::set_handler(Purpose purpose, Endpoint::Accepted handler) {
  Service& to = service(purpose);
  to.stopped = false;
  const auto shared = std::make_shared<const Endpoint::Accepted>(std::move(handler));
  to.handler = shared;
  // The handler may stop itself, or the endpoint may end, between two links.
  while (to.handler == shared && !to.parked.empty()) {
    Parked one = std::move(to.parked.front());
    to.parked.pop_front();
    loop_.remove(one.timer);
    (*shared)(one.peer, std::move(one.fd), one.is_unix);
  }
}

void Core::stop_handler(Purpose purpose) {
  Service& to = service(purpose);
  to.stopped = true;
  const auto last = std::move(to.handler);  // destroyed after the service is consistent
  to.handler = nullptr;
  for (const Parked& one : to.parked) loop_.remove(one.timer);
  to.parked.clear();
}

Status Core::set_peer(int32_t peer, std::string_view address) {
  auto decoded = decode_address(address);
  if (!decoded.ok()) return decoded.status().annotate(fmt::format("rank {}", peer));
  const std::lock_guard lock(mutex_);
  peers_[peer] = Peer{std::string(address), decoded->identity.host};
  return ok_status();
}

bool Core::same_host_hint(int32_t peer) const {
  if (peer == rank_) return true;
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.host == identity_.host;
}

void Core::dial(int32_t peer, Purpose purpose, Via via, int64_t deadline_ns,
                Endpoint::Dialled done) {
  Dial::Plan plan;
  plan.secret = secret_;
  plan.fields = HandshakeFields{job_, rank_, peer, purpose};
  plan.via = via;
  plan.deadline_ns = deadline_ns;
  plan.done = std::move(done);
  plan.short_of_descriptors = [this](const Status& why) {
    loop_.post([self = shared_from_this(), why] { self->short_of_descriptors(why); });
  };
  bool first = false;
  {
    std::unique_lock lock(mutex_);
    if (stopped_) {  // only from a callback of the endpoint's end
      lock.unlock();
      return plan.done(Status(Code::kAborted, "the endpoint was closed"), false);
    }
    const uint64_t number = next_dial_++;
    auto ended = [self = shared_from_this(), number] {
      std::shared_ptr<Dial> last;  // destroyed after the lock
      const std::lock_guard ending(self->mutex_);
      if (const auto found = self->dials_.find(number); found != self->dials_.end()) {
        last = std::move(found->second);
        self->dials_.erase(found);
      }
    };
    dials_.emplace(number, std::make_shared<Dial>(loop_, std::move(plan), std::move(ended)));
    first = new_dials_.empty();
    new_dials_.push_back(number);
  }
  // Never started inline: `done` must not run before dial() has returned.
  if (first) loop_.post([self = shared_from_this()] { self->start_dials(); });
}

void Core::start_dials() {
  std::vector<uint64_t> numbers;
  {
    const std::lock_guard lock(mutex_);
    numbers.swap(new_dials_);
  }
  for (const uint64_t number : numbers) start_dial(number);
}

void Core::start_dial(uint64_t number) {
  std::shared_ptr<Dial> dial;
  std::string address;
  {
    const std::lock_guard lock(mutex_);
    const auto found = dials_.find(number);
    if (found == dials_.end()) return;  // shut down meanwhile
    dial = found->second;
    if (const auto peer = peers_.find(dial->peer()); peer != peers_.end()) {
      address = peer->second.address;
    }
  }
  if (!shortage_.ok() && dial->purpose() != Purpose::kControl) {
    return dial->finish(shortage_, false);
  }
  if (const auto peer = decode_address(address); peer.ok()) return dial->start(identity_, *peer);
  dial->finish(error(Code::kInvalidUsage, "the address of rank {} is not known", dial->peer()),
               false);
}

void Core::shut_down() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  for (const Listener& listener : listeners_) {
    loop_.remove(listener.watch);
    loop_.remove(listener.pause);
  }
  listeners_.clear();
  half_open_.clear();
  for (size_t i = 1; i < kPurposes; i++) stop_handler(static_cast<Purpose>(i));
  on_shortage_ = nullptr;
  finish_dials(Status(Code::kAborted, "the endpoint was closed"), true);
}

void Core::finish_dials(const Status& status, bool control_too) {
  for (;;) {
    std::shared_ptr<Dial> dial;
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::find_if(dials_.begin(), dials_.end(), [&](const auto& one) {
        return control_too || one.second->purpose() != Purpose::kControl;
      });
      if (found == dials_.end()) return;
      dial = std::move(found->second);
      dials_.erase(found);
    }
    dial->finish(status, false);
  }
}

class EndpointHandle final : public Endpoint {
 public:
  explicit EndpointHandle(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  ~EndpointHandle() override {
    core_->loop().run_sync([this] { core_->shut_down(); });
  }
  std::string address() const override { return core_->address(); }
  Status set_peer(int32_t peer, std::string_view address) override {
    return core_->set_peer(peer, address);
  }
  void on_accept(Purpose purpose, Accepted handler) override {
    const auto core = core_;  // the handler may end this endpoint
    core->loop().run_sync([&] { core->set_handler(purpose, std::move(handler)); });
  }
  void stop_accept(Purpose purpose) override {
    core_->loop().run_sync([&] { core_->stop_handler(purpose); });
  }
  void on_shortage(std::function<void(const Status&)> handler) override {
    const auto core = core_;  // the handler may end this endpoint
    core->loop().run_sync([&] { core->set_shortage_handler(std::move(handler)); });
  }
  void dial(int32_t peer, Purpose purpose, Via via, int64_t deadline_ns, Dialled done) override {
    core_->dial(peer, purpose, via, deadline_ns, std::move(done));
  }
  bool same_host_hint(int32_t peer) const override { return core_->same_host_hint(peer); }
  EventLoop& loop() override { return core_->loop(); }

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::create(EventLoop& loop,
                                                   const EndpointOptions& options) {
  if (sodium_init() < 0) return Status(Code::kSystemError, "libsodium could not start");
  auto core = std::make_shared<Core>(loop, options);
  TRY(core->listen(options));
  Status status;
  loop.run_sync([&] {
    status = core->watch();
    if (!status.ok()) core->shut_down();
  });
  TRY(status);
  return std::unique_ptr<Endpoint>(std::make_unique<EndpointHandle>(std::move(core)));
}

}  // namespace unisono::net
