// The rendezvous's clients: exchange() over an id, and fetching an id that is handed out.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.h"
#include "base/env.h"
#include "base/log.h"
#include "base/net/event_loop.h"
#include "comm/bootstrap/prober.h"
#include "comm/bootstrap/rendezvous.h"

namespace unisono::bootstrap {
namespace {

// The id's maker listens before the id exists, so that refusals everywhere mean that it has ended.
constexpr int64_t kRefusedNs = 10'000'000'000;

class RendezvousOpening final : public Opening {
 public:
  RendezvousOpening(const net::Secret& secret, uint64_t job)
      : job_(job), handshake_(net::Handshake::dial(secret, handshake_fields(job), fresh_nonce())) {}

  std::string first_bytes() override {
    std::string out = opening_bytes(kRendezvousMagic, job_);
    drain(out);
    return out;
  }
  size_t wanted() const override { return handshake_.wanted(); }
  Status take(std::string_view bytes, std::string& out) override {
    (void)handshake_.feed({reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()});
    if (handshake_.state() == net::Handshake::State::kProved) handshake_.confirm();
    drain(out);
    if (handshake_.state() == net::Handshake::State::kDone) return ok_status();
    if (handshake_.state() == net::Handshake::State::kFailed) {
      return Status(Code::kRemoteError, "whoever listens there does not know the id's secret");
    }
    return Status(Code::kInProgress, "handshake");
  }

 private:
  void drain(std::string& out) {
    const auto unsent = handshake_.unsent();
    out.append(reinterpret_cast<const char*>(unsent.data()), unsent.size());
    handshake_.sent(unsent.size());
  }

  uint64_t job_;
  net::Handshake handshake_;
};

class HandoutOpening final : public Opening {
 public:
  HandoutOpening(const std::optional<net::Secret>& key, uint64_t tag) : key_(key), tag_(tag) {
    fill_random(nonce_.data(), nonce_.size());
  }

  std::string first_bytes() override {
    std::string out = opening_bytes(kHandoutMagic, tag_ << 1 | (key_ ? 1 : 0));
    out.append(as_text(nonce_));
    return out;
  }
  size_t wanted() const override { return kHandoutBytes; }
  Status take(std::string_view bytes, std::string&) override {
    ByteReader reader(bytes);
    const auto status = reader.get<uint8_t>();
    const std::string_view nonce = reader.get_bytes(kNonceBytes);
    const std::string_view id = reader.get_bytes(id_.bytes.size());
    const std::string_view proof = reader.get_bytes(kProofBytes);
    if (status == kRefused) {
      return Status(Code::kInvalidArgument,
                    key_ ? "UNISONO_JOB_SECRET: rank 0 has no job secret, this rank has one"
                         : "UNISONO_JOB_SECRET: rank 0 has a job secret, this rank has none");
    }
    if (key_ && (status != kAuthenticated ||
                 !same_proof(handout_proof(*key_, as_text(nonce_), nonce, id), proof))) {
      return Status(Code::kInvalidArgument,
                    "UNISONO_JOB_SECRET: whoever answers as rank 0 has another job secret");
    }
    std::copy(id.begin(), id.end(), id_.bytes.begin());
    auto fields = decode_id(id_);
    if (!fields.ok()) return Status(Code::kRemoteError, fields.status().message());
    if (key_) fields->secret = derived_secret(*key_, fields->job);
    fields_ = *fields;
    return ok_status();
  }
  const IdFields& fields() const { return fields_; }

