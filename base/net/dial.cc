#include "base/net/dial.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sodium.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace unisono::net {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kProbeNs = 5'000 * kMs;  // for connect and handshake of one try
constexpr int64_t kGoneNs = 1'000 * kMs;   // without a listener
constexpr int64_t kFirstBackoffNs = 4 * kMs;
constexpr int kMaxDoublings = 7;  // up to about half a second
constexpr size_t kMaxProbes = 64;
constexpr size_t kMaxNamedErrors = 4;

const char* purpose_name(Purpose purpose) {
  switch (purpose) {
    case Purpose::kControl:
      return "control";
    case Purpose::kShm:
      return "shm";
    case Purpose::kTcp:
      return "tcp";
    case Purpose::kUcx:
      return "ucx";
    case Purpose::kRendezvous:
      return "rendezvous";
  }
  return "unknown";
}

// A link-local address of another host means one of our interfaces, and it does not say which.
std::vector<uint32_t> link_local_scopes() {
  std::vector<uint32_t> scopes;
  const auto ours = local_addresses("");
  if (!ours.ok()) return scopes;
  for (const Address& one : *ours) {
    if (!is_link_local(one)) continue;
    const uint32_t scope = reinterpret_cast<const sockaddr_in6&>(one.storage).sin6_scope_id;
    if (std::find(scopes.begin(), scopes.end(), scope) == scopes.end()) scopes.push_back(scope);
  }
  return scopes;
}

}  // namespace

Dial::Dial(EventLoop& loop, Plan plan, std::function<void()> ended)
    : loop_(loop), plan_(std::move(plan)), ended_(std::move(ended)) {}

Dial::~Dial() {
  for (Probe& probe : probes_) loop_.remove(probe.retry);
  loop_.remove(deadline_);
  sodium_memzero(plan_.secret.data(), plan_.secret.size());
}

std::string Dial::peer_name() const {
  return fmt::format("rank {}", plan_.fields.to);
}

void Dial::start(const HostIdentity& ours, const EndpointAddress& peer) {
  const bool unix_reaches = peer.unix_token != 0 && peer.identity == ours;
  if (plan_.via != Via::kTcpOnly && unix_reaches) {
    Probe probe;
    probe.address = unix_address(unix_name(peer.unix_token));
    probe.is_unix = true;
    probes_.push_back(std::move(probe));
  }
  if (plan_.via != Via::kUnixOnly) add_tcp_probes(ours, peer, !probes_.empty());
  if (probes_.empty()) {
    const char* what = plan_.via == Via::kUnixOnly ? "is on another host: no unix socket reaches it"
                                                   : "has no address that reaches it from here";
    return finish(error(Code::kSystemError, "{} {}", peer_name(), what), false);
  }
  deadline_ = loop_.add_timer(plan_.deadline_ns, [this] { timed_out(); });
  // Chosen before the first is tried: a unix socket that fails at once (no descriptor left) lets go
  // of those held, and tries them itself.
  std::vector<size_t> first;
  for (size_t i = 0; i < probes_.size(); i++) {
    if (!probes_[i].held) first.push_back(i);
  }
  for (const size_t i : first) {
    try_probe(i);
    if (finished_) return;
  }
}

void Dial::add_tcp_probes(const HostIdentity& ours, const EndpointAddress& peer, bool held) {
  const bool same_network = peer.identity.network == ours.network;
  std::vector<uint32_t> scopes;
  bool scopes_known = false;
  const auto add = [&](const Address& address) {
    if (probes_.size() >= kMaxProbes) return;
    Probe probe;
    probe.address = address;
    probe.held = held;
    probes_.push_back(std::move(probe));
  };
  for (const Address& address : peer.tcp) {
    if (is_loopback(address) && !same_network) continue;
    if (!is_link_local(address) || same_network) {
      add(address);
      continue;
    }
    if (!std::exchange(scopes_known, true)) scopes = link_local_scopes();
    for (const uint32_t scope : scopes) {
      Address scoped = address;
      reinterpret_cast<sockaddr_in6&>(scoped.storage).sin6_scope_id = scope;
      add(scoped);
    }
  }
}

void Dial::try_now() {
  for (size_t i = 0; i < probes_.size(); i++) {
    if (probes_[i].retry == 0) continue;
    loop_.remove(probes_[i].retry);
    try_probe(i);
    if (finished_) return;
  }
}

void Dial::try_probe(size_t index) {
  Probe& probe = probes_[index];
  probe.retry = 0;
  probe.proved = false;
  auto fd = start_connect(probe.address);
  if (!fd.ok()) {
    if (const Status left = check_descriptors(); !left.ok()) plan_.short_of_descriptors(left);
    if (is_gone(probe, fd.status())) {
      return finish(error(Code::kRemoteError,
                          "{} does not listen any more: it has died or given up", peer_name()),
                    false);
    }
    return failed(index, fd.status());
  }
  probe.gone_since_ns = 0;
  probe.link =
      std::make_unique<HandshakeLink>(loop_, std::move(*fd), probe.is_unix,
                                      Handshake::dial(plan_.secret, plan_.fields, fresh_nonce()),
                                      [this, index] { changed(index); });
  const Status started = probe.link->start(true, monotonic_ns() + kProbeNs);
  if (!started.ok()) failed(index, started);
}

