// How the gradients of a step meet: the one place where one process and many differ.
#pragma once

#include <memory>
#include <vector>

#include "ddp/examples/digits/network.h"
#include "ddp/examples/digits/options.h"
#include "unisono/ddp.h"

namespace digits {

// Of one rank, used by its thread. Failures end the process (check.h).
template <class T>
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Before anything is computed with the parameters.
  virtual void before_forward() = 0;
  // Then every Parameter::grad is where backward is to write.
  virtual void before_backward() = 0;
  virtual void ready(int parameter) = 0;
  // Blocks until the gradients are those of the global batch, where updates().
  virtual void after_backward() = 0;
  // Whether this rank's optimizer steps.
  virtual bool updates() const = 0;
  // By what backward divides the sum of its own images' gradients.
  virtual double divisor(size_t own_images, size_t global_images) const = 0;
  // Rank 0's, for people.
  virtual void print_summary() const = 0;
};

// DistributedDataParallel: uniReducer averages while backward runs, every rank updates.
// DataParallel: rank 0's parameters go to all before forward, the gradients' sum goes to rank 0,
// which alone updates. Both borrow comm and parameters.
template <class T>
std::unique_ptr<Exchange<T>> make_exchange(uniComm_t comm, std::vector<Parameter<T>>* parameters,
                                           const Options& options);

// Collective: every rank's tensors become rank 0's. As many, and as long, on each.
template <class T>
void broadcast_from_first(uniComm_t comm, const std::vector<std::vector<T>*>& tensors);

}  // namespace digits
