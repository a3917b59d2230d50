// MessageLinks over the Endpoint's authenticated sockets, served by the event loop.
//
// A frame is {u32 length, u8 type, bytes}. A farewell is a frame of its own: an end of stream
// without one is a death. Links are touched on the loop's thread only; senders post to it. A
// further link begins with a greeting of both sides; one that ends before it was never made.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>

#include "base/bytes.h"
#include "base/env.h"
#include "base/log.h"
#include "comm/control/control.h"

namespace unisono {
namespace {

constexpr size_t kHeaderBytes = 5;
constexpr uint8_t kMessage = 0, kFarewell = 1, kGreeting = 2;
constexpr size_t kMaxQueuedBytes = 64u << 20;  // to one neighbour; more and it counts as dead
constexpr int64_t kLastTryNs = 1'000'000'000;  // for links, when only kept descriptors are left
constexpr int64_t kFarewellNs = 250'000'000;   // for neighbours to answer our farewell

std::string frame(uint8_t type, std::string_view bytes) {
  ByteWriter writer;
  writer.put(static_cast<uint32_t>(bytes.size()));
  writer.put(type);
  writer.put_bytes(bytes);
  return writer.take();
}

struct Link {
  net::Fd fd;
  net::EventLoop::Id watch = 0;
  bool up = false;      // was established
  bool over = false;    // ended, orderly or not
  bool greeted = true;  // a further one: the peer's greeting has come
  bool writing = false;
  std::string in;
  std::deque<std::string> out;
  size_t offset = 0;
  std::atomic<size_t>* queued = nullptr;  // bytes in `out` and on their way to it
};

// Shared with callbacks that may outlive the links' owner.
class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(net::Endpoint& endpoint, int32_t rank)
      : endpoint_(endpoint), loop_(endpoint.loop()), rank_(rank) {}

  Status open(std::span<const int32_t> neighbours, MessageLinks::Handlers handlers,
              int64_t deadline_ns);
  void connect(int32_t peer, int64_t deadline_ns);
  void send(int32_t neighbour, std::string message);
  void post(std::function<void()> fn, int64_t delay_ns);
  void close();

 private:
  std::atomic<size_t>* queued_to(int32_t peer);  // null: not linked
  void establish(int32_t peer, net::Fd fd);
  void establish_further(int32_t peer, net::Fd fd);
  void give_up(int32_t peer, const Status& status);
  Status failure_now(int64_t deadline_ns) const;  // mutex_ held; of open()
  void enqueue(int32_t peer, std::string bytes);
  bool flush(Link& link);  // false: broken
  void on_event(int32_t peer, uint32_t events);
  bool read(Link& link);  // false: end of stream or broken
  void take_frames(int32_t peer, Link& link);
  void end(int32_t peer, Link& link, bool orderly);
  void signal();
  bool settled() const;

  net::Endpoint& endpoint_;
  net::EventLoop& loop_;
  const int32_t rank_;

  // On the loop's thread.
  MessageLinks::Handlers handlers_;
  std::map<int32_t, Link> links_;
  std::set<net::EventLoop::Id> timers_;
  bool closing_ = false;

