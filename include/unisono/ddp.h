/* Unisono: data-parallel training over the collectives of unisono.h, for any framework.
 *
 * Three things, each usable alone:
 *  - the reducer: averages gradients over ranks in buckets, while backward still runs;
 *  - the coalesced broadcast: makes parameters and buffers those of one rank;
 *  - the sampler: which samples of a data set a rank sees, PyTorch's order bit for bit.
 *
 * The conventions of unisono.h hold: results, uniGetLastError(NULL) for the words, ownership,
 * counts in elements. The library is libunisono_ddp; it uses unisono.h and nothing else, so that
 * whatever it does, a framework can do too. The method is that of PyTorch's DistributedDataParallel
 * (Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB
 * 2020).
 */
#ifndef UNISONO_DDP_H_
#define UNISONO_DDP_H_

#include "unisono/unisono.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The reducer ---- */

typedef struct uniReducer* uniReducer_t;

/* One parameter, described identically on every rank, in the same order (that of the model). */
typedef struct {
  const char* name;   /* For messages; copied. */
  void* grad;         /* Its gradient, `count` contiguous elements, the caller's: read when it is
                         marked ready, overwritten with the average by uniReducerFinish. With
                         bucket_views the reducer owns the memory (uniReducerGradient): NULL, or
                         its first contents. */
  uniDataType_t type; /* float16, bfloat16, float32 or float64. */
  int dims;           /* Of shape; 0: a scalar. At most 16. */
  const size_t* shape;
} uniParameter_t;

/* A bucket that is complete on this rank, as a communication hook sees it. */
typedef struct {
  size_t size; /* sizeof(uniBucket_t) of the library that made it. */
  void* data;  /* `count` elements: the gradients, one after the other, not divided. The hook
                  leaves the result here, as of the end of the work it has put on stream. */
  size_t count;
  uniDataType_t type;
  int index;   /* In order of launch, from 0. */
  int buckets; /* How many there are now. */
  uniComm_t comm;
  uniStream_t stream; /* Put the work here and return: other gradients wait for the caller. */
  size_t wire_bytes;  /* A hook writes what it gives to the collective; preset to the bytes of
                         `count` elements. */
} uniBucket_t;

/* What replaces the averaging of one bucket. Called once a bucket and iteration, in order of index,
 * on the thread that completed the bucket or on one that completed an earlier one (which may be in
 * uniReducerFinish or uniReducerBeginBackward). It may not call the reducer. An error fails the
 * iteration. With a hook the reducer does not divide. */
typedef uniResult_t (*uniBucketHook_t)(void* arg, uniBucket_t* bucket);

/* Hooks to choose from, all with arg unused. The sum over ranks divided by their number: what the
 * reducer does without a hook, to be wrapped by one's own. */
UNI_API uniResult_t uniHookAllReduce(void* arg, uniBucket_t* bucket);
/* As float16 (bfloat16) on the wire: cast, divided by the number of ranks, summed, cast back, each
 * rounded, in PyTorch's order; within the bucket's own memory. Buckets of 16-bit types are averaged
 * as without a hook. */
UNI_API uniResult_t uniHookFloat16Compress(void* arg, uniBucket_t* bucket);
UNI_API uniResult_t uniHookBfloat16Compress(void* arg, uniBucket_t* bucket);

/* Always start from UNI_REDUCER_CONFIG_INITIALIZER. Every rank gives the same values; of one's
 * own hooks only that there is one can be compared. */
typedef struct {
  size_t size;
  unsigned int magic;
  size_t bucket_bytes;       /* A bucket is closed once it has that many bytes: 25 MiB. */
  size_t first_bucket_bytes; /* The first of each type, to start early: 1 MiB. */
  int bucket_views; /* 1: gradients live in their buckets (uniReducerGradient): no copies, and no
                       second copy of the gradients. Buckets are registered memory. */
  int find_unused;  /* 1: a parameter may take part on some ranks only (uniReducerMarkUnused). */
  int static_graph; /* 1: as find_unused in the first synchronised iteration; what is unused in it
                       on a rank stays so, need not be marked, and no map is sent any more. */
  int keep_buckets; /* 1: of these sizes from the start, in the model's order reversed, never
                       rebuilt; so too with find_unused without static_graph. 0: one bucket a type
                       in the first synchronised iteration, then rebuilt in ready order. */
  uniBucketHook_t hook; /* NULL: the average. */
  void* hook_arg;
} uniReducerConfig_t;
#define UNI_REDUCER_CONFIG_MAGIC 0x00646470u
#define UNI_REDUCER_CONFIG_INITIALIZER                                                             \
  {                                                                                                \
    sizeof(uniReducerConfig_t), UNI_REDUCER_CONFIG_MAGIC, (size_t)25 << 20, (size_t)1 << 20, 0, 0, \
        0, 0, NULL, NULL                                                                           \
  }

