/* Unisono: collective communication with pluggable transports. The whole public C API.
 *
 * The shape is NCCL's (who knows one knows the other); names of operations and types are the
 * field's.
 *
 * Conventions, for every function unless it says otherwise:
 *  - Returns a uniResult_t. On an error uniGetLastError() of the same thread says which argument or
 *    which peer, in words. Nothing is half done after uniInvalidArgument: no message was sent.
 *  - Handles are owned by the caller and freed by the function named Destroy (or Free, Deregister).
 *    Strings and arrays passed in are copied before the call returns; buffers of collectives are
 *    borrowed until the operation is complete.
 *  - Threads: different communicators may be used from different threads at once. Calls on one
 *    communicator are serialised by the caller, except uniCommAbort, uniCommGetAsyncError,
 *    uniCommSetTimeout, uniCommBorrow and uniCommReturn, which any thread may call at any time.
 *  - Counts are elements. Bytes are named so. Times are milliseconds.
 */
#ifndef UNISONO_UNISONO_H_
#define UNISONO_UNISONO_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UNI_VERSION_MAJOR 0
#define UNI_VERSION_MINOR 1
#define UNI_VERSION_PATCH 0
#define UNI_VERSION_CODE (UNI_VERSION_MAJOR * 10000 + UNI_VERSION_MINOR * 100 + UNI_VERSION_PATCH)

#if defined(__GNUC__)
#define UNI_API __attribute__((visibility("default")))
#else
#define UNI_API
#endif

/* The first eight have NCCL's values. */
typedef enum {
  uniSuccess = 0,
  uniSystemError = 2,     /* The operating system refused something; errno is in the message. */
  uniInternalError = 3,   /* A defect of this library: please report it. */
  uniInvalidArgument = 4, /* The message names the argument. */
  uniInvalidUsage = 5,    /* A call in the wrong state or order, or from a forked child. */
  uniRemoteError = 6,     /* A peer died, left, or failed. */
  uniInProgress = 7,      /* uniStreamQuery, uniEventQuery: not yet. */
  uniTimeout = 8,         /* The deadline passed; the message says who had arrived. */
  uniAborted = 9,         /* uniCommAbort was called here or on a peer. */
  uniMismatch = 10        /* Ranks issued different operations; the message names both sides. */
} uniResult_t;

typedef enum {
  uniInt8 = 0,
  uniChar = 0,
  uniUint8 = 1,
  uniInt32 = 2,
  uniInt = 2,
  uniUint32 = 3,
  uniInt64 = 4,
  uniUint64 = 5,
  uniFloat16 = 6,
  uniHalf = 6,
  uniFloat32 = 7,
  uniFloat = 7,
  uniFloat64 = 8,
  uniDouble = 8,
  uniBfloat16 = 9,
  uniBool = 10, /* One byte, 0 or 1 (any other value counts as 1). sum, max: or. prod, min: and. */
  uniNumTypes = 11
} uniDataType_t;

/* Built-in operations, then those made by uniRedOpCreatePreMulSum (values >= 64, per communicator).
 */
typedef enum {
  uniSum = 0,
  uniProd = 1,
  uniMax = 2, /* NaN propagates as one canonical NaN; -0 < +0. */
  uniMin = 3, /* As uniMax. */
  uniAvg = 4, /* Floats: the sum in float32 or wider times 1/n, rounded once; where partial sums are
                 passed on (ring, trees) each of those is rounded too, and one of float16 may
                 overflow. Integers: the wrapped sum
                 over n, towards zero. */
  uniBand = 5, /* Integers and bool only. */
  uniBor = 6,
  uniBxor = 7,
  uniNumOps = 8,
  uniMaxRedOp = 0x7fffffff
} uniRedOp_t;

typedef struct uniComm* uniComm_t;
typedef struct uniStream* uniStream_t; /* NULL: the call blocks. */
typedef struct uniEvent* uniEvent_t;

/* Opaque. Holds a random secret and at most 3 numeric addresses: treat it as a password. */
#define UNI_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[UNI_UNIQUE_ID_BYTES];
} uniUniqueId;

