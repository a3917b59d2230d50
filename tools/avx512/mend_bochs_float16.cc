// Loaded into Bochs 2.7 by LD_PRELOAD (tools/avx512-check --mend-float16): replaces its
// roundAndPackFloat16, by which vcvtps2ph rounds, since Debian's binary has two faults there:
// - to nearest, a tie is told by a bit that its four rounding bits do not have (0x10, for 0x8):
// every
//   tie goes outward, where IEEE 754 wants the even half. The compiler left the test out as dead.
// - what is shifted out of a subnormal half is told by (a << n) != 0 in 32 bits, not 16: it is
// always
//   something, so that ties go outward and exact subnormals are moved by rounding up or down.
// Written anew here, from what IEEE 754 says. In any other program than Bochs it does nothing.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr const char* kFunction = "_Z19roundAndPackFloat16istR14float_status_t";
constexpr int kNearest = 0, kDown = 1, kUp = 2;
constexpr int kUnderflow = 0x10, kOverflow = 0x08, kInexact = 0x20;

// The layout in Bochs 2.7's binary, of what is used here.
struct FloatStatus {
  int unused_0;
  int rounding_mode;
  int raised;
  int masked;
  int unused_16, unused_20;
  int flush_underflow_to_zero;
};

// `significand` has the leading one in bit 14, and four bits to be rounded off; `exponent` is one
// less than the half's biased one.
uint16_t round_half(int negative, int16_t exponent, uint16_t significand, FloatStatus* status) {
  const uint32_t sign = negative != 0 ? 0x8000 : 0;
  const int mode = status->rounding_mode;
  const bool outward = mode == (negative != 0 ? kDown : kUp);
  const int more = exponent < 0 ? -exponent : 0;  // places that a subnormal half lacks
  const uint32_t shift = static_cast<uint32_t>(4 + (more > 20 ? 20 : more));
  const uint32_t rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
  uint32_t code = static_cast<uint32_t>(significand) >> shift;
  const bool up =
      mode == kNearest ? rest > half || (rest == half && (code & 1) != 0) : outward && rest != 0;
  code += (up ? 1 : 0) + (exponent > 0 ? static_cast<uint32_t>(exponent) << 10 : 0);
  if (code >= 0x7c00) {
    status->raised |= kOverflow | kInexact;
    return static_cast<uint16_t>(sign | (mode == kNearest || outward ? 0x7c00 : 0x7bff));
  }
  if (more > 0 && code < 0x400) {
    if (status->flush_underflow_to_zero != 0) {
      status->raised |= kUnderflow | kInexact;
      return static_cast<uint16_t>(sign);
    }
    if (rest != 0 || (status->masked & kUnderflow) == 0) status->raised |= kUnderflow;
  }
  if (rest != 0) status->raised |= kInexact;
  return static_cast<uint16_t>(sign | code);
}

// The function's first bytes become a jump to ours: calls inside the program do not look it up.
__attribute__((constructor)) void mend() {
  auto* at = static_cast<unsigned char*>(dlsym(RTLD_DEFAULT, kFunction));
  if (at == nullptr) return;  // the shell script that starts Bochs
  unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};  // mov rax, N; jmp rax
  const auto ours = reinterpret_cast<uint64_t>(&round_half);
  std::memcpy(jump + 2, &ours, sizeof ours);
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t from = reinterpret_cast<uintptr_t>(at) / page * page;
  const size_t bytes = reinterpret_cast<uintptr_t>(at) + sizeof jump - from;
  if (mprotect(reinterpret_cast<void*>(from), bytes, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
    std::perror("mend_bochs_float16: mprotect");
    std::_Exit(1);
  }
  std::memcpy(at, jump, sizeof jump);
  mprotect(reinterpret_cast<void*>(from), bytes, PROT_READ | PROT_EXEC);
  std::fprintf(stderr, "mend_bochs_float16: roundAndPackFloat16 replaced\n");
}

}  // namespace