// It listened before it told us where, and names of unix sockets end with their listener.
bool Dial::is_gone(Probe& probe, const Status& status) {
  if (!probe.is_unix || status.code() != Code::kRemoteError) {
    probe.gone_since_ns = 0;
    return false;
  }
  if (probe.gone_since_ns == 0) probe.gone_since_ns = monotonic_ns();
  return monotonic_ns() - probe.gone_since_ns >= kGoneNs;
}

void Dial::changed(size_t index) {
  Probe& probe = probes_[index];
  switch (probe.link->state()) {
    case Handshake::State::kProved:
      probe.proved = true;
      return confirm_next();
    case Handshake::State::kDone: {
      Fd fd = probe.link->take();
      if (!probe.is_unix) tune_for(plan_.fields.purpose, fd.get());
      say_how(probe, fd.get());
      return finish(std::move(fd), probe.is_unix);
    }
    case Handshake::State::kFailed:
      return failed(index, Status(probe.link->error()));
    case Handshake::State::kRunning:
      return;
  }
}

// One at a time: the peer's handler must see one link, not one for each address.
void Dial::confirm_next() {
  if (confirmed_ >= 0) return;
  const auto next =
      std::find_if(probes_.begin(), probes_.end(), [](const Probe& probe) { return probe.proved; });
  if (next == probes_.end()) return;
  confirmed_ = static_cast<int>(next - probes_.begin());
  next->link->confirm();  // may end the dial
}

void Dial::failed(size_t index, const Status& status) {
  Probe& probe = probes_[index];
  probe.link.reset();
  probe.proved = false;
  probe.last_error = status.message();
  // Doubling, and a random part, so that thousands of ranks do not knock in step.
  const int64_t backoff_ns = kFirstBackoffNs << std::min(probe.failures++, kMaxDoublings);
  const int64_t jitter_ns = randombytes_uniform(static_cast<uint32_t>(backoff_ns));
  loop_.remove(probe.retry);  // never two of one probe: the second would outlive the dial
  probe.retry = loop_.add_timer(monotonic_ns() + backoff_ns / 2 + jitter_ns,
                                [this, index] { try_probe(index); });
  if (probe.is_unix) {
    for (size_t i = 0; i < probes_.size(); i++) {
      if (std::exchange(probes_[i].held, false)) try_probe(i);
      if (finished_) return;
    }
  }
  if (confirmed_ == static_cast<int>(index)) {
    confirmed_ = -1;
    confirm_next();
  }
}

// Which of the peer's addresses it became and why: what to look at when a job takes the slow
// network.
void Dial::say_how(const Probe& won, int fd) const {
  const HandshakeFields& fields = plan_.fields;
  if (won.is_unix) {
    log_debug("rank {} reaches rank {} ({}) by a unix socket: one host", fields.from, fields.to,
              purpose_name(fields.purpose));
    return;
  }
  if (log_internal::level.load() < static_cast<int>(LogLevel::kInfo))
    return;  // finding it out costs
  std::string others;
  size_t count = 0;
  for (const Probe& probe : probes_) {
    if (&probe == &won || probe.is_unix) continue;
    if (++count > kMaxNamedErrors) continue;
    others += fmt::format("{}{} ({})", others.empty() ? "" : ", ", probe.address.text(),
                          probe.proved            ? "proved itself later"
                          : probe.failures > 0    ? probe.last_error
                          : probe.link != nullptr ? "no answer yet"
                                                  : "not tried");
  }
  if (count > kMaxNamedErrors) others += fmt::format(" and {} more", count - kMaxNamedErrors);
  log_info("rank {} reaches rank {} ({}) at {} from {}: {}", fields.from, fields.to,
           purpose_name(fields.purpose), won.address.text(), describe_local_end(fd),
           count == 0 ? "its only address"
                      : fmt::format("the first of {} addresses to prove itself; not {}", count + 1,
                                    others));
}

void Dial::timed_out() {
  std::string tried;
  for (size_t i = 0; i < probes_.size() && i < kMaxNamedErrors; i++) {
    tried += fmt::format("{}{} ({})", i == 0 ? "" : ", ", probes_[i].address.text(),
                         probes_[i].link != nullptr ? "no answer yet" : probes_[i].last_error);
  }
  if (probes_.size() > kMaxNamedErrors) {
    tried += fmt::format(" and {} more", probes_.size() - kMaxNamedErrors);
  }
  finish(error(Code::kTimeout, "{} could not be reached in time; tried {}", peer_name(), tried),
         false);
}

void Dial::finish(Result<Fd> fd, bool is_unix) {
  if (std::exchange(finished_, true)) return;
  loop_.remove(std::exchange(deadline_, 0));
  for (Probe& probe : probes_) {
    loop_.remove(std::exchange(probe.retry, 0));
    probe.link.reset();
  }
  const auto done = std::move(plan_.done);
  const auto ended = std::move(ended_);
  if (done) done(std::move(fd), is_unix);
  ended();
}

}  // namespace unisono::net