/* Collective: compares the descriptions and configurations of all ranks with rank 0's. A difference
 * fails everywhere with uniMismatch, and leaves comm usable; the message names parameter, rank and
 * both shapes. A rank whose own arguments are refused has not taken part: the others wait until it
 * calls again, aborts or ends. config may be NULL. comm is borrowed until uniReducerDestroy
 * (uniCommBorrow: destroying it before is refused); between uniReducerBeginBackward and
 * uniReducerFinish it is the reducer's alone (uniCommSplit gives it one of its own). */
UNI_API uniResult_t uniReducerCreate(uniReducer_t* reducer, uniComm_t comm,
                                     const uniParameter_t* parameters, int count,
                                     const uniReducerConfig_t* config);
/* Waits for what is under way. In mid-iteration (sync 1) it aborts the communicator first, so that
 * no peer waits. Not collective. NULL is allowed. */
UNI_API uniResult_t uniReducerDestroy(uniReducer_t reducer);

/* Where the gradient of a parameter is: its `grad`, or with bucket_views its place in a bucket.
 * The first synchronised uniReducerFinish may move the latter (contents go along): ask again. */
UNI_API uniResult_t uniReducerGradient(uniReducer_t reducer, int parameter, void** grad);
/* Replaces `grad` (without bucket_views), between iterations: a framework that reallocates. */
UNI_API uniResult_t uniReducerSetGradient(uniReducer_t reducer, int parameter, void* grad);

/* Optional: when forward begins, for the statistics. */
UNI_API uniResult_t uniReducerBeginForward(uniReducer_t reducer);
/* sync 0 (PyTorch's no_sync): gradients only accumulate in the caller's hands; the next iteration
 * with sync 1 reduces the sum, and what was used in any of them counts as used. Every rank gives
 * the same. uniInvalidUsage, naming the parameters that were not ready, before the last iteration's
 * uniReducerFinish. */
UNI_API uniResult_t uniReducerBeginBackward(uniReducer_t reducer, int sync);
/* From any thread, each parameter once: its gradient is final and may be read (and, with
 * bucket_views, is not touched any more). May launch buckets. A second time: uniInvalidUsage, now
 * and by uniReducerFinish. */
UNI_API uniResult_t uniReducerMarkReady(uniReducer_t reducer, int parameter);
/* With find_unused or static_graph (there not for one that was used in the first iteration:
 * uniInvalidUsage): takes no part in this iteration here. Optional (those never marked count as
 * unused at uniReducerFinish); said early, its bucket can leave early. */
UNI_API uniResult_t uniReducerMarkUnused(uniReducer_t reducer, int parameter);
/* Blocks until every gradient is the average over ranks. With find_unused a parameter unused on all
 * ranks keeps its gradient as it was. A parameter that was never marked, without find_unused:
 * uniInvalidUsage, naming it. After an error within an iteration (of sync 0 too) the
 * communicator is aborted, so that no peer waits. On one rank, without hook and bucket_views,
 * gradients stay untouched where they are. */
UNI_API uniResult_t uniReducerFinish(uniReducer_t reducer);

/* With find_unused, after uniReducerFinish: 1 when the parameter was used on any rank. */
UNI_API uniResult_t uniReducerUsed(uniReducer_t reducer, int parameter, int* used);
/* From the next iteration on; every rank gives the same, which is not compared. hook NULL: the
 * average. */
UNI_API uniResult_t uniReducerSetHook(uniReducer_t reducer, uniBucketHook_t hook, void* arg);

