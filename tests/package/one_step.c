/* A training of somebody else's, one step of one rank: parameters broadcast, images from the
 * sampler, a gradient through the reducer. Exit status 0: all was right. */
#include <stdio.h>
#include <unisono/ddp.h>

#define COUNT 5

static int check(uniResult_t result, const char* what) {
  if (result == uniSuccess) return 1;
  fprintf(stderr, "%s: %s: %s\n", what, uniGetErrorString(result), uniGetLastError(NULL));
  return 0;
}

int main(void) {
  float value[COUNT] = {1, 2, 3, 4, 5}, grad[COUNT] = {5, 4, 3, 2, 1};
  void* tensors[1];
  const size_t shape[1] = {COUNT};
  const uniDataType_t type = uniFloat32;
  uniParameter_t parameter;
  uniComm_t comm = NULL;
  uniSampler_t sampler = NULL;
  uniReducer_t reducer = NULL;
  uint64_t images[4] = {0, 0, 0, 0}, count = 0;
  int right;
  tensors[0] = value;
  parameter.name = "weight";
  parameter.grad = grad;
  parameter.type = type;
  parameter.dims = 1;
  parameter.shape = shape;
  right =
      check(uniCommInitAll(&comm, 1, NULL), "uniCommInitAll") &&
      check(uniBroadcastCoalesced(comm, tensors, shape, &type, 1, 0), "uniBroadcastCoalesced") &&
      check(uniSamplerCreate(&sampler, 10, 1, 0, NULL), "uniSamplerCreate") &&
      check(uniSamplerNext(sampler, images, 4, &count), "uniSamplerNext") &&
      check(uniReducerCreate(&reducer, comm, &parameter, 1, NULL), "uniReducerCreate") &&
      check(uniReducerBeginBackward(reducer, 1), "uniReducerBeginBackward") &&
      check(uniReducerMarkReady(reducer, 0), "uniReducerMarkReady") &&
      check(uniReducerFinish(reducer), "uniReducerFinish");
  /* torch.randperm(10) of seed 0 begins so. */
  right =
      right && count == 4 && images[0] == 4 && images[1] == 1 && images[2] == 7 && images[3] == 5;
  right = right && grad[0] == 5 && grad[4] == 1 && value[4] == 5;
  right = check(uniReducerDestroy(reducer), "uniReducerDestroy") && right;
  right = check(uniSamplerDestroy(sampler), "uniSamplerDestroy") && right;
  right = check(uniCommDestroy(comm), "uniCommDestroy") && right;
  puts(right ? "one step: right" : "one step: wrong");
  return right ? 0 : 1;
}
