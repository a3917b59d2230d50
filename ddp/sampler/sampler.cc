#include "ddp/sampler/sampler.h"

#include <algorithm>
#include <new>

#include "ddp/sampler/permutation.h"

namespace unisono::ddp {
namespace {

uint64_t samples_of_rank(const Sampler::Shape& shape) {
  const uint64_t whole = shape.samples / shape.ranks;
  const uint64_t tail = shape.samples % shape.ranks;
  if (shape.evaluation) return whole + (shape.rank < tail ? 1 : 0);
  return whole + (tail != 0 && !shape.drop_last ? 1 : 0);
}

}  // namespace

Sampler::Sampler(const Shape& shape) : shape_(shape), count_(samples_of_rank(shape)) {}

std::unique_ptr<Sampler> Sampler::create(const Shape& shape) {
  std::unique_ptr<Sampler> sampler(new (std::nothrow) Sampler(shape));
  if (sampler == nullptr || !shape.shuffle || shape.evaluation) return sampler;
  sampler->order_.reset(new (std::nothrow) uint32_t[shape.samples]);
  return sampler->order_ == nullptr ? nullptr : std::move(sampler);
}

void Sampler::move_to(uint64_t epoch, uint64_t position) {
  epoch_ = epoch;
  position_ = position;
}

void Sampler::order_epoch() {
  if (order_ == nullptr || (ordered_ && ordered_epoch_ == epoch_)) return;
  torch_permutation(order_.get(), static_cast<uint32_t>(shape_.samples), shape_.seed + epoch_);
  ordered_ = true;
  ordered_epoch_ = epoch_;
}

uint64_t Sampler::entry(uint64_t position) const {
  const uint64_t place = position * shape_.ranks + shape_.rank;
  // What fills up the list: its own head, as often as needed. The place itself may have wrapped
  // around 2^64; its distance from the end of the samples is less than `ranks` and has not.
  const bool filled =
      position > shape_.samples / shape_.ranks ||
      (position == shape_.samples / shape_.ranks && shape_.rank >= shape_.samples % shape_.ranks);
  return filled ? (place - shape_.samples) % shape_.samples : place;
}

uint64_t Sampler::next(uint64_t* indices, uint64_t capacity) {
  const uint64_t given = std::min(capacity, count_ - position_);
  if (given == 0) return 0;
  order_epoch();
  for (uint64_t i = 0; i < given; i++) {
    const uint64_t at = entry(position_ + i);
    indices[i] = order_ == nullptr ? at : order_[at];
  }
  position_ += given;
  return given;
}

}  // namespace unisono::ddp