 private:
  std::optional<net::Secret> key_;
  uint64_t tag_;
  net::Secret nonce_{};
  UniqueId id_;
  IdFields fields_;
};

Result<Won> connect_to(const IdFields& fields, int64_t deadline_ns, int64_t patience_ns) {
  ProbeOptions options;
  // First: on the same host it answers at once.
  options.addresses.push_back(net::unix_address(unix_name(fields)));
  options.addresses.insert(options.addresses.end(), fields.addresses.begin(),
                           fields.addresses.end());
  options.make_opening = [&] {
    return std::make_unique<RendezvousOpening>(fields.secret, fields.job);
  };
  options.deadline_ns = deadline_ns;
  options.patience_ns = patience_ns;
  options.what = "the rendezvous of this id (over already, or its maker has ended?)";
  return probe(options);
}

// One rank's side of an established rendezvous.
class Exchange {
 public:
  Exchange(net::Fd fd, int32_t ranks, int32_t rank, int64_t deadline_ns)
      : fd_(std::move(fd)), ranks_(ranks), rank_(rank), deadline_ns_(deadline_ns) {}

  Result<std::vector<std::string>> run(const std::string& payload) {
    ByteWriter writer;
    writer.put(ranks_);
    writer.put(rank_);
    writer.put_string(payload);
    TRY(send_all(frame(kRegister, writer.take())));
    for (;;) {
      TRY_ASSIGN(const std::string message, receive());
      ByteReader header(message);
      (void)header.get<uint32_t>();
      const auto type = header.get<uint8_t>();
      const std::string_view body = std::string_view(message).substr(kFrameHeaderBytes);
      if (type == kTable) return read_table(body);
      if (type == kFailure) return read_failure(body);
      if (type != kMissing) return error(Code::kRemoteError, "the rendezvous sent nonsense");
      missing_ = std::string(ByteReader(body).get_string(kMaxErrorText));
    }
  }

 private:
  Status wait_for(short events) {
    pollfd one{fd_.get(), events, 0};
    for (;;) {
      if (::poll(&one, 1, poll_timeout_ms(deadline_ns_)) > 0) return ok_status();
      if (real_env().now_ns() >= deadline_ns_) return too_late();
    }
  }