/* Always start from UNI_CONFIG_INITIALIZER. A later library accepts a shorter, older struct. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int64_t timeout_ms;     /* Of start-up and of each operation. Default 30 minutes. */
  const char* transports; /* Comma-separated, in order of preference: "shm,tcp". NULL: environment,
                             then all (docs/transports.md). */
  const char* algorithm;  /* Force one for every collective that has it: "ring". NULL: the planner
                             chooses. */
  int reproducible;       /* 1: bits independent of size, offset, transport and instruction set. */
  const char* device;     /* Where buffers are: "cpu" (default), "cuda" (the device that is current
                             on the initialising thread; of uniCommInitAll, rank r's is device r),
                             or "cuda:1". Equal on all ranks, but for the index. NCCL is loaded at
                             run time and does the collectives (docs/nccl.md). */
  const char* name;       /* For messages. NULL: made up. */
} uniConfig_t;
#define UNI_CONFIG_MAGIC 0x00756e69u
#define UNI_TIMEOUT_DEFAULT ((int64_t)-1)
#define UNI_CONFIG_INITIALIZER                                                                   \
  {                                                                                              \
    sizeof(uniConfig_t), UNI_CONFIG_MAGIC, UNI_VERSION_CODE, UNI_TIMEOUT_DEFAULT, NULL, NULL, 0, \
        NULL, NULL                                                                               \
  }

/* ---- Version, errors ---- */

/* Of the library at run time, coded as UNI_VERSION_CODE. */
UNI_API uniResult_t uniGetVersion(int* version);
/* A static string for a result. Never NULL. */
UNI_API const char* uniGetErrorString(uniResult_t result);
/* What went wrong last on this thread, or, if comm is not NULL and has failed, on that
 * communicator. Valid until this thread's next call of the library. Never NULL. */
UNI_API const char* uniGetLastError(uniComm_t comm);
/* For layers built on this library (a framework's binding): keeps the message as this thread's last
 * error, so that their callers ask in one place, and returns `result`. message is copied; NULL is
 * the empty string. Changes no communicator. */
UNI_API uniResult_t uniSetLastError(uniResult_t result, const char* message);

/* ---- Communicators ---- */

/* Makes an id and starts serving its rendezvous in this process, until every rank has met. Give the
 * id to all ranks by any trusted means; one id serves one initialisation. */
UNI_API uniResult_t uniGetUniqueId(uniUniqueId* id);
/* Collective over `ranks` callers of the same id, each with its own rank. Blocks until all have met
 * or the time is up. */
UNI_API uniResult_t uniCommInitRank(uniComm_t* comm, int ranks, uniUniqueId id, int rank);
UNI_API uniResult_t uniCommInitRankConfig(uniComm_t* comm, int ranks, uniUniqueId id, int rank,
                                          const uniConfig_t* config);
/* `ranks` communicators of this process, comms[r] of rank r, to be driven by threads or in groups.
 * config may be NULL. */
UNI_API uniResult_t uniCommInitAll(uniComm_t* comms, int ranks, const uniConfig_t* config);
/* url: "env://" (RANK, WORLD_SIZE, and the meeting point of the launcher), "tcp://host:port" or
 * "file:///path". ranks and rank may be -1 with env:// only; with none of its
 * variables set: one rank alone. NULL url is "env://". config may be
 * NULL. */
UNI_API uniResult_t uniCommInitUrl(uniComm_t* comm, const char* url, int ranks, int rank,
                                   const uniConfig_t* config);

/* A key-value store given by a framework (torch.distributed.Store's semantics). Callbacks return 0,
 * or non-zero for failure. They are called on the initialising thread only, during
 * uniCommInitStore. Keys are NUL-terminated. */
typedef struct {
  void* context;
  int (*set)(void* context, const char* key, const void* value, size_t bytes);
  /* Waits up to timeout_ms for the key; writes at most capacity bytes and the value's true size. */
  int (*get)(void* context, const char* key, void* value, size_t capacity, size_t* bytes,
             int64_t timeout_ms);
  /* add and wait are reserved: not called in this version. add: adds to an integer key (0 when
   * absent) and gives the sum. */
  int (*add)(void* context, const char* key, int64_t amount, int64_t* sum);
  int (*wait)(void* context, const char* key, int64_t timeout_ms);
} uniStore_t;
UNI_API uniResult_t uniCommInitStore(uniComm_t* comm, const uniStore_t* store, const char* prefix,
                                     int ranks, int rank, const uniConfig_t* config);

