// Gloo as a peer, over its tcp transport on the loopback, as PyTorch uses it on one machine. Ranks
// meet by its FileStore in the run's folder.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <sched.h>

#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bench/peers/peer.h"

namespace {

std::shared_ptr<gloo::rendezvous::Context> context;
std::string last_error;

// Gloo reports by exceptions.
template <class Body>
int guarded(const Body& body) {
  try {
    return body();
  } catch (const std::exception& e) {
    last_error = e.what();
    return 1;
  }
}

// Gloo's own thread, which starts in here, gets the cores that the rank's thread is not pinned to.
// Beside that thread it preempts it with a socket's mutex held, and then tries that mutex for a
// whole scheduler slice: 4 ms a call at small sizes instead of half of it.
std::shared_ptr<gloo::transport::Device> device_on_other_cores() {
  cpu_set_t pinned, others;
  const bool known = sched_getaffinity(0, sizeof pinned, &pinned) == 0;
  std::memset(&others, 0xff, sizeof others);
  if (known) CPU_XOR(&others, &others, &pinned);
  // Fails where there are no others: the thread then stays beside the rank's.
  if (known) (void)sched_setaffinity(0, sizeof others, &others);
  gloo::transport::tcp::attr attr;
  attr.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attr);
  if (known) (void)sched_setaffinity(0, sizeof pinned, &pinned);
  return device;
}

int peer_open(int* rank, int* ranks, const char* folder) {
  return guarded([&] {
    auto device = device_on_other_cores();
    gloo::rendezvous::FileStore store(folder);
    context = std::make_shared<gloo::rendezvous::Context>(*rank, *ranks);
    context->connectFullMesh(store, device);
    return 0;
  });
}

using Reduce = void (*)(void*, const void*, const void*, size_t);
template <class T>
Reduce reduce_of(PeerOp op) {
  switch (op) {
    case PEER_PROD:
      return &gloo::product<T>;
    case PEER_MAX:
      return &gloo::max<T>;
    case PEER_MIN:
      return &gloo::min<T>;
    default:
      return &gloo::sum<T>;
  }
}

template <class T>
int all_reduce(const PeerCall& c, gloo::AllreduceOptions::Algorithm algorithm) {
  gloo::AllreduceOptions options(context);
  auto* send = static_cast<T*>(const_cast<void*>(c.send));
  if (c.send != c.recv) options.setInput(send, c.count);
  options.setOutput(static_cast<T*>(c.recv), c.count);
  options.setReduceFunction(reduce_of<T>(c.op));
  options.setAlgorithm(algorithm);
  gloo::allreduce(options);
  return 0;
}

template <class T>
int collective(const PeerCall& c) {
  auto* send = static_cast<T*>(const_cast<void*>(c.send));
  auto* recv = static_cast<T*>(c.recv);
  const auto ranks = static_cast<size_t>(context->size);
  const bool root = context->rank == c.root;
  switch (c.work) {
    case PEER_ALL_REDUCE:
      return all_reduce<T>(c, gloo::AllreduceOptions::Algorithm::RING);
    case PEER_REDUCE: {
      gloo::ReduceOptions options(context);
      if (c.send != c.recv) options.setInput(send, c.count);
      options.setOutput(recv, c.count);
      options.setReduceFunction(reduce_of<T>(c.op));
      options.setRoot(c.root);
      gloo::reduce(options);
      return 0;
    }
    case PEER_BROADCAST: {
      gloo::BroadcastOptions options(context);
      if (root && c.send != c.recv) options.setInput(send, c.count);
      options.setOutput(recv, c.count);
      options.setRoot(c.root);
      gloo::broadcast(options);
      return 0;
    }
    case PEER_ALL_GATHER: {
      gloo::AllgatherOptions options(context);
      if (send != recv + static_cast<size_t>(context->rank) * c.count)
        options.setInput(send, c.count);
      options.setOutput(recv, c.count * ranks);
      gloo::allgather(options);
      return 0;
    }
    case PEER_ALL_TO_ALL: {
      gloo::AlltoallOptions options(context);
      options.setInput(send, c.count * ranks);
      options.setOutput(recv, c.count * ranks);
      gloo::alltoall(options);
      return 0;
    }
    default:
      return PEER_UNSUPPORTED;
  }
}

int peer_collective(const PeerCall* call) {
  return guarded([&]() -> int {
    if (call->work == PEER_BARRIER) {
      gloo::BarrierOptions options(context);
      gloo::barrier(options);
      return 0;
    }
    switch (call->type) {
      case PEER_INT32:
        return collective<int32_t>(*call);
      case PEER_INT64:
        return collective<int64_t>(*call);
      case PEER_FLOAT32:
        return collective<float>(*call);
      case PEER_FLOAT64:
        return collective<double>(*call);
      case PEER_UINT8:
        return collective<uint8_t>(*call);
    }
    return PEER_UNSUPPORTED;
  });
}

int peer_broadcast(void* data, size_t bytes) {
  const PeerCall call{PEER_BROADCAST, data, data, bytes, PEER_UINT8, PEER_SUM, 0};
  return peer_collective(&call);
}

void peer_close() {
  context.reset();
}
const char* peer_version() {
  return "Gloo, tcp, ring";
}
const char* peer_error() {
  return last_error.c_str();
}

}  // namespace

extern "C" [[gnu::visibility("default")]] const Peer* comm_bench_peer() {
  static const Peer peer = {PEER_ABI,        peer_open,  peer_version, peer_broadcast,
                            peer_collective, peer_close, peer_error};
  return &peer;
}
