/* The C API from C99: constants, argument errors, one rank, and two ranks driven by one thread in
 * groups. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/unisono.h>

static int failures = 0;

#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      fprintf(stderr, "  last error: %s\n", uniGetLastError(NULL));           \
      failures++;                                                             \
    }                                                                         \
  } while (0)
#define EXPECT_OK(call) EXPECT((call) == uniSuccess)

enum { kCount = 37 };

static void version_and_words(void) {
  static const uniResult_t results[] = {
      uniSuccess,     uniSystemError, uniInternalError, uniInvalidArgument, uniInvalidUsage,
      uniRemoteError, uniInProgress,  uniTimeout,       uniAborted,         uniMismatch};
  size_t i, j;
  int version = 0;
  EXPECT_OK(uniGetVersion(&version));
  EXPECT(version == UNI_VERSION_CODE);
  EXPECT(uniGetVersion(NULL) == uniInvalidArgument);
  for (i = 0; i < sizeof results / sizeof results[0]; i++) {
    EXPECT(strlen(uniGetErrorString(results[i])) > 0);
    for (j = 0; j < i; j++) {
      EXPECT(strcmp(uniGetErrorString(results[i]), uniGetErrorString(results[j])) != 0);
    }
  }
  EXPECT(uniGetErrorString((uniResult_t)99) != NULL);
}

static void values_are_nccls(void) {
  EXPECT(uniInt8 == 0 && uniUint8 == 1 && uniInt32 == 2 && uniUint32 == 3 && uniInt64 == 4);
  EXPECT(uniUint64 == 5 && uniFloat16 == 6 && uniFloat32 == 7 && uniFloat64 == 8 &&
         uniBfloat16 == 9);
  EXPECT(uniSum == 0 && uniProd == 1 && uniMax == 2 && uniMin == 3 && uniAvg == 4);
  EXPECT(uniSuccess == 0 && uniSystemError == 2 && uniInternalError == 3 &&
         uniInvalidArgument == 4);
  EXPECT(uniInvalidUsage == 5 && uniRemoteError == 6 && uniInProgress == 7);
  EXPECT(sizeof(uniUniqueId) == UNI_UNIQUE_ID_BYTES);
}

/* Each wrong argument is refused, and the message names it. */
static void wrong_arguments_are_named(uniComm_t comm) {
  float send[4] = {1, 2, 3, 4};
  float recv[4] = {0, 0, 0, 0};
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  uniComm_t other = NULL;
  EXPECT(uniAllReduce(send, recv, 4, uniFloat32, uniSum, NULL, NULL) == uniInvalidArgument);
  EXPECT(strstr(uniGetLastError(NULL), "comm") != NULL);
  EXPECT(uniAllReduce(NULL, recv, 4, uniFloat32, uniSum, comm, NULL) == uniInvalidArgument);
  EXPECT(strstr(uniGetLastError(NULL), "send") != NULL);
  EXPECT(uniAllReduce(send, NULL, 4, uniFloat32, uniSum, comm, NULL) == uniInvalidArgument);
  EXPECT(strstr(uniGetLastError(NULL), "recv") != NULL);
  EXPECT(uniAllReduce(send, recv, 4, (uniDataType_t)77, uniSum, comm, NULL) == uniInvalidArgument);
  EXPECT(strstr(uniGetLastError(NULL), "type") != NULL);
  EXPECT(uniAllReduce(send, recv, 4, uniFloat32, (uniRedOp_t)55, comm, NULL) == uniInvalidArgument);
  EXPECT(strstr(uniGetLastError(NULL), "op") != NULL);
  EXPECT(uniAllReduce(send, recv, 4, uniFloat32, uniBxor, comm, NULL) == uniInvalidArgument);
  EXPECT(uniBroadcast(send, recv, 4, uniFloat32, 7, comm, NULL) == uniInvalidArgument);
  EXPECT(strstr(uniGetLastError(NULL), "root") != NULL);
  EXPECT(uniAllReduce(send, recv, SIZE_MAX / 2, uniFloat32, uniSum, comm, NULL) ==
         uniInvalidArgument);
  EXPECT(strstr(uniGetLastError(NULL), "count") != NULL);
  EXPECT(uniAllReduce(send, send + 1, 3, uniFloat32, uniSum, comm, NULL) == uniInvalidArgument);
  config.magic = 1;
  EXPECT(uniCommInitAll(&other, 1, &config) == uniInvalidArgument);
  EXPECT(strstr(uniGetLastError(NULL), "config") != NULL);
  EXPECT(uniCommInitAll(&other, 0, NULL) == uniInvalidArgument);
  EXPECT(uniStreamWrapCuda(NULL, NULL) == uniInvalidArgument);
  EXPECT(recv[0] == 0 && recv[3] == 0);
  EXPECT(uniSetLastError(uniMismatch, "a layer's words") == uniMismatch);
  EXPECT(strcmp(uniGetLastError(NULL), "a layer's words") == 0);
  EXPECT(uniSetLastError(uniSuccess, NULL) == uniSuccess);
  EXPECT(strcmp(uniGetLastError(NULL), "") == 0);
}

