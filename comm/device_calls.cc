#include "comm/device_calls.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "comm/device_link.h"

namespace unisono {
namespace {

constexpr const char* kAlgorithm = "nccl";

DeviceCall device_call(const Call& call) {
  DeviceCall result;
  result.collective = call.collective;
  result.type = call.type;
  result.op = call.op;
  result.op_handle = call.op_handle;
  result.root = call.root;
  result.count = call.count;
  result.send = call.send;
  result.recv = call.recv;
  if (call.blocks != nullptr) {
    result.lengths = &call.blocks->lengths;
    result.offsets = &call.blocks->offsets;
  }
  return result;
}

// One issue_on_device: works by communicator and queue, whose links stay locked meanwhile.
class Batch {
 public:
  explicit Batch(std::span<const DeviceItem> items) : items_(items) {
    for (const DeviceItem& item : items) links_.push_back(item.comm->device());
    std::sort(links_.begin(), links_.end());  // one order of locking for all threads
    links_.erase(std::unique(links_.begin(), links_.end()), links_.end());
  }

  Status run() {
    Status status;
    {
      std::vector<std::unique_lock<std::mutex>> locks;
      for (DeviceLink* link : links_) locks.emplace_back(link->mutex());
      TRY(check_usable());
      status = call_all();
      if (!status.ok()) fail_all(status);
    }
    for (DeviceLink* link : links_) {
      const Status launched = launch(*link);
      if (status.ok()) status = launched;
    }
    for (const auto& [key, work] : works_) {
      if (work->stream) continue;
      const Status waited = key.first->await(*work);
      if (status.ok()) status = waited;
    }
    return status;
  }

 private:
  using Key = std::pair<DeviceLink*, DeviceQueue>;

  Status check_usable() const {
    for (DeviceLink* link : links_) {
      const Communicator& comm = link->communicator();
      if (comm.failed()) return comm.status().annotate("the communicator has failed");
      if (link->provider() == nullptr) return error(Code::kInvalidUsage, "comm: is finalized");
    }
    return {};
  }

  // The group is one: what fails in it leaves none of its communicators usable.
  void fail_all(const Status& status) const {
    for (DeviceLink* link : links_) link->communicator().fail(status);
  }

  Status call_all() {
    DeviceRuntime& runtime = links_.front()->runtime();
    for (const DeviceItem& item : items_) TRY(open(item));
    TRY(runtime.group_start());
    Status status;
    for (const DeviceItem& item : items_) {
      status = call(item);
      if (!status.ok()) break;
    }
    const Status ended = runtime.group_end();  // in any case
    return status.ok() ? ended : status;
  }

  static DeviceQueue queue_of(const DeviceItem& item) {
    return item.stream ? item.stream->queue() : item.comm->device()->own_queue();
  }

  Status open(const DeviceItem& item) {
    DeviceLink& link = *item.comm->device();
    const Key key{&link, queue_of(item)};
    if (works_.count(key) != 0) return {};
    const OnDevice on_device(link.runtime(), link.device());
    TRY(on_device.status());
    TRY_ASSIGN(works_[key], link.begin(key.second, item.stream));
    return {};
  }

  Status call(const DeviceItem& item) {
    DeviceLink& link = *item.comm->device();
    DeviceWork& work = *works_.at({&link, queue_of(item)});
    if (item.is_transfer) {
      note_transfer(work, item);
      const Transfer& t = item.transfer;
      return link.provider()
          ->transfer({t.receive, t.data, t.count, t.type, t.peer}, work.queue)
          .annotate(work.first_transfer);
    }
    note_call(work, item);
    return link.provider()
        ->collective(device_call(item.call), work.queue)
        .annotate(describe(work.calls.back()));
  }

  static void note_transfer(DeviceWork& work, const DeviceItem& item) {
    const Transfer& t = item.transfer;
    if (work.transfers++ != 0) return;
    work.first_transfer =
        fmt::format("{} {} ({}, count {}, {})", t.receive ? "recv from" : "send to",
                    item.comm->peer_name(t.peer), type_name(t.type), t.count, kAlgorithm);
  }

  static void note_call(DeviceWork& work, const DeviceItem& item) {
    Communicator& comm = *item.comm;
    const uint64_t sequence = comm.next_sequence();
    const uint64_t hash = call_hash(item.call, 0);
    const uint64_t before = comm.extend_history(hash);
    const uint64_t fingerprint = fingerprint_of(comm.history(), sequence);
    comm.recorder().record(sequence, fingerprint, before, item.call, kAlgorithm);
    comm.note_algorithm(kAlgorithm);
    work.calls.push_back(*comm.recorder().find(sequence));
  }

  // Waits until the library has put everything on its queues, and closes the works there.
  Status launch(DeviceLink& link) {
    const auto mine = [&](const auto& entry) { return entry.first.first == &link; };
    const auto first = std::find_if(works_.begin(), works_.end(), mine);
    if (first == works_.end()) return link.communicator().status();
    TRY(link.await_progress(first->second->describe().c_str()));
    const std::lock_guard lock(link.mutex());
    if (link.communicator().failed()) return link.communicator().status();
    const OnDevice on_device(link.runtime(), link.device());
    Status status = on_device.status();
    for (const auto& [key, work] : works_) {
      if (key.first == &link && status.ok()) status = link.launched(*work);
    }
    if (!status.ok()) link.communicator().fail(status.annotate(first->second->describe()));
    return status;
  }

  std::span<const DeviceItem> items_;
  std::vector<DeviceLink*> links_;
  std::map<Key, std::shared_ptr<DeviceWork>> works_;
};

}  // namespace

Status issue_on_device(std::span<const DeviceItem> items) {
  return items.empty() ? ok_status() : Batch(items).run();
}

Status refuse_stream(const Communicator& comm, const Stream& stream) {
  const bool on_device = stream.device() != nullptr;
  if (on_device == (comm.device() != nullptr)) return {};
  if (on_device) {
    return error(Code::kInvalidArgument,
                 "stream: wraps a CUDA stream, and the communicator was not made with "
                 "config.device = \"cuda\"");
  }
  return error(Code::kInvalidArgument,
               "stream: is a host stream, which cannot order work on device buffers; "
               "uniStreamWrapCuda makes one that can");
}

Status ask_device(const Communicator& comm, const Call& call) {
  return comm.device()->supports(device_call(call));
}

}  // namespace unisono
