// Checkpoints that rank 0 writes and every rank gets: no file system needs to be shared.
#ifndef UNISONO_TORCH_CHECKPOINT_H_
#define UNISONO_TORCH_CHECKPOINT_H_

#include <torch/serialize/archive.h>

#include <functional>
#include <string>

#include "unisono/unisono.h"

namespace unisono::ddp {

// Collective. Rank 0 calls `fill` and writes the archive to `path`, which is always a whole one,
// the old or the new, whenever a machine stops. Returns once it is on disk; throws on every rank if
// it could not be written.
//   save_checkpoint(comm, path, [&](auto& archive) {
//     torch::serialize::OutputArchive weights;
//     model->save(weights);
//     archive.write("model", weights);
//   });
UNI_API void save_checkpoint(uniComm_t comm, const std::string& path,
                             const std::function<void(torch::serialize::OutputArchive&)>& fill);

// Collective. False everywhere, and nothing is called, if rank 0 has no file at `path`; otherwise
// every rank calls `take` with rank 0's archive. Throws on every rank if it cannot be read.
UNI_API bool load_checkpoint(uniComm_t comm, const std::string& path,
                             const std::function<void(torch::serialize::InputArchive&)>& take);

}  // namespace unisono::ddp

#endif  // UNISONO_TORCH_CHECKPOINT_H_
