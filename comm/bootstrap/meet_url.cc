// meet_by_url: which meeting point, and who serves it.
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <ctime>

#include "base/env.h"
#include "base/log.h"
#include "comm/bootstrap/job_secret.h"
#include "comm/bootstrap/meet.h"
#include "comm/bootstrap/torch_store_client.h"

namespace unisono::bootstrap {
namespace {

constexpr int64_t kBindWithinNs = 2'000'000'000;  // for a port that a dying process still holds
constexpr int64_t kBindPauseNs = 50'000'000;

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

struct HostPort {
  std::string host;
  int port = 0;
};
// "host:port", "[v6]:port"; a trailing "/" is forgiven.
Result<HostPort> split_host_port(std::string_view text, std::string_view variable) {
  if (!text.empty() && text.back() == '/') text.remove_suffix(1);
  const size_t colon = text.rfind(':');
  HostPort result;
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    result.host = host;
    const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), result.port);
    if (code != std::errc() || end != port.data() + port.size()) result.port = 0;
  }
  if (result.host.empty() || result.port < 1 || result.port > 65535) {
    return error(Code::kInvalidArgument, "{}: '{}' is not host:port", variable, text);
  }
  return result;
}

// As in a URL: an IPv6 address in brackets.
std::string place_text(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

// For the reader of an error.
std::string own_addresses() {
  std::string text;
  if (const auto addresses = net::local_addresses(""); addresses.ok()) {
    for (const net::Address& address : *addresses) {
      const std::string one = address.text();
      text += fmt::format("{}{}", text.empty() ? "" : ", ", one.substr(0, one.rfind(':')));
    }
  }
  return text.empty() ? "no address at all" : text;
}

Result<UniqueId> meet_at_tcp(const std::string& host, int port, std::string_view variable,
                             int32_t rank, const std::optional<net::Secret>& job_key,
                             int64_t deadline_ns) {
  auto addresses = net::resolve_host(host, port);
  if (!addresses.ok()) return addresses.status().annotate(variable);
  if (!job_key && rank == 0) {
    log_info("unauthenticated start: without UNISONO_JOB_SECRET whoever reaches {} gets the id",
             place_text(host, port));
  }
  auto id = meet_at_addresses(*addresses, rank, job_key, deadline_ns);
  if (id.ok()) return id;
  const Status status =
      id.status().annotate(fmt::format("{} {}", variable, place_text(host, port)));
  if (rank != 0 || id.status().code() != Code::kSystemError) return status;
  return error(Code::kSystemError, "{} (rank 0 listens there; this host has {})", status.message(),
               own_addresses());
}

Result<UniqueId> meet_at_unix(const std::string& name, std::string_view variable, int32_t rank,
                              const std::optional<net::Secret>& job_key, int64_t deadline_ns) {
  if (name.empty() || name.size() > 100) {
    return error(Code::kInvalidArgument, "{}: a unix name has 1 to 100 bytes", variable);
  }
  auto id = meet_at_addresses({net::unix_address(name)}, rank, job_key, deadline_ns);
  if (!id.ok()) return id.status().annotate(fmt::format("{} unix:{}", variable, name));
  return id;
}

Result<UniqueId> meet_by_environment(const Environment& env, int32_t ranks, int32_t rank,
                                     const std::optional<net::Secret>& job_key, int64_t deadline_ns,
                                     std::string* how) {
  if (!env.meeting.empty()) {
    std::string_view rest = env.meeting;
    *how = env.meeting + " (uni-run)";
    if (take_prefix(rest, "unix:")) {
      return meet_at_unix(std::string(rest), "UNISONO_MEETING", rank, job_key, deadline_ns);
    }
    if (!take_prefix(rest, "tcp://")) {
      return error(Code::kInvalidArgument,
                   "UNISONO_MEETING: '{}' is neither unix:NAME nor tcp://host:port", env.meeting);
    }
    TRY_ASSIGN(const HostPort place, split_host_port(rest, "UNISONO_MEETING"));
    return meet_at_tcp(place.host, place.port, "UNISONO_MEETING", rank, job_key, deadline_ns);
  }
  if (env.use_agent_store) {
    *how = fmt::format("tcp://{} (torchrun's agent store)",
                       place_text(env.master_addr, env.master_port));
    return meet_at_agent_store(env, rank, job_key, deadline_ns);
  }
  if (!env.master_addr.empty() && env.master_port > 0) {
    *how = fmt::format("tcp://{} (MASTER_ADDR)", place_text(env.master_addr, env.master_port));
    return meet_at_tcp(env.master_addr, env.master_port, "MASTER_ADDR", rank, job_key, deadline_ns);
  }
  if (!env.master_addr.empty()) return error(Code::kInvalidArgument, "MASTER_PORT: not set");
  if (env.master_port > 0) return error(Code::kInvalidArgument, "MASTER_ADDR: not set");
  return meet_by_launcher(env, ranks, rank, job_key, deadline_ns, how);
}

// The arguments, or what the launcher says where they are -1.
Status find_place(const Environment& env, bool by_environment, Place* place) {
  if (by_environment && place->ranks == -1 && place->rank == -1) {
    if (env.rank == -1 && env.world_size == -1) {
      place->ranks = 1;  // started by nobody: alone
      place->rank = 0;
      return ok_status();
    }
    if (env.world_size == -1) {
      return error(Code::kInvalidArgument, "WORLD_SIZE: not set, but the rank is ({})",
                   env.launcher);
    }
    place->ranks = env.world_size;
    place->rank = env.rank;
  }
  if (place->ranks < 1 || place->ranks > kMaxRanks) {
    return error(Code::kInvalidArgument, "ranks: {} is not in 1..{}", place->ranks, kMaxRanks);
  }
  if (place->rank < 0 || place->rank >= place->ranks) {
    return error(Code::kInvalidArgument, "rank: {} is not in 0..{}", place->rank, place->ranks - 1);
  }
  return ok_status();
}

// For a rank that meets nobody: nothing is served.
UniqueId lone_id() {
  IdFields fields;
  fill_random(&fields.job, sizeof(fields.job));
  fill_random(fields.secret.data(), fields.secret.size());
  return encode_id(fields);
}

}  // namespace

