// The double: NCCL and the CUDA runtime as far as transports/nccl uses them, on host memory. Ranks
// are threads of one process, streams are worker threads, devices are numbers. It checks what the
// real ones would take for granted (order of calls, handles, buffers within allocations) and keeps
// what was wrong in words; any call can be made to fail.
//
// Declares the functions of transports/nccl/api.h with their C names, for tests that play the
// user's side of CUDA.
#pragma once

#include "transports/nccl/api.h"

namespace unisono::nccl {
extern "C" {
#define UNISONO_DECLARE(name, result, parameters) result name parameters;
UNISONO_NCCL_CALLS(UNISONO_DECLARE)
UNISONO_NCCL_NEWER_CALLS(UNISONO_DECLARE)
UNISONO_CUDA_CALLS(UNISONO_DECLARE)
#undef UNISONO_DECLARE

struct NcclDoubleLive {
  int comms, streams, events, allocations, ops, registrations;
};
// What exists now. All zero but for the user's own: nothing leaked.
NcclDoubleLive nccl_double_live();
// Forgets planned failures, counts and violations.
void nccl_double_reset();
// The `nth` call from now (from 1) of the function named `call` returns `code` and does nothing.
// "async" is no function: the state that ncclCommGetAsyncError tells.
void nccl_double_fail(const char* call, int nth, int code);
// How often a function was called since the reset.
int nccl_double_calls(const char* call);
// What was wrong so far, a line each; "" when all was right.
const char* nccl_double_violations();
// Whether buffers need not be within cudaMalloc's.
void nccl_double_any_buffer(int any);
// Puts work on a stream that ends with nccl_double_open; null is the current device's default.
void nccl_double_hold(Stream* stream);
void nccl_double_open();
// Makes a stream say that it is being captured.
void nccl_double_capture(Stream* stream, int capturing);
// Waits until `call` has been called `times` more.
void nccl_double_await_calls(const char* call, int times);
}
}  // namespace unisono::nccl