  std::mutex mutex_;  // guards what follows: what open() and close() wait for, and the map
  std::map<int32_t, std::atomic<size_t>> queued_;
  std::condition_variable changed_;
  std::set<int32_t> missing_;
  Status failure_;
  Status shortage_;  // of descriptors
  int64_t shortage_ns_ = 0;
  bool all_said_farewell_ = false;
};

Status Core::open(std::span<const int32_t> neighbours, MessageLinks::Handlers handlers,
                  int64_t deadline_ns) {
  std::map<int32_t, std::atomic<size_t>*> queued;
  {
    const std::lock_guard lock(mutex_);
    for (const int32_t peer : neighbours) queued[peer] = &queued_[peer];
    missing_.insert(neighbours.begin(), neighbours.end());
  }
  const auto self = shared_from_this();
  loop_.run_sync([&] {
    handlers_ = std::move(handlers);
    for (const int32_t peer : neighbours) links_[peer].queued = queued[peer];
  });
  endpoint_.on_accept(net::Purpose::kControl, [self](int32_t peer, net::Fd fd, bool) {
    if (peer <= self->rank_) return;
    if (self->links_.count(peer) != 0) return self->establish(peer, std::move(fd));
    self->establish_further(peer, std::move(fd));
  });
  endpoint_.on_shortage([self](const Status& status) {
    const std::lock_guard lock(self->mutex_);
    self->shortage_ = status;
    self->shortage_ns_ = real_env().now_ns();
    self->changed_.notify_all();
  });
  for (const int32_t peer : neighbours) {
    if (peer > rank_) continue;
    endpoint_.dial(peer, net::Purpose::kControl, net::Via::kUnixThenTcp, deadline_ns,
                   [self, peer](Result<net::Fd> fd, bool) {
                     if (fd.ok()) {
                       self->establish(peer, std::move(*fd));
                     } else {
                       self->give_up(peer, fd.status());
                     }
                   });
  }
  Status status;
  {
    std::unique_lock lock(mutex_);
    while (!missing_.empty() && status.ok()) {
      status = failure_now(deadline_ns);
      if (!status.ok()) break;
      const int64_t left_ns = std::max<int64_t>(1, deadline_ns - real_env().now_ns());
      changed_.wait_for(lock, std::chrono::nanoseconds(std::min(left_ns, kLastTryNs / 2)));
    }
  }
  endpoint_.on_shortage(nullptr);
  return status;
}

Status Core::failure_now(int64_t deadline_ns) const {
  if (!failure_.ok()) return failure_;
  const int64_t now = real_env().now_ns();
  const bool is_short = !shortage_.ok() && now - shortage_ns_ >= kLastTryNs;
  if (!is_short && now < deadline_ns) return {};
  std::string names;
  for (const int32_t peer : missing_) names += fmt::format("{}{}", names.empty() ? "" : ", ", peer);
  if (is_short) return shortage_.annotate(fmt::format("no link to rank {}", names));
  return error(Code::kTimeout, "no link to rank {} in time", names);
}

// The accepting of further links goes on until close().
void Core::connect(int32_t peer, int64_t deadline_ns) {
  CHECK(peer < rank_);
  endpoint_.dial(peer, net::Purpose::kControl, net::Via::kUnixThenTcp, deadline_ns,
                 [self = shared_from_this(), peer](Result<net::Fd> fd, bool) {
                   if (fd.ok()) return self->establish_further(peer, std::move(*fd));
                   if (!self->closing_ && self->handlers_.linked) {
                     self->handlers_.linked(peer, false);
                   }
                 });
}

void Core::establish_further(int32_t peer, net::Fd fd) {
  if (closing_) return;
  const auto found = links_.find(peer);
  if (found != links_.end() && !found->second.over) return;
  Link fresh;
  fresh.greeted = false;
  {
    const std::lock_guard lock(mutex_);
    fresh.queued = &queued_[peer];
    fresh.queued->store(0);
  }
  Link& link = links_[peer];
  link = std::move(fresh);
  establish(peer, std::move(fd));
  if (!link.up) {
    link.over = true;
    if (handlers_.linked) handlers_.linked(peer, false);
    return;
  }
  std::string greeting = frame(kGreeting, {});
  link.queued->fetch_add(greeting.size());
  enqueue(peer, std::move(greeting));
}

void Core::establish(int32_t peer, net::Fd fd) {
  const auto found = links_.find(peer);
  if (closing_ || found == links_.end() || found->second.up) return;
  Link& link = found->second;
  link.fd = std::move(fd);
  auto watch = loop_.add_fd(
      link.fd.get(), EPOLLIN,
      [self = shared_from_this(), peer](uint32_t events) { self->on_event(peer, events); });
  if (!watch.ok()) return give_up(peer, watch.status());
  link.watch = *watch;
  link.up = true;
  const std::lock_guard lock(mutex_);
  missing_.erase(peer);
  changed_.notify_all();
}

void Core::give_up(int32_t peer, const Status& status) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = status.annotate(fmt::format("no link to rank {}", peer));
  changed_.notify_all();
}

