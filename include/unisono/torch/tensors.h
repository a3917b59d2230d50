// Small things that the headers of unisono/torch/ share.
#ifndef UNISONO_TORCH_TENSORS_H_
#define UNISONO_TORCH_TENSORS_H_

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "unisono/ddp.h"

namespace unisono::ddp {

// Throws c10::Error with the library's words, unless result is uniSuccess. `what` says who asked.
UNI_API void check(uniResult_t result, const char* what);

// A bucket as its hook may want it: a tensor over the same memory, for the time of the hook.
UNI_API torch::Tensor bucket_tensor(const uniBucket_t& bucket);

template <typename ModuleType>
std::shared_ptr<torch::nn::Module> as_module(const ModuleType& module) {
  if constexpr (requires { module.ptr(); }) {
    return module.ptr();
  } else {
    return module;
  }
}

namespace internal {
template <typename T>
struct IsTuple : std::false_type {};
template <typename... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};
template <typename A, typename B>
struct IsTuple<std::pair<A, B>> : std::true_type {};
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
}  // namespace internal

// Appends the tensors in what a forward returned: a tensor, and tuples, pairs, optionals, vectors
// (any range) and maps of what is accepted. For a type of one's own, declare
//   void collect_tensors(const Mine&, std::vector<torch::Tensor>&)
// beside it. Other types hold no tensors: numbers, strings.
template <typename T>
void collect_tensors(const T& value, std::vector<torch::Tensor>& tensors) {
  if constexpr (std::is_convertible_v<const T&, const torch::Tensor&>) {
    tensors.push_back(value);
  } else if constexpr (internal::IsTuple<T>::value) {
    std::apply([&](const auto&... part) { (collect_tensors(part, tensors), ...); }, value);
  } else if constexpr (internal::IsOptional<T>::value) {
    if (value) collect_tensors(*value, tensors);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                       std::is_convertible_v<const T&, const char*> ||
                       std::is_same_v<T, std::string>) {
    // None.
  } else {
    for (const auto& part : value) collect_tensors(part, tensors);
  }
}

}  // namespace unisono::ddp

#endif  // UNISONO_TORCH_TENSORS_H_
