// Layout, little endian as the machine: the magic word, version; then uint64s: type_bytes, batch,
// seed, train_images, number of layers, layers; epoch, images, step (as many losses follow); bytes
// of tensors; then losses, tensors, and the FNV-1a hash of all that comes before it.
#include "ddp/examples/digits/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace digits {
namespace {

constexpr uint64_t kMagic = 0x5449474944494E55;  // "UNIDIGIT" in the file
constexpr uint64_t kVersion = 1;
constexpr uint64_t kMostLayers = 64;

uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  return hash;
}

std::string failed(const std::string& file, const char* call) {
  return fmt::format("{}: {}: {}", file, call, std::strerror(errno));
}

// Opening never waits: a fifo would, for its other end.
class Descriptor {
 public:
  Descriptor(const std::string& file, int flags)
      : fd_(open(file.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void put(std::string* out, const void* data, size_t bytes) {
  out->append(static_cast<const char*>(data), bytes);
}
void put(std::string* out, uint64_t number) {
  put(out, &number, sizeof number);
}

size_t bytes_of(const Tensors& tensors) {
  size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.size();
  return bytes;
}

// Takes what is there off the front; after the first shortage everything is short.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  uint64_t number() {
    uint64_t number = 0;
    take(&number, sizeof number);
    return number;
  }
  void take(void* to, size_t bytes) {
    short_ = short_ || bytes > bytes_.size();
    if (short_) return;
    std::memcpy(to, bytes_.data(), bytes);
    bytes_.remove_prefix(bytes);
  }
  bool is_short() const { return short_; }
  size_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
  bool short_ = false;
};

// "" or how the file's run differs from this one.
std::string compare(Reader* in, const Progress& run) {
  const std::pair<const char*, uint64_t> numbers[] = {{"bytes of --type", run.type_bytes},
                                                      {"--batch", run.batch},
                                                      {"--seed", run.seed},
                                                      {"images to train on", run.train_images}};
  for (const auto& [name, here] : numbers) {
    const uint64_t there = in->number();
    if (there != here && !in->is_short()) {
      return fmt::format("is of another run: {}: {} there, {} here", name, there, here);
    }
  }
  const uint64_t count = in->number();
  if (count > kMostLayers) return fmt::format("has {} layers, more than {}", count, kMostLayers);
  std::vector<uint64_t> layers(count);
  for (uint64_t& layer : layers) layer = in->number();
  if (layers != run.layers && !in->is_short()) {
    return fmt::format("is of another run: --hidden gives layers of {} units there, {} here",
                       fmt::join(layers, " "), fmt::join(run.layers, " "));
  }
  return "";
}

// "" or what is wrong with the file's bytes. Changes nothing but *progress and, at the end,
// tensors.
std::string parse(std::string_view bytes, Progress* progress, const Tensors& tensors) {
  Reader in(bytes);
  if (in.number() != kMagic) return "is no checkpoint of ddp-digits";
  if (const uint64_t version = in.number(); version != kVersion && !in.is_short()) {
    return fmt::format("has version {}; this program reads {}", version, kVersion);
  }
  if (std::string other = compare(&in, *progress); !other.empty()) return other;
  const uint64_t epoch = in.number(), images = in.number(), step = in.number();
  const uint64_t tensor_bytes = in.number();
  const size_t expected_tensors = bytes_of(tensors);
  const size_t rest = in.left();
  // Divided, not multiplied: a step from a broken file may be anything.
  const bool fits = !in.is_short() && tensor_bytes == expected_tensors &&
                    rest >= tensor_bytes + sizeof(uint64_t) &&
                    (rest - tensor_bytes) % sizeof(double) == 0 &&
                    (rest - tensor_bytes) / sizeof(double) - 1 == step;
  if (!fits) return fmt::format("is cut short or too long ({} bytes)", bytes.size());
  const std::string_view hashed = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  if (Reader(bytes.substr(hashed.size())).number() != fnv1a(hashed)) {
    return "is damaged: its checksum is wrong";
  }
  if (images > progress->train_images) return fmt::format("is at image {} of an epoch", images);
  progress->epoch = epoch;
  progress->images = images;
  progress->step = step;
  progress->losses.resize(step);
  in.take(progress->losses.data(), step * sizeof(double));
  for (const auto& tensor : tensors) in.take(tensor.data(), tensor.size());
  return "";
}

}  // namespace

std::string try_checkpoint(const std::string& file) {
  const std::string beside = file + ".new";
  {
    const Descriptor made(beside, O_WRONLY | O_CREAT | O_EXCL);
    if (made.get() >= 0) {
      (void)unlink(beside.c_str());
      return "";
    }
  }
  if (errno != EEXIST) return failed(beside, "open");
  const Descriptor there(beside, O_WRONLY);
  return there.get() < 0 ? failed(beside, "open") : "";
}

std::string write_checkpoint(const std::string& file, const Progress& progress,
                             const Tensors& tensors) {
  std::string bytes;
  for (const uint64_t number :
       {kMagic, kVersion, progress.type_bytes, progress.batch, progress.seed, progress.train_images,
        uint64_t{progress.layers.size()}}) {
    put(&bytes, number);
  }
  for (const uint64_t layer : progress.layers) put(&bytes, layer);
  for (const uint64_t number :
       {progress.epoch, progress.images, progress.step, uint64_t{bytes_of(tensors)}}) {
    put(&bytes, number);
  }
  put(&bytes, progress.losses.data(), progress.losses.size() * sizeof(double));
  for (const auto& tensor : tensors) put(&bytes, tensor.data(), tensor.size());
  put(&bytes, fnv1a(bytes));

  const std::string beside = file + ".new";
  const auto given_up = [&beside](const std::string& problem) {
    (void)unlink(beside.c_str());
    return problem;
  };
  {
    const Descriptor out(beside, O_WRONLY | O_CREAT | O_TRUNC);
    if (out.get() < 0) return failed(beside, "open");
    if (!write_all(out.get(), bytes)) return given_up(failed(beside, "write"));
    if (fsync(out.get()) != 0) return given_up(failed(beside, "fsync"));
  }
  if (rename(beside.c_str(), file.c_str()) != 0) return given_up(failed(file, "rename"));
  const size_t slash = file.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : file.substr(0, slash + 1);
  const Descriptor in(folder, O_RDONLY | O_DIRECTORY);
  if (in.get() < 0 || fsync(in.get()) != 0) return failed(folder, "fsync");
  return "";
}

Loaded read_checkpoint(const std::string& file, Progress* progress, const Tensors& tensors,
                       std::string* problem) {
  const Descriptor in(file, O_RDONLY);
  if (in.get() < 0 && errno == ENOENT) return Loaded::kNo;
  struct stat status {};
  if (in.get() < 0 || fstat(in.get(), &status) != 0) {
    *problem = failed(file, "open");
    return Loaded::kFailed;
  }
  if (!S_ISREG(status.st_mode)) {
    *problem = fmt::format("{}: is no regular file", file);
    return Loaded::kFailed;
  }
  std::string bytes(static_cast<size_t>(std::max<off_t>(status.st_size, 0)), '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = read(in.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      *problem = failed(file, "read");
      return Loaded::kFailed;
    }
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  const std::string wrong = parse(bytes, progress, tensors);
  if (wrong.empty()) return Loaded::kYes;
  *problem = fmt::format("{}: {}", file, wrong);
  return Loaded::kFailed;
}

}  // namespace digits