/* Of the last synchronised iteration on this rank. Times in microseconds. */
typedef struct {
  size_t size;             /* Set it to sizeof(uniReducerStats_t) before the call. */
  uint64_t iterations;     /* Synchronised ones so far. */
  double forward_us;       /* uniReducerBeginForward to uniReducerBeginBackward; 0 when not told. */
  double backward_us;      /* uniReducerBeginBackward to the last gradient. */
  double communication_us; /* First launch to the last bucket's completion. */
  double exposed_us;     /* The last gradient to uniReducerFinish's return: what training waits. */
  double overlap_us;     /* Communication that was hidden behind backward. */
  size_t gradient_bytes; /* Of all parameters. */
  size_t wire_bytes;     /* Given to collectives, as the hook says; the used map included. */
  size_t memory_bytes;   /* Buckets, held by the reducer. */
  int parameters, buckets;
  int rebuilt; /* 1 once the buckets follow the order of readiness. */
  int unused;  /* Parameters unused on every rank. */
} uniReducerStats_t;
UNI_API uniResult_t uniReducerStats(uniReducer_t reducer, uniReducerStats_t* stats);
/* Of one bucket, index in order of launch: bytes, and how many parameters. */
UNI_API uniResult_t uniReducerBucketSize(uniReducer_t reducer, int bucket, size_t* bytes,
                                         int* parameters);
/* The parameters in the order in which they became ready in the last iteration: `parameters`
 * entries (those not marked come last, in order). */
UNI_API uniResult_t uniReducerReadyOrder(uniReducer_t reducer, int* order);

/* ---- Parameters and buffers ---- */

/* Collective, blocks: tensor i of every rank = root's. Small ones travel together. counts[i]
 * elements of types[i] at tensors[i]; every rank gives the same counts and types: one that does not
 * gets uniMismatch, and aborts the communicator. */
UNI_API uniResult_t uniBroadcastCoalesced(uniComm_t comm, void* const* tensors,
                                          const size_t* counts, const uniDataType_t* types,
                                          int tensor_count, int root);

/* ---- The sampler ---- */

typedef struct uniSampler* uniSampler_t;

/* Always start from UNI_SAMPLER_CONFIG_INITIALIZER. */
typedef struct {
  size_t size;
  unsigned int magic;
  int shuffle;    /* 1: a new order each epoch, from seed + epoch: torch.randperm's. */
  int drop_last;  /* 1: the tail that does not divide is left out. 0: the list is filled up from its
                     own head, so that every rank has as many. */
  int evaluation; /* 1: not shuffled (whatever shuffle says), filled up nor cut: every sample once,
                     in order, counts differ by at most one. */
  uint64_t seed;
} uniSamplerConfig_t;
#define UNI_SAMPLER_CONFIG_MAGIC 0x00736d70u
#define UNI_SAMPLER_CONFIG_INITIALIZER \
  { sizeof(uniSamplerConfig_t), UNI_SAMPLER_CONFIG_MAGIC, 1, 0, 0, 0 }

/* Local, not collective; no communicator is needed. samples: size of the data set (at most 2^32 - 1
 * with shuffle). config NULL: shuffled, seed 0. Starts in epoch 0, at its first sample. */
UNI_API uniResult_t uniSamplerCreate(uniSampler_t* sampler, uint64_t samples, int ranks, int rank,
                                     const uniSamplerConfig_t* config);
UNI_API uniResult_t uniSamplerDestroy(uniSampler_t sampler); /* NULL is allowed. */
/* How many samples this rank sees in an epoch. */
UNI_API uniResult_t uniSamplerCount(uniSampler_t sampler, uint64_t* count);
/* Begins the epoch anew: another order when shuffled. */
UNI_API uniResult_t uniSamplerSetEpoch(uniSampler_t sampler, uint64_t epoch);
/* The next at most `capacity` indices of this epoch; *count 0: it is over, until
 * uniSamplerSetEpoch or uniSamplerResume. */
UNI_API uniResult_t uniSamplerNext(uniSampler_t sampler, uint64_t* indices, uint64_t capacity,
                                   uint64_t* count);
/* Where this rank is: to be kept in a checkpoint, and given back to a sampler made alike. */
UNI_API uniResult_t uniSamplerPosition(uniSampler_t sampler, uint64_t* epoch, uint64_t* position);
UNI_API uniResult_t uniSamplerResume(uniSampler_t sampler, uint64_t epoch, uint64_t position);

#ifdef __cplusplus
}
#endif
#endif /* UNISONO_DDP_H_ */
