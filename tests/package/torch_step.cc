// A training of somebody else's with libtorch: one step of one rank. Exit status 0: the gradients
// are those of the module alone.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <unisono/torch.h>

#include <cstdio>
#include <exception>

int main() {
  try {
    uniComm_t comm = nullptr;
    unisono::ddp::check(uniCommInitAll(&comm, 1, nullptr), "uniCommInitAll");
    bool right = true;
    {
      torch::nn::Linear alone(3, 2), wrapped(3, 2);
      wrapped->weight.set_data(alone->weight.detach().clone());
      wrapped->bias.set_data(alone->bias.detach().clone());
      unisono::ddp::DistributedDataParallel ddp(wrapped, comm);
      const torch::Tensor input = torch::randn({4, 3}), target = torch::randn({4, 2});
      torch::nn::functional::mse_loss(alone->forward(input), target).backward();
      torch::nn::functional::mse_loss(ddp.forward(input), target).backward();
      right = alone->weight.grad().equal(wrapped->weight.grad()) &&
              alone->bias.grad().equal(wrapped->bias.grad()) &&
              alone->weight.grad().abs().max().item<float>() > 0;
    }
    unisono::ddp::check(uniCommDestroy(comm), "uniCommDestroy");
    std::puts(right ? "torch step: right" : "torch step: wrong");
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
