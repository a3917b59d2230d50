// A fuzz target without libFuzzer: seeded random inputs, and mutations of them, as an ordinary
// test. Usage: fuzz_X_random [inputs [seed]]
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  const long inputs = argc > 1 ? std::atol(argv[1]) : 20000;
  const unsigned long seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  std::printf("seed %lu, %ld inputs\n", seed, inputs);
  std::mt19937_64 random(seed);
  std::vector<uint8_t> bytes;
  for (long i = 0; i < inputs; i++) {
    if (bytes.empty() || random() % 3 == 0) {
      bytes.resize(random() % 300);
      // Few distinct values at times: counts, versions and families are small numbers, text is
      // ASCII.
      const uint64_t range = (random() % 2 == 0) ? 256 : 1 + random() % 16;
      const uint64_t base = (random() % 4 == 0) ? '0' : 0;
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(base + random() % range);
    } else {
      for (uint64_t flips = random() % 4; flips > 0 && !bytes.empty(); flips--) {
        bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1U << (random() % 8));
      }
      if (random() % 8 == 0) bytes.resize(bytes.size() / 2);
    }
    // A copy of the exact size, so that the sanitizer sees a read past its end.
    std::vector<uint8_t> exact(bytes.begin(), bytes.end());
    exact.shrink_to_fit();
    if (LLVMFuzzerTestOneInput(exact.data(), exact.size()) != 0) return 1;
  }
  return 0;
}