/* Completes all outstanding operations of this rank and leaves: ranks that still need it get an
 * error that names it. The communicator may then only be destroyed. Not while calls of it wait in
 * an open group (uniInvalidUsage); nor uniCommDestroy. */
UNI_API uniResult_t uniCommFinalize(uniComm_t comm);
/* Frees. Outstanding asynchronous operations are completed first (or failed by the deadline). comm
 * may be NULL. While somebody borrows it: uniInvalidUsage, and it stays as it was. */
UNI_API uniResult_t uniCommDestroy(uniComm_t comm);
/* For libraries that keep comm beyond a call (uniReducerCreate does): from here to uniCommReturn
 * with the same words uniCommDestroy is refused, naming `by`, which is copied ("the reducer of
 * model A"). Any thread, never blocking. */
UNI_API uniResult_t uniCommBorrow(uniComm_t comm, const char* by);
UNI_API uniResult_t uniCommReturn(uniComm_t comm, const char* by);
/* From any thread: fails pending and later operations on every rank with uniAborted. Does not free:
 * call Destroy. */
UNI_API uniResult_t uniCommAbort(uniComm_t comm);
/* uniSuccess, or the error that has failed this communicator. Never blocks. */
UNI_API uniResult_t uniCommGetAsyncError(uniComm_t comm, uniResult_t* error);
UNI_API uniResult_t uniCommCount(uniComm_t comm, int* ranks);
UNI_API uniResult_t uniCommUserRank(uniComm_t comm, int* rank);
/* For operations issued from now on. timeout_ms > 0, or UNI_TIMEOUT_DEFAULT. */
UNI_API uniResult_t uniCommSetTimeout(uniComm_t comm, int64_t timeout_ms);

/* All ranks of comm call. Ranks with one color form a communicator, ordered by key, then by rank in
 * comm. color UNI_SPLIT_NOCOLOR: *child = NULL. config NULL: the parent's. */
#define UNI_SPLIT_NOCOLOR (-1)
UNI_API uniResult_t uniCommSplit(uniComm_t comm, int color, int key, uniComm_t* child,
                                 const uniConfig_t* config);
/* Only members call, all with the same list and tag. members: distinct ranks of comm; their order
 * is the order of the new ranks. Concurrent creations with overlapping members need different tags.
 */
UNI_API uniResult_t uniCommCreateGroup(uniComm_t comm, const int* members, int count, int tag,
                                       uniComm_t* child, const uniConfig_t* config);

typedef struct {
  size_t size; /* Set it to sizeof(uniCommInfo_t) before the call. */
  int ranks, rank;
  int local_ranks;      /* Ranks proved to share memory with this one, itself included. */
  int failed;           /* 1 once the communicator has failed. */
  uint64_t collectives; /* Issued so far: the sequence number of the last. */
  size_t memory_bytes;  /* Mapped or allocated for this communicator by the library (address space
                           touched lazily). */
  char name[64];
  char transports[64];     /* In use, comma-separated. */
  char last_algorithm[32]; /* Of the last collective: "ring". */
  char last_transport[32]; /* As transports, in this version. */
  char kernels[16];        /* Instruction set of the reduction kernels: "avx2". */
} uniCommInfo_t;
UNI_API uniResult_t uniCommQuery(uniComm_t comm, uniCommInfo_t* info);

typedef struct {
  size_t size; /* Set it to sizeof(uniTransportInfo_t) before the call. */
  char name[32];
  int available;
  char detail[192]; /* What it uses, or why it is not available. */
} uniTransportInfo_t;
/* The library's transports, index from 0; uniInvalidArgument past the last. */
UNI_API uniResult_t uniTransportQuery(int index, uniTransportInfo_t* info);

typedef struct {
  size_t size;     /* Set it to sizeof(uniAlgorithmInfo_t) before the call. */
  char name[32];   /* For uniConfig_t.algorithm. */
  char paper[192]; /* Where it comes from. */
} uniAlgorithmInfo_t;
/* The library's algorithms, index from 0; uniInvalidArgument past the last. */
UNI_API uniResult_t uniAlgorithmQuery(int index, uniAlgorithmInfo_t* info);

/* ---- Memory ---- */

/* Page-aligned memory that peers on the machine can map. Registered on a communicator it is sent by
 * reference. */
