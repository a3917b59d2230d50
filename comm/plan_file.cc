#include "comm/plan_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "algorithms/plan_text.h"
#include "algorithms/verify/verify.h"

namespace unisono {
namespace {

// Most bytes that a block's slice has at least in a message: the longest element.
constexpr uint64_t kElementBytes = 8;

class File {
 public:
  explicit File(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Result<std::string> read_regular_file(const std::string& path) {
  const File file(path);
  if (file.fd() < 0) return system_error(errno, "open");
  struct stat about {};
  if (fstat(file.fd(), &about) != 0) return system_error(errno, "stat");
  if (!S_ISREG(about.st_mode)) return error(Code::kInvalidArgument, "not a regular file");
  std::string text;
  std::vector<char> piece(1 << 16);
  // One byte more than allowed tells the parser that it is too long.
  while (text.size() <= kMaxPlanTextBytes) {
    const ssize_t got = read(file.fd(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(errno, "read");
    if (got == 0) break;
    text.append(piece.data(), static_cast<size_t>(got));
  }
  return text;
}

bool has_shared_channel(const Plan& plan) {
  for (const ChannelId& id : plan.channels)
    if (id.reader == kAllButWriter) return true;
  return false;
}

Status annotated(const std::string& path, const Status& status) {
  return error(Code::kInvalidArgument, "{}: '{}': {}", kPlanFileVariable, path, status.message());
}

}  // namespace

bool PlanFile::serves(const Call& call, int32_t ranks) const {
  return call.collective == plan.collective && ranks == plan.ranks && call.blocks == nullptr &&
         (!has_root(call.collective) || call.root == plan.root);
}

Status PlanFile::check(const Agreement& agreement) const {
  if (agreement.ranks != plan.ranks) return {};
  if (several_readers && !agreement.multicast) {
    return error(Code::kInvalidArgument,
                 "{}: its channels have several readers, which the transports in use do not offer",
                 kPlanFileVariable);
  }
  const uint64_t least = static_cast<uint64_t>(plan.message_blocks) * kElementBytes;
  if (agreement.ranks > 1 && least > agreement.slice_bytes) {
    return error(Code::kInvalidArgument, "{}: messages of {} blocks do not fit slices of {} bytes",
                 kPlanFileVariable, plan.message_blocks, agreement.slice_bytes);
  }
  if (agreement.reproducible && has_op(plan.collective) && !plan.reproducible) {
    return error(Code::kInvalidArgument,
                 "{}: the plan is not reproducible, which the config asks for", kPlanFileVariable);
  }
  return {};
}

Result<std::shared_ptr<const PlanFile>> load_plan_file(const std::string& path, int32_t rank,
                                                       int32_t ranks) {
  const Result<std::string> text = read_regular_file(path);
  if (!text.ok()) return annotated(path, text.status());
  Result<std::vector<Plan>> plans = parse_plan_text(*text);
  if (!plans.ok()) return annotated(path, plans.status());
  if (const Status proved = verify_plans(*plans); !proved.ok()) return annotated(path, proved);
  auto file = std::make_shared<PlanFile>();
  file->hash = plan_hash(*plans);
  for (const Plan& plan : *plans)
    file->several_readers = file->several_readers || has_shared_channel(plan);
  const bool mine = static_cast<size_t>(ranks) == plans->size();
  file->plan = std::move((*plans)[mine ? static_cast<size_t>(rank) : 0]);
  return std::shared_ptr<const PlanFile>(std::move(file));
}

}  // namespace unisono