// ---- Sending ----

std::atomic<size_t>* Core::queued_to(int32_t peer) {
  const std::lock_guard lock(mutex_);
  const auto found = queued_.find(peer);
  return found == queued_.end() ? nullptr : &found->second;
}

void Core::send(int32_t neighbour, std::string message) {
  CHECK(message.size() <= kMaxControlMessageBytes);
  std::atomic<size_t>* queued = queued_to(neighbour);
  if (queued == nullptr) return;
  std::string bytes = frame(kMessage, message);
  // A neighbour that does not read must not fill our memory; the loop then ends the link.
  const bool full = queued->fetch_add(bytes.size()) + bytes.size() > kMaxQueuedBytes;
  loop_.post([self = shared_from_this(), neighbour, full, bytes = std::move(bytes)]() mutable {
    if (self->closing_) return;
    if (!full) return self->enqueue(neighbour, std::move(bytes));
    Link& link = self->links_[neighbour];
    if (link.up && !link.over) self->end(neighbour, link, false);
  });
}

void Core::enqueue(int32_t peer, std::string bytes) {
  Link& link = links_[peer];
  // Before the link is up messages wait for it.
  if (link.over) return;
  link.out.push_back(std::move(bytes));
  if (link.up && !link.writing && !flush(link)) end(peer, link, false);
}

bool Core::flush(Link& link) {
  while (!link.out.empty()) {
    const std::string& bytes = link.out.front();
    const ssize_t sent =
        ::send(link.fd.get(), bytes.data() + link.offset, bytes.size() - link.offset, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return false;
    if (sent < 0) break;
    link.offset += static_cast<size_t>(sent);
    if (link.offset < bytes.size()) continue;
    const size_t done = bytes.size();
    link.out.pop_front();
    link.offset = 0;
    link.queued->fetch_sub(done);
  }
  const bool writing = !link.out.empty();
  if (writing != link.writing) loop_.modify_fd(link.watch, EPOLLIN | (writing ? EPOLLOUT : 0u));
  link.writing = writing;
  return true;
}

void Core::post(std::function<void()> fn, int64_t delay_ns) {
  const auto self = shared_from_this();
  if (delay_ns <= 0) {
    loop_.post([self, fn = std::move(fn)] {
      if (!self->closing_) fn();
    });
    return;
  }
  loop_.post([self, fn = std::move(fn), delay_ns]() mutable {
    if (self->closing_) return;
    auto id = std::make_shared<net::EventLoop::Id>(0);
    *id = self->loop_.add_timer(real_env().now_ns() + delay_ns, [self, id, fn = std::move(fn)] {
      self->timers_.erase(*id);
      if (!self->closing_) fn();
    });
    self->timers_.insert(*id);
  });
}

// ---- Receiving ----

void Core::on_event(int32_t peer, uint32_t events) {
  Link& link = links_[peer];
  if (link.over) return;
  if ((events & EPOLLOUT) != 0 && !flush(link)) return end(peer, link, false);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  const bool open = read(link);
  take_frames(peer, link);
  if (!open && !link.over) end(peer, link, false);
}

bool Core::read(Link& link) {
  char buffer[16384];
  // One frame's worth a turn: others must be served too, and memory stays bounded.
  while (link.in.size() < kMaxControlMessageBytes + kHeaderBytes) {
    const ssize_t got = recv(link.fd.get(), buffer, sizeof(buffer), 0);
    if (got > 0) {
      link.in.append(buffer, static_cast<size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    } else if (errno == EAGAIN) {
      return true;
    }
  }
  return true;
}

void Core::take_frames(int32_t peer, Link& link) {
  size_t used = 0;
  while (!link.over && link.in.size() - used >= kHeaderBytes) {
    ByteReader header(std::string_view(link.in).substr(used));
    const size_t length = header.get<uint32_t>();
    const auto type = header.get<uint8_t>();
    if (length > kMaxControlMessageBytes || type > kGreeting) return end(peer, link, false);
    if (link.in.size() - used < kHeaderBytes + length) break;
    std::string message = link.in.substr(used + kHeaderBytes, length);
    used += kHeaderBytes + length;
    if (type == kFarewell) return end(peer, link, true);
    if (type == kGreeting) {
      if (!std::exchange(link.greeted, true) && !closing_ && handlers_.linked) {
        handlers_.linked(peer, true);
      }
      continue;
    }
    if (!closing_ && handlers_.message) handlers_.message(peer, std::move(message));
  }
  if (!link.over) link.in.erase(0, used);
}

void Core::end(int32_t peer, Link& link, bool orderly) {
  link.over = true;
  loop_.remove(link.watch);
  link.fd.reset();
  link.in.clear();
  link.out.clear();
  if (closing_) return signal();
  if (!link.greeted) {
    if (handlers_.linked) handlers_.linked(peer, false);
    return;
  }
  if (handlers_.closed) handlers_.closed(peer, orderly);
}

// ---- Closing ----

bool Core::settled() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& one) { return !one.second.up || one.second.over; });
}