UNI_API uniResult_t uniMemAlloc(void** pointer, size_t bytes);
UNI_API uniResult_t uniMemFree(void* pointer); /* NULL is allowed. Deregister first. */
/* Local, not collective. Any memory may be registered; only that of uniMemAlloc is read in place by
 * peers. */
UNI_API uniResult_t uniCommRegister(uniComm_t comm, void* pointer, size_t bytes, void** handle);
UNI_API uniResult_t uniCommDeregister(uniComm_t comm, void* handle);

/* ---- Collectives: every rank calls, in the same order, with the same count, type, op and root
 * ---- */

/* recv[i] = op over ranks of send[i]. In place: send == recv. */
UNI_API uniResult_t uniAllReduce(const void* send, void* recv, size_t count, uniDataType_t type,
                                 uniRedOp_t op, uniComm_t comm, uniStream_t stream);
/* As all-reduce, result at root only; recv is not used elsewhere and may be NULL there. */
UNI_API uniResult_t uniReduce(const void* send, void* recv, size_t count, uniDataType_t type,
                              uniRedOp_t op, int root, uniComm_t comm, uniStream_t stream);
/* recv of every rank = send of root. send is not used elsewhere. In place: send == recv. */
UNI_API uniResult_t uniBroadcast(const void* send, void* recv, size_t count, uniDataType_t type,
                                 int root, uniComm_t comm, uniStream_t stream);
/* recv holds ranks x count elements, rank r's at r*count. In place: send == recv + rank*count. */
UNI_API uniResult_t uniAllGather(const void* send, void* recv, size_t count, uniDataType_t type,
                                 uniComm_t comm, uniStream_t stream);
/* send holds ranks x count elements; recv the reduced count elements at rank*count. In place: recv
 * == send + rank*count. */
UNI_API uniResult_t uniReduceScatter(const void* send, void* recv, size_t count, uniDataType_t type,
                                     uniRedOp_t op, uniComm_t comm, uniStream_t stream);
/* recv at root: ranks x count. In place at root: send == recv + root*count. */
UNI_API uniResult_t uniGather(const void* send, void* recv, size_t count, uniDataType_t type,
                              int root, uniComm_t comm, uniStream_t stream);
/* send at root: ranks x count. In place at root: recv == send + root*count. */
UNI_API uniResult_t uniScatter(const void* send, void* recv, size_t count, uniDataType_t type,
                               int root, uniComm_t comm, uniStream_t stream);
/* Both hold ranks x count; block r of send goes to rank r, block r of recv came from rank r. Not in
 * place. */
UNI_API uniResult_t uniAllToAll(const void* send, void* recv, size_t count, uniDataType_t type,
                                uniComm_t comm, uniStream_t stream);

/* The v-variants: block r has counts[r] elements and begins displs[r] elements into the buffer that
 * holds all blocks; displs NULL: one after the other. Every rank gives the same counts (ranks
 * entries; a difference is uniMismatch); displs are this rank's own, and not used where it has no
 * such buffer. Both are read during the call only. Blocks that are written must not overlap. */

/* recv holds all blocks; send is block rank. In place: send == recv + displs[rank]. */
UNI_API uniResult_t uniAllGatherV(const void* send, void* recv, const size_t* counts,
                                  const size_t* displs, uniDataType_t type, uniComm_t comm,
                                  uniStream_t stream);
/* send holds all blocks; recv is the reduced block rank. In place: recv == send + displs[rank]. */
UNI_API uniResult_t uniReduceScatterV(const void* send, void* recv, const size_t* counts,
                                      const size_t* displs, uniDataType_t type, uniRedOp_t op,
                                      uniComm_t comm, uniStream_t stream);
/* recv at root holds all blocks. In place at root: send == recv + displs[root]. */
UNI_API uniResult_t uniGatherV(const void* send, void* recv, const size_t* counts,
                               const size_t* displs, uniDataType_t type, int root, uniComm_t comm,
                               uniStream_t stream);
/* send at root holds all blocks. In place at root: recv == send + displs[root]. */
UNI_API uniResult_t uniScatterV(const void* send, void* recv, const size_t* counts,
                                const size_t* displs, uniDataType_t type, int root, uniComm_t comm,
                                uniStream_t stream);