  Status too_late() {
    ByteWriter writer;
    writer.put_string("it waited until its timeout");
    const std::string farewell = frame(kLeave, writer.take());
    // As far as it goes: the others would see the end of the connection in any case.
    (void)::send(fd_.get(), farewell.data(), farewell.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return error(Code::kTimeout, "rank {} of {} waited in vain for {} {}", rank_, ranks_,
                 missing_.find(',') == std::string::npos ? "rank" : "ranks",
                 missing_.empty() ? "(unknown)" : missing_);
  }

  Status lost(const std::string& why) const {
    return error(Code::kRemoteError, "the process that serves the rendezvous has ended ({})", why);
  }

  Status send_all(const std::string& bytes) {
    size_t offset = 0;
    while (offset < bytes.size()) {
      const ssize_t sent =
          ::send(fd_.get(), bytes.data() + offset, bytes.size() - offset, MSG_NOSIGNAL);
      if (sent > 0) {
        offset += static_cast<size_t>(sent);
      } else if (errno == EAGAIN) {
        TRY(wait_for(POLLOUT));
      } else if (errno != EINTR) {
        return lost(system_error(errno, "send").message());
      }
    }
    return ok_status();
  }

  // One whole frame. Memory grows with what has come, never with what a length claims.
  Result<std::string> receive() {
    char buffer[65536];
    for (;;) {
      if (in_.size() >= kFrameHeaderBytes) {
        const size_t length = ByteReader(in_).get<uint32_t>();
        if (length > kMaxServerFrame)
          return error(Code::kRemoteError, "the rendezvous sent nonsense");
        if (in_.size() >= kFrameHeaderBytes + length) {
          std::string message = in_.substr(0, kFrameHeaderBytes + length);
          in_.erase(0, message.size());
          return message;
        }
      }
      const ssize_t got = recv(fd_.get(), buffer, sizeof(buffer), 0);
      if (got > 0) {
        in_.append(buffer, static_cast<size_t>(got));
      } else if (got == 0) {
        return lost("end of the connection");
      } else if (errno == EAGAIN) {
        TRY(wait_for(POLLIN));
      } else if (errno != EINTR) {
        return lost(system_error(errno, "recv").message());
      }
    }
  }

  Result<std::vector<std::string>> read_table(std::string_view body) const {
    ByteReader reader(body);
    if (reader.get<uint32_t>() != static_cast<uint32_t>(ranks_)) {
      return error(Code::kRemoteError, "the rendezvous answered with another number of ranks");
    }
    std::vector<std::string> payloads;
    for (int32_t rank = 0; rank < ranks_ && reader.ok(); ++rank) {
      payloads.emplace_back(reader.get_string(kMaxPayloadBytes));
    }
    if (!reader.done()) return error(Code::kRemoteError, "the rendezvous sent a damaged table");
    return payloads;
  }

  static Status read_failure(std::string_view body) {
    ByteReader reader(body);
    const auto code = static_cast<Code>(reader.get<int32_t>());
    const std::string text(reader.get_string(kMaxErrorText));
    const bool known = code == Code::kInvalidArgument || code == Code::kInvalidUsage ||
                       code == Code::kTimeout || code == Code::kRemoteError;
    return Status(known ? code : Code::kRemoteError, text);
  }

  net::Fd fd_;
  int32_t ranks_, rank_;
  int64_t deadline_ns_;
  std::string in_, missing_;
};

}  // namespace

Status probe_unique_id(const UniqueId& id, int64_t deadline_ns) {
  TRY_ASSIGN(const IdFields fields, decode_id(id));
  auto won = connect_to(fields, deadline_ns, 0);
  return won.ok() ? ok_status() : won.status();
}

Result<UniqueId> fetch_unique_id(const std::vector<net::Address>& addresses,
                                 const std::optional<net::Secret>& job_key, int64_t deadline_ns,
                                 uint64_t tag) {
  ProbeOptions options;
  options.addresses = addresses;
  options.make_opening = [&] { return std::make_unique<HandoutOpening>(job_key, tag); };
  options.same_user = true;
  options.deadline_ns = deadline_ns;
  options.patience_ns = kNeverNs;  // rank 0 may be long in coming
  options.what = "rank 0's meeting point";
  TRY_ASSIGN(const Won won, probe(options));
  IdFields fields = static_cast<const HandoutOpening&>(*won.opening).fields();
  // Where rank 0 was found it can be found again, whatever it thinks its addresses are.
  if (won.address.storage.ss_family != AF_UNIX) {
    fields.addresses.insert(fields.addresses.begin(), won.address);
    if (fields.addresses.size() > kMaxIdAddresses) fields.addresses.resize(kMaxIdAddresses);
  }
  return encode_id(fields);
}

}  // namespace unisono::bootstrap

namespace unisono {

Result<std::vector<std::string>> exchange(const UniqueId& id, int32_t ranks, int32_t rank,
                                          const std::string& payload, int64_t deadline_ns) {
  using namespace bootstrap;
  if (net::is_forked_child()) {
    return error(Code::kInvalidUsage,
                 "a forked child of a user of this library cannot meet others");
  }
  if (payload.size() > kMaxPayloadBytes) {
    return error(Code::kInternalError, "a payload of {} bytes exceeds {}", payload.size(),
                 kMaxPayloadBytes);
  }
  if (ranks == 1 && rank == 0) {
    withdraw_meeting(id);  // nobody else will come
    return std::vector<std::string>{payload};
  }
  TRY_ASSIGN(const IdFields fields, decode_id(id));
  Result<std::vector<std::string>> table = [&]() -> Result<std::vector<std::string>> {
    TRY_ASSIGN(Won won, connect_to(fields, deadline_ns, kRefusedNs));
    return Exchange(std::move(won.fd), ranks, rank, deadline_ns).run(payload);
  }();
  // If this process serves the meeting, it must not end before all have their answer.
  finish_locally(fields.job, deadline_ns);
  return table;
}

}  // namespace unisono
