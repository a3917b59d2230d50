/* What another library must offer to be compared with ours: comm-bench --versus loads one shared
 * object a peer (bench/peers/README.md) and calls nothing else of it. Plain C, so that any MPI's
 * mpicc builds it.
 *
 * All functions return 0, PEER_UNSUPPORTED, or another value for an error that peer_error()
 * explains. One thread calls them. Buffers are the caller's. */
#ifndef UNISONO_BENCH_PEER_H
#define UNISONO_BENCH_PEER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PEER_ABI = 1, PEER_UNSUPPORTED = -1 };

enum PeerWork {
  PEER_ALL_REDUCE,
  PEER_REDUCE,
  PEER_BROADCAST,
  PEER_ALL_GATHER,
  PEER_REDUCE_SCATTER,
  PEER_GATHER,
  PEER_SCATTER,
  PEER_ALL_TO_ALL,
  PEER_BARRIER
};
enum PeerType { PEER_INT32, PEER_INT64, PEER_FLOAT32, PEER_FLOAT64, PEER_UINT8 };
enum PeerOp { PEER_SUM, PEER_PROD, PEER_MAX, PEER_MIN };

/* As the collectives of unisono.h: count is the call's count; in place by the same offsets. */
struct PeerCall {
  enum PeerWork work;
  const void* send;
  void* recv;
  size_t count;
  enum PeerType type;
  enum PeerOp op;
  int root;
};

struct Peer {
  int abi; /* PEER_ABI */
  /* In: of a peer that mpirun does not start, else -1. Out: what the peer says. `folder` is private
   * to this run and seen by all its ranks. */
  int (*open)(int* rank, int* ranks, const char* folder);
  const char* (*version)(void);
  int (*broadcast_bytes)(void* data, size_t bytes); /* rank 0's, to all */
  int (*collective)(const struct PeerCall* call);   /* blocking */
  void (*close)(void);
  const char* (*error)(void);
};

/* The one symbol of a peer's shared object. */
const struct Peer* comm_bench_peer(void);

#ifdef __cplusplus
}
#endif
#endif
