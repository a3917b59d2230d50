#include "transports/ucx/core.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"

namespace unisono::ucx {
namespace {

constexpr std::string_view kMagic = "uniucx1\n";
constexpr size_t kMaxAddressBytes = 4096;
constexpr int64_t kSuspicionNs = 200'000'000;
// So many turns an announced message waits for a buffer to be posted, while others move.
constexpr uint32_t kMaxPatience = 16;
// UCX reports what a forced end has ended in one of the next turns.
constexpr int kMaxTurns = 1000;

// FNV-1a: ranks whose texts are equal see the same machine through the same namespaces.
uint64_t this_place() {
  std::string text;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
  for (const char* space : {"net", "ipc", "pid"}) {
    char target[64];
    const ssize_t length =
        readlink((std::string("/proc/self/ns/") + space).c_str(), target, sizeof target);
    if (length > 0) text.append(target, static_cast<size_t>(length));
  }
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace

std::string encode_address(const Address& address) {
  ByteWriter out;
  out.put_bytes(kMagic);
  out.put(address.token);
  out.put(address.place);
  out.put_bytes(address.worker);
  return out.take();
}

Status decode_address(const std::string& bytes, Address* address) {
  ByteReader in(bytes);
  const std::string_view magic = in.get_bytes(kMagic.size());
  address->token = in.get<uint64_t>();
  address->place = in.get<uint64_t>();
  constexpr size_t kHeadBytes = kMagic.size() + 16;
  if (magic != kMagic || bytes.size() <= kHeadBytes || bytes.size() > kMaxAddressBytes) {
    return error(Code::kRemoteError, "an address of another version ({} bytes)", bytes.size());
  }
  address->worker = bytes.substr(kHeadBytes);
  return {};
}

Result<std::unique_ptr<Core>> Core::create(const TransportContext& context,
                                           const Options& options) {
  TRY_ASSIGN(ucp_context_h ucx_context, shared_context(options));
  TRY_ASSIGN(Worker worker, Worker::create(ucx_context));
  std::unique_ptr<Core> core(new Core(context, std::move(worker)));
  if (const size_t bytes = core->address().size(); bytes > kMaxAddressBytes) {
    return error(Code::kSystemError,
                 "ucx: an address of {} bytes: choose fewer devices (ucx:devices=...)", bytes);
  }
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = kMessageId;
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  param.cb = on_message;
  param.arg = core.get();
  const ucs_status_t status = library().ucp_worker_set_am_recv_handler(core->worker(), &param);
  if (status != UCS_OK) return ucx_error(Code::kSystemError, status, "ucx: no active messages");
  return core;
}

Core::Core(const TransportContext& context, Worker worker)
    : env_(*context.env), rank_(context.rank), worker_(std::move(worker)) {
  links_.resize(static_cast<size_t>(context.ranks));
  context.env->random_bytes(&token_, sizeof token_);
}

// Requests that UCX has forgotten to end it ends with the worker: what they report to is still
// there.
Core::~Core() {
  for (Link* link : active_) {
    link->drop_messages();
    finish(link->shut());
  }
  worker_.destroy();
}

std::string Core::address() const {
  return encode_address({token_, this_place(), worker_.address()});
}

Link& Core::link(int32_t peer) {
  auto& link = links_[static_cast<size_t>(peer)];
  if (link == nullptr) {
    link = std::make_unique<Link>(*this, peer);
    active_.push_back(link.get());
  }
  return *link;
}

// ---- input ----

ucs_status_t Core::on_message(void* user, const void* header, size_t header_bytes, void* data,
                              size_t bytes, const ucp_am_recv_param_t* param) {
  Core& self = *static_cast<Core*>(user);
  Delivery delivery;
  delivery.data = data;
  delivery.announced = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  delivery.holdable = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
  const auto* head = static_cast<const std::byte*>(header_bytes > 0 ? header : data);
  const bool is_inline = header_bytes == 0 && !delivery.announced && bytes >= kFrameBytes;
  if ((header_bytes != kFrameBytes && !is_inline) || bytes > kMaxSliceBytes + kFrameBytes) {
    log_warn("ucx: a message of {}+{} B that is none of ours; ignored", header_bytes, bytes);
    return UCS_OK;
  }
  delivery.bytes = static_cast<uint32_t>(is_inline ? bytes - kFrameBytes : bytes);
  if (!delivery.announced) {
    delivery.payload = static_cast<const std::byte*>(data) + (is_inline ? kFrameBytes : 0);
  }
  Frame frame;
  const Status understood =
      parse_frame(std::span<const std::byte, kFrameBytes>(head, kFrameBytes), &frame);
  // Without our token it may be anybody's: a former job's, say, whose port we have now.
  if (!understood.ok() || frame.token != self.token_) {
    if (!std::exchange(self.strangers_, true)) {
      log_warn("ucx: a message from outside of this communicator; ignored");
    }
    return UCS_OK;
  }
  return self.receive(frame, delivery);
}

ucs_status_t Core::receive(const Frame& frame, const Delivery& delivery) {
  if (!status_.ok()) return UCS_OK;
  if (frame.writer >= ranks() || frame.writer == rank_ || peers_.empty() ||
      peer(frame.writer).worker.empty()) {
    fail(error(Code::kRemoteError, "ucx: a message that says it is of rank {}", frame.writer));
    return UCS_OK;
  }
  bool kept = false;
  if (Status taken = link(frame.writer).receive(frame, delivery, &kept); !taken.ok()) {
    fail(taken.annotate(fmt::format("ucx: rank {}", frame.writer)));
  }
  return kept ? UCS_INPROGRESS : UCS_OK;
}

void Core::await_landing(RecvChannel& channel) {
  if (std::exchange(channel.waiting, true)) return;
  announced_.push_back(&channel);
  patience_ = 0;
}

bool Core::land() {
  if (announced_.empty()) return false;
  for (RecvChannel* channel : std::exchange(announced_, {})) {
    channel->waiting = false;
    channel->land_announced();
  }
  return true;
}

// ---- driving ----

bool Core::progress() {
  bool moved = false;
  if (!suspicion_.ok()) {
    moved = true;  // not to be slept on
    if (env_.now_ns() - suspected_at_ns_ >= kSuspicionNs) fail(suspicion_);
  }
  for (int i = 0; i < 8 && library().ucp_worker_progress(worker()) != 0; ++i) moved = true;
  // Whoever reads in order posts a buffer in time. The others' messages must not wait for that:
  // their writers may.
  if (!announced_.empty() && (!moved || ++patience_ > kMaxPatience)) moved = land();
  for (Link* link : active_) {
    if (link->credit_due()) link->report_credits(false);
  }
  return moved;
}

void Core::suspect(Status failure) {
  if (!suspicion_.ok()) return;
  suspicion_ = std::move(failure);
  suspected_at_ns_ = env_.now_ns();
}

bool Core::arm() {
  if (!suspicion_.ok()) return false;
  if (land()) return false;
  for (Link* link : active_) link->report_credits(true);
  return library().ucp_worker_arm(worker()) == UCS_OK;
}

bool Core::settled() {
  bool all = true;
  for (Link* link : active_) all = link->settled() && all;
  return all;
}

void Core::flush(int64_t deadline_ns) {
  while (status_.ok() && !settled() && env_.now_ns() < deadline_ns) {
    if (progress() || !arm()) continue;
    pollfd wait{efd(), POLLIN, 0};
    (void)poll(&wait, 1, 5);
  }
}

void Core::hurry(Link& link, const std::function<bool()>& done) {
  const int64_t deadline_ns = env_.now_ns() + kHurryNs;
  while (!done() && env_.now_ns() < deadline_ns) (void)library().ucp_worker_progress(worker());
  if (done()) return;
  fail(error(Code::kSystemError, "ucx: gave up a message of rank {} that was on its way",
             link.peer()));
  finish(link.shut());
}

// ---- the end ----

void Core::say_farewells() {
  for (size_t i = 0; i < active_.size(); ++i) active_[i]->say_farewell();
}

void Core::shut_borrowing() {
  std::vector<void*> requests;
  for (Link* link : active_) {
    if (!link->borrows()) continue;
    if (status_.ok()) log_info("ucx: closing with messages to rank {} unsent", link->peer());
    requests.push_back(link->shut());
  }
  for (void* request : requests) finish(request);
  const auto borrows = [](const Link* link) { return link->borrows(); };
  for (int turn = 0; turn < kMaxTurns && std::any_of(active_.begin(), active_.end(), borrows);
       ++turn) {
    (void)library().ucp_worker_progress(worker());
  }
}

bool Core::over_sockets() const {
  return std::any_of(active_.begin(), active_.end(),
                     [](const Link* link) { return link->over_sockets(); });
}

bool Core::deserted() const {
  return std::none_of(active_.begin(), active_.end(),
                      [](const Link* link) { return link->expects_farewell(); });
}

// A forced end waits for nothing of the peer's.
void Core::finish(void* request) {
  if (request == nullptr) return;
  while (library().ucp_request_check_status(request) == UCS_INPROGRESS) {
    (void)library().ucp_worker_progress(worker());
  }
  library().ucp_request_free(request);
}

namespace {

// Runs on the loop alone. The callbacks hold it, until they are removed or the loop ends.
class Lingering : public std::enable_shared_from_this<Lingering> {
 public:
  Lingering(net::EventLoop& loop, std::unique_ptr<Core> core)
      : loop_(loop), core_(std::move(core)) {}
  void start() {
    auto added = loop_.add_fd(core_->efd(), EPOLLIN,
                              [self = shared_from_this()](uint32_t) { self->look(); });
    if (!added.ok()) return;
    reading_ = *added;
    timer_ = loop_.add_timer(real_env().now_ns() + kLingerNs,
                             [self = shared_from_this()] { self->end(); });
    look();
  }

 private:
  void look() {
    if (core_ == nullptr) return;
    for (int turn = 0; turn < 1000 && !core_->deserted(); ++turn) {
      if (!core_->progress() && core_->arm()) return;
    }
    if (core_->deserted()) return end();
    again_ = loop_.add_timer(real_env().now_ns() + 1'000'000,
                             [self = shared_from_this()] { self->look(); });
  }
  void end() {
    loop_.remove(reading_);
    loop_.remove(timer_);
    loop_.remove(again_);
    core_.reset();
  }

  net::EventLoop& loop_;
  std::unique_ptr<Core> core_;
  net::EventLoop::Id reading_ = 0, timer_ = 0, again_ = 0;
};

}  // namespace

void linger(net::EventLoop& loop, std::unique_ptr<Core> core) {
  auto lingering = std::make_shared<Lingering>(loop, std::move(core));
  loop.post([lingering] { lingering->start(); });
}

}  // namespace unisono::ucx