void Core::signal() {
  if (!settled()) return;
  const std::lock_guard lock(mutex_);
  all_said_farewell_ = true;
  changed_.notify_all();
}

void Core::close() {
  if (net::is_forked_child()) return;
  loop_.run_sync([&] {
    closing_ = true;
    for (auto& [peer, link] : links_) {
      if (!link.up || link.over) continue;
      link.out.push_back(frame(kFarewell, {}));
      link.queued->fetch_add(link.out.back().size());
      if (!flush(link)) end(peer, link, false);
    }
    signal();
  });
  // A neighbour answers a farewell by closing its end. Then nothing unread of its is left here,
  // whose reset might overtake our last words.
  endpoint_.stop_accept(net::Purpose::kControl);
  if (!loop_.on_loop_thread()) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(kFarewellNs),
                      [&] { return all_said_farewell_; });
  }
  loop_.run_sync([&] {
    for (auto& [peer, link] : links_) {
      if (link.up && !link.over) loop_.remove(link.watch);
      link.over = true;
      link.fd.reset();
    }
    for (const auto timer : timers_) loop_.remove(timer);
    timers_.clear();
  });
}

class SocketLinks final : public MessageLinks {
 public:
  SocketLinks(net::Endpoint& endpoint, int32_t rank)
      : core_(std::make_shared<Core>(endpoint, rank)) {}
  ~SocketLinks() override { close(); }

  Status open(std::span<const int32_t> neighbours, Handlers handlers,
              int64_t deadline_ns) override {
    return core_->open(neighbours, std::move(handlers), deadline_ns);
  }
  void connect(int32_t peer, int64_t deadline_ns) override { core_->connect(peer, deadline_ns); }
  void send(int32_t neighbour, std::string message) override {
    core_->send(neighbour, std::move(message));
  }
  void post(std::function<void()> fn, int64_t delay_ns) override {
    core_->post(std::move(fn), delay_ns);
  }
  void close() override {
    if (closed_) return;
    closed_ = true;
    core_->close();
  }

 private:
  std::shared_ptr<Core> core_;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<MessageLinks> make_socket_links(net::Endpoint& endpoint, int32_t rank) {
  return std::make_unique<SocketLinks>(endpoint, rank);
}

}  // namespace unisono
