#include "base/caches.h"

#include <fstream>
#include <istream>
#include <string>

namespace unisono {
namespace {

constexpr uint64_t kUnknown = uint64_t{4} << 20;
constexpr char kFolder[] = "/sys/devices/system/cpu/cpu0/cache/index3/";

// "0-7,64-71" is 16; 0 where it is nothing of the kind.
uint64_t count_processors(std::istream& list) {
  uint64_t count = 0, first = 0;
  while (list >> first) {
    uint64_t last = first;
    if (list.peek() == '-') list.ignore() >> last;
    if (list.fail() || last < first) return 0;
    count += last - first + 1;
    if (list.peek() == ',') list.ignore();
  }
  return count;
}

// sysconf() asks the processor, which on a virtual machine may answer for the whole host; the
// kernel's own table is what is ours.
uint64_t look_up() {
  std::ifstream size(std::string(kFolder) + "size");  // "8192K"
  std::ifstream sharers(std::string(kFolder) + "shared_cpu_list");
  uint64_t kibibytes = 0;
  char unit = 0;
  const uint64_t processors = count_processors(sharers);
  if (!(size >> kibibytes >> unit) || unit != 'K' || processors == 0) return kUnknown;
  return (kibibytes << 10) / processors;
}

}  // namespace

uint64_t shared_cache_a_core() {
  static const uint64_t bytes = look_up();
  return bytes;
}

}  // namespace unisono
