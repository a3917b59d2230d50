// What the double's collectives compute, and how sends find their receives.
#include <cstring>
#include <type_traits>

#include "base/types.h"
#include "comm/reduce/half.h"
#include "tests/nccl_double/state.h"

namespace unisono::nccl::nccl_double {
namespace {

size_t bytes_of(NcclType type) {
  return type_bytes(static_cast<DataType>(type));
}

template <class Value>
double load_as(const void* base, size_t i) {
  Value value;
  std::memcpy(&value, static_cast<const char*>(base) + i * sizeof value, sizeof value);
  return static_cast<double>(value);
}

template <class Value>
void store_as(void* base, size_t i, double from) {
  Value value{};
  if constexpr (std::is_floating_point_v<Value>) {
    value = static_cast<Value>(from);
  } else {
    value = static_cast<Value>(static_cast<int64_t>(from));  // wraps
  }
  std::memcpy(static_cast<char*>(base) + i * sizeof value, &value, sizeof value);
}

double load(NcclType type, const void* base, size_t i) {
  switch (type) {
    case kInt8:
      return load_as<int8_t>(base, i);
    case kUint8:
      return load_as<uint8_t>(base, i);
    case kInt32:
      return load_as<int32_t>(base, i);
    case kUint32:
      return load_as<uint32_t>(base, i);
    case kInt64:
      return load_as<int64_t>(base, i);
    case kUint64:
      return load_as<uint64_t>(base, i);
    case kFloat32:
      return load_as<float>(base, i);
    case kFloat64:
      return load_as<double>(base, i);
    default: {
      uint16_t bits = 0;
      std::memcpy(&bits, static_cast<const char*>(base) + 2 * i, sizeof bits);
      return static_cast<double>(type == kFloat16 ? float16_to_float(bits)
                                                  : bfloat16_to_float(bits));
    }
  }
}

void store(NcclType type, void* base, size_t i, double value) {
  switch (type) {
    case kInt8:
      return store_as<int8_t>(base, i, value);
    case kUint8:
      return store_as<uint8_t>(base, i, value);
    case kInt32:
      return store_as<int32_t>(base, i, value);
    case kUint32:
      return store_as<uint32_t>(base, i, value);
    case kInt64:
      return store_as<int64_t>(base, i, value);
    case kUint64:
      return store_as<uint64_t>(base, i, value);
    case kFloat32:
      return store_as<float>(base, i, value);
    case kFloat64:
      return store_as<double>(base, i, value);
    default: {
      const auto single = static_cast<float>(value);
      const uint16_t bits = type == kFloat16 ? float_to_float16(single) : float_to_bfloat16(single);
      std::memcpy(static_cast<char*>(base) + 2 * i, &bits, sizeof bits);
    }
  }
}

double combine(NcclOp op, double a, double b) {
  switch (op) {
    case kProd:
      return a * b;
    case kMax:
      return a > b ? a : b;
    case kMin:
      return a < b ? a : b;
    default:
      return a + b;
  }
}

// Element `i` of the reduced vector.
double reduced(const Task& task, const Slot& slot, size_t i) {
  double value = 0;
  for (size_t r = 0; r < slot.parts.size(); r++) {
    const double next = load(task.type, slot.parts[r].send, i) * slot.parts[r].scalar;
    value = r == 0 ? next : combine(task.op, value, next);
  }
  return task.op == kAvg ? value / static_cast<double>(slot.parts.size()) : value;
}

// First everything is read, then written: in place is allowed.
void compute_reduction(const Task& task, Slot& slot) {
  const size_t ranks = slot.parts.size();
  const bool scatters = task.kind == Task::kReduceScatter;
  std::vector<double> values(task.count * (scatters ? ranks : 1));
  for (size_t i = 0; i < values.size(); i++) values[i] = reduced(task, slot, i);
  for (size_t r = 0; r < ranks; r++) {
    if (task.kind == Task::kReduce && static_cast<int>(r) != task.root) continue;
    const size_t first = scatters ? r * task.count : 0;
    for (size_t i = 0; i < task.count; i++) {
      store(task.type, slot.parts[r].recv, i, values[first + i]);
    }
  }
}

void compute_copies(const Task& task, Slot& slot) {
  const size_t ranks = slot.parts.size(), block = task.count * bytes_of(task.type);
  const auto root = static_cast<size_t>(task.root);
  const auto copy = [&](size_t to, size_t to_block, size_t from, size_t from_block) {
    if (block == 0) return;
    std::memmove(static_cast<char*>(slot.parts[to].recv) + to_block * block,
                 static_cast<const char*>(slot.parts[from].send) + from_block * block, block);
  };
  for (size_t a = 0; a < ranks; a++) {
    if (task.kind == Task::kBroadcast) copy(a, 0, root, 0);
    if (task.kind == Task::kGather) copy(root, a, a, 0);
    if (task.kind == Task::kScatter) copy(a, 0, root, a);
    for (size_t b = 0; b < ranks; b++) {
      if (task.kind == Task::kAllGather) copy(a, b, b, 0);
      if (task.kind == Task::kAllToAll) copy(a, b, b, a);
    }
  }
}

// How many blocks of `count` each buffer of this rank holds.
void check_buffers(const Task& task) {
  const size_t block = task.count * bytes_of(task.type);
  const auto ranks = static_cast<size_t>(task.comm->clique->ranks);
  const bool root = task.comm->rank == task.root;
  size_t send = 1, recv = 1;
  switch (task.kind) {
    case Task::kReduce:
      recv = root;
      break;
    case Task::kBroadcast:
      send = root;
      break;
    case Task::kAllGather:
      recv = ranks;
      break;
    case Task::kReduceScatter:
      send = ranks;
      break;
    case Task::kAllToAll:
      send = recv = ranks;
      break;
    case Task::kGather:
      recv = root ? ranks : 0;
      break;
    case Task::kScatter:
      send = root ? ranks : 0;
      break;
    case Task::kSend:
      recv = 0;
      break;
    case Task::kRecv:
      send = 0;
      break;
    default:
      break;
  }
  check_buffer("send", task.send, send * block);
  check_buffer("recv", task.recv, recv * block);
}

std::string shape(const Task& task) {
  std::string text;
  const int op = task.op > kAvg ? static_cast<int>(kAvg) + 1 : static_cast<int>(task.op);
  for (const size_t word :
       {static_cast<size_t>(task.kind), task.count, static_cast<size_t>(task.type),
        static_cast<size_t>(op), static_cast<size_t>(task.root)}) {
    text += std::to_string(word) + ' ';
  }
  return text;
}

void arrive_pair(Task& task) {
  Clique& clique = *task.comm->clique;
  const bool sends = task.kind == Task::kSend;
  const auto key =
      sends ? std::pair(task.comm->rank, task.root) : std::pair(task.root, task.comm->rank);
  auto half = std::make_shared<Half>();
  half->data = sends ? const_cast<void*>(task.send) : task.recv;
  half->bytes = task.count * bytes_of(task.type);
  half->what = std::to_string(task.count) + " of " + std::to_string(task.type);
  task.half = half;
  auto& others = sends ? clique.recvs[key] : clique.sends[key];
  if (others.empty()) {
    (sends ? clique.sends : clique.recvs)[key].push_back(half);
    return;
  }
  const std::shared_ptr<Half> other = others.front();
  others.pop_front();
  if (other->what != half->what) return;  // neither ends, as with the real one
  if (half->bytes != 0) {
    std::memcpy(sends ? other->data : half->data, sends ? half->data : other->data, half->bytes);
  }
  half->done = other->done = true;
}

}  // namespace

double load_scalar(NcclType type, const void* scalar) {
  return load(type, scalar, 0);
}

void arrive(Task& task) {
  check_buffers(task);
  state().changed.notify_all();
  if (task.kind == Task::kSend || task.kind == Task::kRecv) return arrive_pair(task);
  Slot& slot = *task.slot;
  if (slot.what.empty()) {
    slot.what = shape(task);
    slot.parts.resize(static_cast<size_t>(task.comm->clique->ranks));
  }
  if (slot.what != shape(task)) slot.broken = true;  // none ends, as with the real one
  auto& part = slot.parts[static_cast<size_t>(task.comm->rank)];
  part = {task.send, task.recv, task.scalar, true};
  if (++slot.arrived != slot.parts.size() || slot.broken) return;
  const bool reduces = task.kind == Task::kAllReduce || task.kind == Task::kReduce ||
                       task.kind == Task::kReduceScatter;
  if (reduces) {
    compute_reduction(task, slot);
  } else {
    compute_copies(task, slot);
  }
  slot.done = true;
}

bool finished(const Task& task) {
  return task.half ? task.half->done : task.slot->done;
}

void withdraw(Task& task) {
  if (task.slot) {
    task.slot->broken = true;
    return;
  }
  Clique& clique = *task.comm->clique;
  for (auto* all : {&clique.sends, &clique.recvs}) {
    for (auto& [key, queue] : *all) std::erase(queue, task.half);
  }
}

}  // namespace unisono::nccl::nccl_double