Result<UniqueId> meet_at_addresses(const std::vector<net::Address>& addresses, int32_t rank,
                                   const std::optional<net::Secret>& job_key, int64_t deadline_ns,
                                   uint64_t tag) {
  if (rank != 0) return fetch_unique_id(addresses, job_key, deadline_ns, tag);
  const int64_t give_up_ns = std::min(deadline_ns, real_env().now_ns() + kBindWithinNs);
  for (;;) {
    ServeOptions options;
    options.handout = addresses;
    options.job_key = job_key;
    options.tag = tag;
    auto id = serve_meeting(std::move(options));
    if (id.ok() || id.status().code() != Code::kSystemError) return id;
    if (real_env().now_ns() >= give_up_ns) return id;
    const timespec pause{0, kBindPauseNs};
    (void)nanosleep(&pause, nullptr);
  }
}

std::string publish_id(const UniqueId& id, const std::optional<net::Secret>& job_key) {
  UniqueId published = id;
  auto fields = decode_id(id);
  CHECK(fields.ok());
  if (job_key) {
    fields->secret = {};
    published = encode_id(*fields);
  }
  return {published.bytes.data(), published.bytes.size()};
}

Result<UniqueId> read_published_id(std::string_view bytes,
                                   const std::optional<net::Secret>& job_key) {
  UniqueId id;
  if (bytes.size() != id.bytes.size()) {
    return error(Code::kRemoteError, "what was published has {} bytes and is no id", bytes.size());
  }
  std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
  TRY_ASSIGN(IdFields fields, decode_id(id));
  const bool without_secret = fields.secret == net::Secret{};
  if (without_secret != job_key.has_value()) {
    return error(Code::kInvalidArgument,
                 "UNISONO_JOB_SECRET: rank 0 has {} job secret, this rank has {}",
                 without_secret ? "a" : "no", job_key ? "one" : "none");
  }
  if (job_key) fields.secret = derived_secret(*job_key, fields.job);
  return encode_id(fields);
}

