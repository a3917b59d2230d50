#include "comm/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "base/net/socket.h"

namespace unisono {
namespace {

struct Block {
  size_t bytes = 0;
  net::Fd fd;
};

struct Table {
  std::mutex mutex;
  std::map<std::byte*, Block> blocks;
};

Table& table() {
  static auto* instance = new Table;  // outlives static destructors of the program
  return *instance;
}

}  // namespace

Result<void*> allocate_shareable(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (bytes > SIZE_MAX - page)
    return error(Code::kInvalidArgument, "bytes: {} is too large", bytes);
  const size_t rounded = bytes == 0 ? page : (bytes + page - 1) / page * page;
  net::Fd fd(memfd_create("unisono-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return system_error(errno, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(rounded)) != 0) {
    return system_error(errno, fmt::format("bytes: cannot size {} bytes of shared memory", bytes));
  }
  void* at = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED)
    return system_error(errno, fmt::format("bytes: cannot map {} bytes", bytes));
  const std::lock_guard lock(table().mutex);
  table().blocks.emplace(static_cast<std::byte*>(at), Block{rounded, std::move(fd)});
  return at;
}

Status free_shareable(void* pointer) {
  if (pointer == nullptr) return {};
  const std::lock_guard lock(table().mutex);
  auto found = table().blocks.find(static_cast<std::byte*>(pointer));
  if (found == table().blocks.end()) {
    return error(Code::kInvalidArgument, "pointer: {} was not made by uniMemAlloc", pointer);
  }
  munmap(pointer, found->second.bytes);
  table().blocks.erase(found);
  return {};
}

Result<Region> shareable_region(void* pointer, size_t bytes) {
  auto* begin = static_cast<std::byte*>(pointer);
  Region region{pointer, bytes, -1, 0};
  const std::lock_guard lock(table().mutex);
  auto next = table().blocks.upper_bound(begin);
  if (next == table().blocks.begin()) return region;
  const auto& [base, block] = *std::prev(next);
  const auto offset = static_cast<size_t>(begin - base);
  if (offset > block.bytes || bytes > block.bytes - offset) return region;
  region.fd = block.fd.get();
  region.fd_offset = offset;
  return region;
}

}  // namespace unisono