static void algorithms_have_names(void) {
  uniAlgorithmInfo_t info;
  int count = 0, ring = 0;
  memset(&info, 0, sizeof info);
  EXPECT(uniAlgorithmQuery(0, &info) == uniInvalidArgument); /* no size */
  info.size = sizeof info;
  while (uniAlgorithmQuery(count, &info) == uniSuccess) {
    EXPECT(info.name[0] != 0 && info.paper[0] != 0);
    ring += strcmp(info.name, "ring") == 0;
    count++;
    info.size = sizeof info;
  }
  EXPECT(count >= 10 && ring == 1);
  EXPECT(uniAlgorithmQuery(-1, &info) == uniInvalidArgument);
  EXPECT(uniAlgorithmQuery(0, NULL) == uniInvalidArgument);
}

static void one_rank_copies(uniComm_t comm) {
  float send[kCount], recv[kCount];
  uniCommInfo_t info;
  uniResult_t async_error = uniInternalError;
  int i, ranks = 0, rank = -1;
  for (i = 0; i < kCount; i++) send[i] = (float)i;
  memset(recv, 0, sizeof recv);
  EXPECT_OK(uniCommCount(comm, &ranks));
  EXPECT_OK(uniCommUserRank(comm, &rank));
  EXPECT(ranks == 1 && rank == 0);
  EXPECT_OK(uniAllReduce(send, recv, kCount, uniFloat32, uniSum, comm, NULL));
  EXPECT(memcmp(send, recv, sizeof send) == 0);
  EXPECT_OK(uniAllReduce(send, recv, 0, uniFloat32, uniSum, comm, NULL));
  EXPECT_OK(uniBarrier(comm, NULL));
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  EXPECT_OK(uniCommQuery(comm, &info));
  EXPECT(info.ranks == 1 && info.failed == 0);
  EXPECT_OK(uniCommGetAsyncError(comm, &async_error));
  EXPECT(async_error == uniSuccess);
}

static void transports_can_be_listed(void) {
  uniTransportInfo_t info;
  int index = 0;
  int shm = 0;
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  while (uniTransportQuery(index, &info) == uniSuccess) {
    shm += strcmp(info.name, "shm") == 0;
    EXPECT(strlen(info.detail) > 0 || info.available);
    index++;
  }
  EXPECT(index >= 2 && shm == 1);
  EXPECT(uniTransportQuery(index, &info) == uniInvalidArgument);
}

/* One thread owns both ranks: a group drives them together. */
static void two_ranks_sum(uniComm_t* comms) {
  int32_t send[2][kCount], recv[2][kCount];
  int r, i;
  for (r = 0; r < 2; r++) {
    for (i = 0; i < kCount; i++) send[r][i] = i * (r + 1);
  }
  EXPECT_OK(uniGroupStart());
  for (r = 0; r < 2; r++) {
    EXPECT_OK(uniAllReduce(send[r], recv[r], kCount, uniInt32, uniSum, comms[r], NULL));
  }
  EXPECT_OK(uniGroupEnd());
  for (r = 0; r < 2; r++) {
    for (i = 0; i < kCount; i++) EXPECT(recv[r][i] == 3 * i);
  }
}

