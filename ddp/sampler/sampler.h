#pragma once

#include <cstdint>
#include <memory>

namespace unisono::ddp {

// Which samples one rank sees, in which order: that of PyTorch's DistributedSampler. The list of an
// epoch is 0, 1, ..., samples - 1, shuffled or not, then filled up from its own head (or cut) to
// ranks x count entries; rank r sees entries r, r + ranks, r + 2 ranks, ... of it. With
// `evaluation` the list is neither shuffled, filled up nor cut.
//
// One thread at a time. A shuffled order (4 bytes a sample) is made when the first sample of an
// epoch is asked for; without shuffling nothing is stored.
class Sampler {
 public:
  struct Shape {
    uint64_t samples = 0;
    uint64_t ranks = 1, rank = 0;  // rank < ranks <= INT_MAX
    uint64_t seed = 0;
    bool shuffle = true;  // then samples < 2^32
    bool drop_last = false;
    bool evaluation = false;
  };

  // NULL: no memory for the order.
  static std::unique_ptr<Sampler> create(const Shape& shape);

  // Samples of an epoch on this rank.
  uint64_t count() const { return count_; }
  uint64_t epoch() const { return epoch_; }
  // How many of this epoch's samples were given out.
  uint64_t position() const { return position_; }
  // position <= count().
  void move_to(uint64_t epoch, uint64_t position);
  // The next at most `capacity` indices; returns how many, 0 at the end of the epoch.
  uint64_t next(uint64_t* indices, uint64_t capacity);

 private:
  explicit Sampler(const Shape& shape);
  void order_epoch();
  // The entry of the list that is this rank's `position`th.
  uint64_t entry(uint64_t position) const;

  Shape shape_;
  uint64_t count_;
  uint64_t epoch_ = 0, position_ = 0;
  std::unique_ptr<uint32_t[]> order_;  // NULL: 0, 1, 2, ...
  bool ordered_ = false;               // order_ is that of ordered_epoch_.
  uint64_t ordered_epoch_ = 0;
};

}  // namespace unisono::ddp