/* Block r of send (sendcounts[r] elements at sdispls[r]) goes to rank r, block r of recv comes from
 * rank r. sendcounts[r] here must be recvcounts[rank] at rank r. Not in place. Runs as sends and
 * receives of a group: within one, it is matched in order with those of the same pair. */
UNI_API uniResult_t uniAllToAllV(const void* send, const size_t* sendcounts, const size_t* sdispls,
                                 void* recv, const size_t* recvcounts, const size_t* rdispls,
                                 uniDataType_t type, uniComm_t comm, uniStream_t stream);
UNI_API uniResult_t uniBarrier(uniComm_t comm, uniStream_t stream);

/* Point to point: matched in order per pair; count and type must agree. peer == own rank is allowed
 * in a group. */
UNI_API uniResult_t uniSend(const void* send, size_t count, uniDataType_t type, int peer,
                            uniComm_t comm, uniStream_t stream);
UNI_API uniResult_t uniRecv(void* recv, size_t count, uniDataType_t type, int peer, uniComm_t comm,
                            uniStream_t stream);
/* From whichever rank's message is there first; *source is set when the operation completes. Host
 * buffers only. */
UNI_API uniResult_t uniRecvAny(void* recv, size_t count, uniDataType_t type, int* source,
                               uniComm_t comm, uniStream_t stream);

/* Calls between Start and End (which nest) are issued together at the outermost End, so that one
 * thread may drive several ranks, and so that sends and receives of a pair cannot block each other.
 * Argument errors are reported at the call and again at End, which then issues nothing. Blocking
 * calls complete in End. */
UNI_API uniResult_t uniGroupStart(void);
UNI_API uniResult_t uniGroupEnd(void);

/* op: the sum over ranks of scalar * send[i]. *scalar is of `type` (a float type) and is read
 * during the call. Ranks may use different scalars; the operations must be made in the same order
 * on each rank. */
UNI_API uniResult_t uniRedOpCreatePreMulSum(uniRedOp_t* op, const void* scalar, uniDataType_t type,
                                            uniComm_t comm);
UNI_API uniResult_t uniRedOpDestroy(uniRedOp_t op, uniComm_t comm);

/* ---- Host streams and events: in-order queues of work, driven by the library ---- */

UNI_API uniResult_t uniStreamCreate(uniStream_t* stream);
UNI_API uniResult_t
uniStreamDestroy(uniStream_t stream); /* Completes its work first. NULL is allowed. */
/* Waits for all work issued so far; returns the first error of that work, once. */
UNI_API uniResult_t uniStreamSynchronize(uniStream_t stream);
UNI_API uniResult_t
uniStreamQuery(uniStream_t stream); /* uniSuccess: idle. uniInProgress: not yet. */
/* Later work of the stream waits for the event's last record (an event never recorded counts as
 * done). */
UNI_API uniResult_t uniStreamWaitEvent(uniStream_t stream, uniEvent_t event);
/* fn runs once, in stream order, on the library's thread and outside its locks, also after abort.
 * status: uniSuccess or the first error of the stream's earlier work. fn may issue work; it must
 * not wait for its own stream. */
typedef void (*uniHostFn_t)(void* arg, uniResult_t status);
UNI_API uniResult_t uniStreamLaunchHostFunc(uniStream_t stream, uniHostFn_t fn, void* arg);
/* A cudaStream_t (NULL: the default stream) as a uniStream_t, for communicators with
 * config.device = "cuda": calls return once they are on the stream and run in its order. It stays
 * the caller's, and outlives this handle. uniStreamSynchronize, Query and Destroy take it; for host
 * functions and events there are CUDA's own calls (uniInvalidUsage). Fails where there is no CUDA.
 */
UNI_API uniResult_t uniStreamWrapCuda(uniStream_t* stream, void* cuda_stream);

UNI_API uniResult_t uniEventCreate(uniEvent_t* event);
UNI_API uniResult_t uniEventRecord(uniEvent_t event, uniStream_t stream);
UNI_API uniResult_t uniEventQuery(uniEvent_t event);
/* timeout_ms < 0: no limit. uniTimeout if the event was not reached in time (nothing else is
 * affected). */
UNI_API uniResult_t uniEventSynchronize(uniEvent_t event, int64_t timeout_ms);
UNI_API uniResult_t uniEventDestroy(uniEvent_t event);

#ifdef __cplusplus
}
#endif
#endif /* UNISONO_UNISONO_H_ */
