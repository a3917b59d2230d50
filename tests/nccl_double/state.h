// What the double keeps. One lock for everything: it is a double.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/nccl_double/nccl_double.h"

namespace unisono::nccl {

struct Stream {
  explicit Stream(int on) : device(on) {}
  int device;
  bool capturing = false, stop = false;
  uint64_t queued = 0, done = 0;
  std::deque<std::function<void(std::unique_lock<std::mutex>&)>> queue;  // run with the lock
  std::thread worker;
};

struct Event {
  int device = 0;
  std::shared_ptr<bool> reached;  // of the last record
};

namespace nccl_double {

inline constexpr int kDevices = 8;
inline constexpr int kLag = 3;  // so often a communicator is in progress before it is not

// One collective of a communicator, on all ranks.
struct Slot {
  std::string what;  // all ranks must agree on it
  struct Part {
    const void* send = nullptr;
    void* recv = nullptr;
    double scalar = 1;
    bool there = false;
  };
  std::vector<Part> parts;
  size_t arrived = 0;
  bool broken = false, done = false;
};

// A send or a recv that has no other half yet.
struct Half {
  void* data = nullptr;
  size_t bytes = 0;
  std::string what;
  bool done = false;
};

struct Task {
  enum Kind {
    kAllReduce,
    kReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kGather,
    kScatter,
    kSend,
    kRecv
  };
  Kind kind = kAllReduce;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  NcclType type = kUint8;
  NcclOp op = kSum;
  double scalar = 1;
  int root = 0;  // or peer
  Comm* comm = nullptr;
  Stream* stream = nullptr;
  std::shared_ptr<Slot> slot;
  std::shared_ptr<Half> half;
};

struct Clique {
  int ranks = 0;
  std::map<int, Comm*> members;
  std::map<uint64_t, std::shared_ptr<Slot>> slots;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Half>>> sends, recvs;  // from, to
  struct Wish {
    int color, key;
  };
  std::map<uint64_t, std::map<int, Wish>> splits;
  std::map<std::pair<uint64_t, int>, std::shared_ptr<Clique>> children;  // by split and color
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<Comm*> comms;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::map<char*, size_t> allocations;
  std::map<char*, const Comm*> registrations;
  std::map<std::string, std::shared_ptr<Clique>> cliques;  // by id
  std::map<int, Stream*> default_streams;                  // never ended
  std::map<std::string, int> calls;
  struct Failure {
    int left = 0, code = 0;
  };
  std::map<std::string, Failure> failures;
  std::vector<std::string> violations;
  uint64_t gate_opened = 0, gates = 0;
  int ops = 0;
  bool any_buffer = false;  // also the host's
};
State& state();

// Counts the call; not 0: fail with it.
int enter(const char* call);
// With the lock.
int enter_locked(const char* call);
void violate(const std::string& words);
void check_buffer(const char* what, const void* data, size_t bytes);
Stream* stream_of(Stream* stream);  // the null one is the current device's
void push(Stream* stream, std::function<void(std::unique_lock<std::mutex>&)> work);
int current_device();

// What a task does, with the lock.
void arrive(Task& task);
bool finished(const Task& task);
void withdraw(Task& task);
double load_scalar(NcclType type, const void* scalar);

}  // namespace nccl_double

struct Comm {
  std::shared_ptr<nccl_double::Clique> clique;
  int rank = 0, device = 0;
  NcclResult failed = kSuccess;
  int lag = nccl_double::kLag;
  bool joined = false, aborted = false, finalizing = false;
  uint64_t next_slot = 0, next_split = 0;
  std::vector<nccl_double::Task> pending;  // of a group that has ended, not yet on their streams
  int running = 0;
  Comm** split_into = nullptr;
  uint64_t split_number = 0;
  std::map<int, double> ops;  // scalars
};

}  // namespace unisono::nccl
