// The device's part of CommunicatorBuilder: finding its library, and meeting the ranks in it.
#include "base/log.h"
#include "comm/communicator_builder.h"
#include "comm/device_link.h"

namespace unisono {
namespace {

constexpr size_t kMaxProblem = 1024;
constexpr const char* kIdKey = "device id";
constexpr const char* kReadyKey = "device ready";
constexpr const char* kGoKey = "device go";

}  // namespace

// What is missing is said to all ranks, so that none waits for this one: join() fails on each.
void CommunicatorBuilder::find_device() {
  const Settings& settings = comm_->settings_;
  if (settings.device.empty()) return;
  const auto find = [&]() -> Status {
    TRY_ASSIGN(runtime_, find_provider(settings.device)->runtime());
    TRY_ASSIGN(const int32_t count, runtime_->device_count());
    if (settings.device_index >= count) {
      return error(Code::kInvalidArgument, "there is no device {}: this machine has {}",
                   settings.device_index, count);
    }
    TRY_ASSIGN(device_, runtime_->current_device());
    if (settings.device_index >= 0) device_ = settings.device_index;
    return {};
  };
  if (Status status = find(); !status.ok()) {
    const std::string text =
        fmt::format("config.device: {}: {}", settings.device, status.message());
    device_problem_ = text.substr(0, kMaxProblem);
  }
}

Status CommunicatorBuilder::check_devices(const std::vector<RankEntry>& entries) const {
  for (size_t r = 0; r < entries.size(); r++) {
    if (entries[r].device_problem.empty()) continue;
    return error(Code::kInvalidArgument, "{} (on rank {})", entries[r].device_problem, r);
  }
  const RankEntry& zero = entries[0];
  const auto words = [](const std::string& device) { return device.empty() ? "cpu" : device; };
  for (size_t r = 1; r < entries.size(); r++) {
    if (entries[r].device != zero.device) {
      return error(Code::kInvalidArgument, "config.device: rank {} wants '{}', rank 0 '{}'", r,
                   words(entries[r].device), words(zero.device));
    }
    if (entries[r].device_version != zero.device_version) {
      return error(Code::kInvalidArgument,
                   "config.device: rank {}'s library has version {}, rank 0's {}: all ranks must "
                   "have the same",
                   r, entries[r].device_version, zero.device_version);
    }
  }
  return {};
}

// Through an id of rank 0's.
Result<std::unique_ptr<CollectiveProvider>> CommunicatorBuilder::meet_on_device() {
  Communicator& c = *comm_;
  std::string id;
  if (c.rank_ == 0) {
    TRY_ASSIGN(id, runtime_->make_id());
    for (int32_t r = 1; r < c.ranks(); r++) c.control_->post(r, kIdKey, id);
  } else {
    TRY_ASSIGN(id, c.control_->await(0, kIdKey, deadline_ns_));
  }
  TRY_ASSIGN(auto provider, runtime_->create(id, c.ranks(), c.rank_));
  for (Pace pace(*c.env_);; pace.wait()) {
    const Status status = provider->progress();
    if (status.ok()) return provider;
    if (status.code() != Code::kInProgress) return status;
    if (c.failed()) return c.status();
    if (c.env_->now_ns() > deadline_ns_) {
      return error(Code::kTimeout, "start-up: not all ranks have come to the device's library");
    }
  }
}

// No rank goes on before all are there: the failure of one is every rank's.
Status CommunicatorBuilder::settle_device(Status status) {
  Communicator& c = *comm_;
  if (!status.ok()) {
    status = status.annotate("config.device");
    c.fail(status);
    return status;
  }
  if (c.ranks() == 1) return {};
  if (c.rank_ != 0) {
    c.control_->post(0, kReadyKey, "");
    return c.control_->await(0, kGoKey, deadline_ns_).status();
  }
  for (int32_t r = 1; r < c.ranks(); r++) {
    TRY(c.control_->await(r, kReadyKey, deadline_ns_).status());
  }
  for (int32_t r = 1; r < c.ranks(); r++) c.control_->post(r, kGoKey, "");
  return {};
}

Status CommunicatorBuilder::connect_device(std::unique_ptr<CollectiveProvider> provider) {
  if (runtime_ == nullptr) return {};
  Communicator& c = *comm_;
  const auto connect = [&]() -> Status {
    const OnDevice on_device(*runtime_, device_);
    TRY(on_device.status());
    if (provider == nullptr) {
      TRY_ASSIGN(provider, meet_on_device());
    }
    TRY_ASSIGN(c.device_, DeviceLink::create(c, *runtime_, std::move(provider), device_));
    return {};
  };
  TRY(settle_device(connect()));
  log_info("{}: rank {} on {} {}: {}", c.settings_.name, c.rank_, c.settings_.device, device_,
           runtime_->describe());
  return {};
}

}  // namespace unisono
