#include "algorithms/verify/expressions.h"

#include <algorithm>

namespace unisono::verify {

Expression Expressions::intern(Node node, std::span<const Expression> children) {
  uint64_t hash = static_cast<uint64_t>(node.kind) * 2 + (node.final ? 1 : 0);
  const auto mix = [&hash](int32_t value) {
    hash = (hash ^ static_cast<uint32_t>(value)) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
  };
  mix(node.rank);
  mix(node.block);
  for (Expression child : children) mix(child);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Node& other = (*this)[it->second];
    const auto theirs = this->children(it->second);
    if (other.kind == node.kind && other.final == node.final && other.rank == node.rank &&
        other.block == node.block &&
        std::equal(theirs.begin(), theirs.end(), children.begin(), children.end())) {
      return it->second;
    }
  }
  node.first = children_.size();
  node.children = children.size();
  children_.insert(children_.end(), children.begin(), children.end());
  const auto number = static_cast<Expression>(nodes_.size());
  nodes_.push_back(node);
  by_hash_.emplace(hash, number);
  return number;
}

}  // namespace unisono::verify
