/* Any MPI as a peer: built by that MPI's own mpicc, started by its own mpirun. Calls are MPI's
 * blocking ones; in place by MPI_IN_PLACE where the caller's buffers say so. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>

#include "bench/peers/peer.h"

static int own_rank, all_ranks;
static char last_error[MPI_MAX_ERROR_STRING + 64];

static int failed(int code) {
  int length = 0;
  if (code == MPI_SUCCESS) return 0;
  if (MPI_Error_string(code, last_error, &length) != MPI_SUCCESS) {
    snprintf(last_error, sizeof last_error, "MPI error %d", code);
  }
  return 1;
}

static int peer_open(int* rank, int* ranks, const char* folder) {
  (void)folder;
  if (failed(MPI_Init(NULL, NULL))) return 1;
  if (failed(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN))) return 1;
  if (failed(MPI_Comm_rank(MPI_COMM_WORLD, &own_rank))) return 1;
  if (failed(MPI_Comm_size(MPI_COMM_WORLD, &all_ranks))) return 1;
  *rank = own_rank;
  *ranks = all_ranks;
  return 0;
}

static const char* peer_version(void) {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown";
  for (int i = 0; i < length; i++) {
    if (text[i] == '\n' || text[i] == ',') text[i] = 0;
  }
  return text;
}

static int peer_broadcast(void* data, size_t bytes) {
  return failed(MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD));
}

static MPI_Datatype type_of(enum PeerType type) {
  switch (type) {
    case PEER_INT32:
      return MPI_INT32_T;
    case PEER_INT64:
      return MPI_INT64_T;
    case PEER_FLOAT32:
      return MPI_FLOAT;
    case PEER_FLOAT64:
      return MPI_DOUBLE;
    default:
      return MPI_UINT8_T;
  }
}
static MPI_Op op_of(enum PeerOp op) {
  switch (op) {
    case PEER_PROD:
      return MPI_PROD;
    case PEER_MAX:
      return MPI_MAX;
    case PEER_MIN:
      return MPI_MIN;
    default:
      return MPI_SUM;
  }
}

static int peer_collective(const struct PeerCall* c) {
  const MPI_Datatype type = type_of(c->type);
  const int root = own_rank == c->root;
  int size = 0, count = 0;
  if (c->count > INT_MAX) return PEER_UNSUPPORTED;
  count = (int)c->count;
  MPI_Type_size(type, &size);
  const ptrdiff_t own = (ptrdiff_t)own_rank * (ptrdiff_t)size * count;
  const char* send = c->send;
  char* recv = c->recv;
  /* The in-place forms of unisono.h, in MPI's words. */
  switch (c->work) {
    case PEER_ALL_REDUCE:
      return failed(MPI_Allreduce(send == recv ? MPI_IN_PLACE : send, recv, count, type,
                                  op_of(c->op), MPI_COMM_WORLD));
    case PEER_REDUCE:
      return failed(MPI_Reduce(root && send == recv ? MPI_IN_PLACE : send, recv, count, type,
                               op_of(c->op), c->root, MPI_COMM_WORLD));
    case PEER_BROADCAST:
      /* MPI has one buffer; ours has two at the root: the copy belongs to the call. */
      if (root && send != recv) {
        for (ptrdiff_t i = 0; i < (ptrdiff_t)size * count; i++) recv[i] = send[i];
      }
      return failed(MPI_Bcast(recv, count, type, c->root, MPI_COMM_WORLD));
    case PEER_ALL_GATHER:
      return failed(MPI_Allgather(send == recv + own ? MPI_IN_PLACE : send, count, type, recv,
                                  count, type, MPI_COMM_WORLD));
    case PEER_REDUCE_SCATTER:
      if (recv == send + own) return PEER_UNSUPPORTED; /* MPI_IN_PLACE puts the result elsewhere */
      return failed(
          MPI_Reduce_scatter_block(send, recv, count, type, op_of(c->op), MPI_COMM_WORLD));
    case PEER_GATHER:
      return failed(MPI_Gather(root && send == recv + own ? MPI_IN_PLACE : send, count, type, recv,
                               count, type, c->root, MPI_COMM_WORLD));
    case PEER_SCATTER:
      return failed(MPI_Scatter(send, count, type, root && recv == send + own ? MPI_IN_PLACE : recv,
                                count, type, c->root, MPI_COMM_WORLD));
    case PEER_ALL_TO_ALL:
      return failed(MPI_Alltoall(send, count, type, recv, count, type, MPI_COMM_WORLD));
    case PEER_BARRIER:
      return failed(MPI_Barrier(MPI_COMM_WORLD));
  }
  return PEER_UNSUPPORTED;
}

static void peer_close(void) {
  MPI_Finalize();
}
static const char* peer_error(void) {
  return last_error;
}

const struct Peer* comm_bench_peer(void) {
  static const struct Peer peer = {PEER_ABI,        peer_open,  peer_version, peer_broadcast,
                                   peer_collective, peer_close, peer_error};
  return &peer;
}