static void two_ranks_send_and_receive(uniComm_t* comms) {
  double left = 2.5;
  double right = 0;
  EXPECT_OK(uniGroupStart());
  EXPECT_OK(uniSend(&left, 1, uniFloat64, 1, comms[0], NULL));
  EXPECT_OK(uniRecv(&right, 1, uniFloat64, 0, comms[1], NULL));
  EXPECT_OK(uniGroupEnd());
  EXPECT(right == 2.5);
}

static void two_ranks_premultiply(uniComm_t* comms) {
  const float scalars[2] = {0.5f, 2.0f};
  float send[2] = {8, 3};
  float recv[2] = {0, 0};
  uniRedOp_t ops[2];
  int r;
  for (r = 0; r < 2; r++) {
    EXPECT_OK(uniRedOpCreatePreMulSum(&ops[r], &scalars[r], uniFloat32, comms[r]));
    EXPECT((int)ops[r] >= 64);
  }
  EXPECT_OK(uniGroupStart());
  for (r = 0; r < 2; r++) {
    EXPECT_OK(uniAllReduce(&send[r], &recv[r], 1, uniFloat32, ops[r], comms[r], NULL));
  }
  EXPECT_OK(uniGroupEnd());
  EXPECT(recv[0] == 10 && recv[1] == 10);
  for (r = 0; r < 2; r++) EXPECT_OK(uniRedOpDestroy(ops[r], comms[r]));
}

static void count_call(void* arg, uniResult_t status) {
  if (status == uniSuccess) ++*(int*)arg;
}

static void streams_run_in_order(uniComm_t comm) {
  uniStream_t stream = NULL;
  uniEvent_t event = NULL;
  float send[kCount], recv[kCount];
  int i;
  int calls = 0;
  for (i = 0; i < kCount; i++) send[i] = (float)-i;
  EXPECT_OK(uniStreamCreate(&stream));
  EXPECT_OK(uniEventCreate(&event));
  EXPECT_OK(uniAllReduce(send, recv, kCount, uniFloat32, uniMax, comm, stream));
  EXPECT_OK(uniStreamLaunchHostFunc(stream, count_call, &calls));
  EXPECT_OK(uniEventRecord(event, stream));
  EXPECT_OK(uniEventSynchronize(event, 60000));
  EXPECT_OK(uniStreamSynchronize(stream));
  EXPECT_OK(uniStreamQuery(stream));
  EXPECT_OK(uniEventQuery(event));
  EXPECT(calls == 1 && memcmp(send, recv, sizeof send) == 0);
  EXPECT_OK(uniEventDestroy(event));
  EXPECT_OK(uniStreamDestroy(stream));
}

static void memory_can_be_registered(uniComm_t comm) {
  void* memory = NULL;
  void* handle = NULL;
  EXPECT_OK(uniMemAlloc(&memory, 10000));
  EXPECT(memory != NULL);
  memset(memory, 0x5a, 10000);
  EXPECT_OK(uniCommRegister(comm, memory, 10000, &handle));
  EXPECT_OK(uniCommDeregister(comm, handle));
  EXPECT_OK(uniMemFree(memory));
  EXPECT_OK(uniMemFree(NULL));
}

int main(void) {
  uniComm_t one = NULL;
  uniComm_t pair[2] = {NULL, NULL};
  version_and_words();
  values_are_nccls();
  transports_can_be_listed();
  EXPECT_OK(uniCommInitAll(&one, 1, NULL));
  EXPECT_OK(uniCommInitAll(pair, 2, NULL));
  if (one != NULL && pair[0] != NULL && pair[1] != NULL) {
    wrong_arguments_are_named(one);
    algorithms_have_names();
    one_rank_copies(one);
    streams_run_in_order(one);
    memory_can_be_registered(one);
    two_ranks_sum(pair);
    two_ranks_send_and_receive(pair);
    two_ranks_premultiply(pair);
  }
  EXPECT_OK(uniCommDestroy(one));
  EXPECT_OK(uniCommDestroy(pair[0]));
  EXPECT_OK(uniCommDestroy(pair[1]));
  EXPECT_OK(uniCommDestroy(NULL));
  printf("%d failures\n", failures);
  return failures != 0;
}
