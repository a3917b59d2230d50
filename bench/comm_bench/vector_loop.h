// For the loops of the bounds: compiled for every width of vectors, and chosen at run time, so that
// a bound is not loose because the compiler may use but the oldest instructions.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define BENCH_EVERY_TARGET __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define BENCH_EVERY_TARGET
#endif
// Outputs may be inputs, element by element.
#if defined(__GNUC__) && !defined(__clang__)
#define BENCH_VECTOR_LOOP _Pragma("GCC ivdep")
#else
#define BENCH_VECTOR_LOOP
#endif