Result<UniqueId> meet_at_agent_store(const Environment& env, int32_t rank,
                                     const std::optional<net::Secret>& job_key,
                                     int64_t deadline_ns) {
  if (env.master_addr.empty()) return error(Code::kInvalidArgument, "MASTER_ADDR: not set");
  if (env.master_port <= 0) return error(Code::kInvalidArgument, "MASTER_PORT: not set");
  // The n-th meeting of each process is one meeting: ranks initialise in the same order.
  static std::atomic<int> meetings{0};
  const std::string key =
      fmt::format("unisono/{}/{}/{}", env.run_id, env.restart_count, meetings.fetch_add(1));
  const std::string where = fmt::format("torchrun's agent store (MASTER_ADDR {}, MASTER_PORT {})",
                                        env.master_addr, env.master_port);
  auto store = TorchStoreClient::connect(env.master_addr, env.master_port, deadline_ns);
  if (!store.ok()) return store.status().annotate(where);
  if (rank == 0) {
    ServeOptions options;
    options.job_key = job_key;
    TRY_ASSIGN(const UniqueId id, serve_meeting(std::move(options)));
    const Status status = store->set(key, publish_id(id, job_key), deadline_ns);
    if (status.ok()) return id;
    withdraw_meeting(id);
    return status.annotate(where);
  }
  auto published = store->get(key, deadline_ns);
  if (!published.ok()) return published.status().annotate(where);
  return read_published_id(*published, job_key);
}

Result<Place> meet(const std::string& url, int32_t ranks, int32_t rank, const Environment& env,
                   const std::optional<net::Secret>& job_key, int64_t deadline_ns) {
  if (!env.problem.empty()) return error(Code::kInvalidArgument, "{}", env.problem);
  std::string_view rest = url;
  const bool by_environment = url.empty() || rest == "env://" || rest == "env:";
  Place place;
  place.ranks = ranks;
  place.rank = rank;
  TRY(find_place(env, by_environment, &place));
  place.how = url;
  if (place.ranks == 1) {
    place.id = lone_id();
    place.how = "alone";
    return place;
  }
  // Before anybody waits: else only the rank that listens would say it.
  if (!env.interfaces.empty()) {
    if (auto usable = net::local_addresses(env.interfaces); !usable.ok()) return usable.status();
  }
  if (by_environment) {
    TRY_ASSIGN(place.id,
               meet_by_environment(env, place.ranks, place.rank, job_key, deadline_ns, &place.how));
  } else if (take_prefix(rest, "tcp://")) {
    TRY_ASSIGN(const HostPort at, split_host_port(rest, "url"));
    TRY_ASSIGN(place.id, meet_at_tcp(at.host, at.port, "url", place.rank, job_key, deadline_ns));
  } else if (take_prefix(rest, "file://")) {
    TRY_ASSIGN(place.id, meet_at_file(std::string(rest), place.rank, deadline_ns));
  } else {
    return error(Code::kInvalidArgument,
                 "url: '{}' is none of tcp://host:port, file:///path, env://", url);
  }
  return place;
}

}  // namespace unisono::bootstrap

namespace unisono {

Result<Place> meet_by_url(const std::string& url, int32_t ranks, int32_t rank,
                          int64_t deadline_ns) {
  TRY_ASSIGN(const std::optional<net::Secret> key, bootstrap::job_secret());
  return bootstrap::meet(url, ranks, rank, environment(), key, deadline_ns);
}

}  // namespace unisono
