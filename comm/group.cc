#include "comm/group.h"

#include <algorithm>
#include <map>

#include "comm/collective_operation.h"
#include "comm/device_calls.h"
#include "comm/driver.h"

namespace unisono {
namespace {

struct Pending {
  Communicator* comm = nullptr;
  Stream* stream = nullptr;
  bool is_transfer = false;
  Call call;
  Transfer transfer;
};

struct Group {
  std::vector<Pending> calls;
  Status refused;
};

thread_local Group group;

std::unique_ptr<CollectiveOperation> make_collective(Communicator& comm, const Call& call) {
  auto operation = std::make_unique<CollectiveOperation>(comm);
  operation->set(call);
  return operation;
}

void take_ticket(Operation& operation) {
  Communicator& comm = operation.communicator();
  operation.ticket = comm.issue();
  operation.timeout_ms = comm.timeout_ms();
}

// Program order gives the tickets; neighbouring transfers of one communicator and stream become one
// operation.
std::map<Stream*, std::vector<std::unique_ptr<Operation>>> build(
    const std::vector<Pending>& calls) {
  std::map<Stream*, std::vector<std::unique_ptr<Operation>>> lists;
  std::map<Communicator*, std::pair<Stream*, PairOperation*>> open;
  for (const Pending& pending : calls) {
    auto& list = lists[pending.stream];
    auto& [stream, pairs] = open[pending.comm];
    if (!pending.is_transfer) {
      pairs = nullptr;
      list.push_back(make_collective(*pending.comm, pending.call));
      take_ticket(*list.back());
      continue;
    }
    if (pairs == nullptr || stream != pending.stream) {
      auto operation = std::make_unique<PairOperation>(*pending.comm);
      stream = pending.stream;
      pairs = operation.get();
      take_ticket(*operation);
      list.push_back(std::move(operation));
    }
    pairs->add(pending.transfer);
  }
  return lists;
}

Status drive_here(const std::vector<std::unique_ptr<Operation>>& operations) {
  std::vector<Operation*> list;
  for (const auto& operation : operations) list.push_back(operation.get());
  return drive(list);
}

Status enqueue_one(Stream& stream, std::unique_ptr<Operation> operation) {
  TRY(stream.attach(operation->communicator()));
  take_ticket(*operation);
  StreamWork work;
  work.operations.push_back(std::move(operation));
  return stream.enqueue(std::move(work));
}

DeviceItem device_item(const Pending& pending) {
  DeviceItem item;
  item.comm = pending.comm;
  if (pending.stream != nullptr) item.stream = pending.stream->device();
  item.is_transfer = pending.is_transfer;
  item.call = pending.call;
  item.transfer = pending.transfer;
  return item;
}

// Takes the calls of communicators with a device out of a group's.
std::vector<DeviceItem> take_device_items(std::vector<Pending>* calls) {
  std::vector<DeviceItem> items;
  for (const Pending& pending : *calls) {
    if (pending.comm->device() != nullptr) items.push_back(device_item(pending));
  }
  if (!items.empty()) {
    std::erase_if(*calls, [](const Pending& p) { return p.comm->device() != nullptr; });
  }
  return items;
}

}  // namespace

constinit thread_local int group_depth = 0;

Status issue_collective(Communicator& comm, const Call& call, Stream* stream) {
  if (__builtin_expect(group_depth > 0, 0)) {
    group.calls.push_back({&comm, stream, false, call, {}});
    return {};
  }
  if (__builtin_expect(comm.device() != nullptr, 0)) {
    const DeviceItem item = device_item({&comm, stream, false, call, {}});
    return issue_on_device({&item, 1});
  }
  return issue_on_host(comm, call, stream);
}

Status issue_on_host(Communicator& comm, const Call& call, Stream* stream) {
  if (stream != nullptr) return enqueue_one(*stream, make_collective(comm, call));
  const bool simulated = comm.world() != nullptr;
  if (simulated) comm.env().enter(comm.rank());
  CollectiveOperation& operation = comm.blocking_operation();
  operation.set(call);
  take_ticket(operation);
  Status status = drive_one(operation);
  if (simulated) comm.env().leave(comm.rank());
  return status;
}

Status issue_transfers(Communicator& comm, std::span<const Transfer> transfers, Stream* stream) {
  if (group_depth > 0) {
    for (const Transfer& transfer : transfers) {
      group.calls.push_back({&comm, stream, true, {}, transfer});
    }
    return {};
  }
  if (comm.device() != nullptr) {
    std::vector<DeviceItem> items;
    for (const Transfer& transfer : transfers) {
      items.push_back(device_item({&comm, stream, true, {}, transfer}));
    }
    return issue_on_device(items);
  }
  auto operation = std::make_unique<PairOperation>(comm);
  for (const Transfer& transfer : transfers) operation->add(transfer);
  if (stream != nullptr) return enqueue_one(*stream, std::move(operation));
  comm.env().enter(comm.rank());
  take_ticket(*operation);
  Status status = drive_one(*operation);
  comm.env().leave(comm.rank());
  return status;
}

void group_start() {
  group_depth++;
}

bool group_uses(const Communicator& comm) {
  return std::any_of(group.calls.begin(), group.calls.end(),
                     [&](const Pending& pending) { return pending.comm == &comm; });
}

bool group_uses(const Stream& stream) {
  return std::any_of(group.calls.begin(), group.calls.end(),
                     [&](const Pending& pending) { return pending.stream == &stream; });
}

void group_note(const Status& status) {
  if (group_depth > 0 && group.refused.ok()) group.refused = status;
}

Status group_end() {
  if (group_depth == 0) return error(Code::kInvalidUsage, "uniGroupEnd without uniGroupStart");
  if (--group_depth > 0) return {};
  std::vector<Pending> calls = std::exchange(group.calls, {});
  const Status refused = std::exchange(group.refused, Status());
  if (!refused.ok()) return refused.annotate("nothing of the group was issued");
  const std::vector<DeviceItem> on_device = take_device_items(&calls);
  for (const Pending& pending : calls) {
    if (pending.stream != nullptr) TRY(pending.stream->attach(*pending.comm));
  }
  auto lists = build(calls);
  Status first = issue_on_device(on_device);
  for (auto& [stream, operations] : lists) {
    if (stream == nullptr) continue;
    StreamWork work;
    work.operations = std::move(operations);
    if (Status status = stream->enqueue(std::move(work)); first.ok()) first = status;
  }
  if (auto here = lists.find(nullptr); here != lists.end()) {
    if (Status status = drive_here(here->second); first.ok()) first = status;
  }
  return first;
}

}  // namespace unisono
