#include "algorithms/verify/expressions.h"

#include <algorithm>

namespace unisono::verify {

bool Expressions::equal(const Node& node, std::span<const Expression> children,
                        Expression other) const {
  const Node& theirs = (*this)[other];
  const auto their_children = this->children(other);
  return theirs.kind == node.kind && theirs.final == node.final && theirs.rank == node.rank &&
         theirs.block == node.block &&
         std::equal(their_children.begin(), their_children.end(), children.begin(), children.end());
}

void Expressions::grow() {
  std::vector<Expression> table(table_.size() * 2, kUndefined);
  for (size_t e = 1; e < nodes_.size(); ++e) {
    size_t i = hashes_[e] & (table.size() - 1);
    while (table[i] != kUndefined) i = (i + 1) & (table.size() - 1);
    table[i] = static_cast<Expression>(e);
  }
  table_ = std::move(table);
}

Expression Expressions::intern(Node node, std::span<const Expression> children) {
  uint64_t hash = static_cast<uint64_t>(node.kind) * 2 + (node.final ? 1 : 0);
  const auto mix = [&hash](int32_t value) {
    hash = (hash ^ static_cast<uint32_t>(value)) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
  };
  mix(node.rank);
  mix(node.block);
  for (Expression child : children) mix(child);
  size_t i = hash & (table_.size() - 1);
  for (; table_[i] != kUndefined; i = (i + 1) & (table_.size() - 1)) {
    if (hashes_[static_cast<size_t>(table_[i])] == hash && equal(node, children, table_[i])) {
      return table_[i];
    }
  }
  node.first = children_.size();
  node.children = children.size();
  children_.insert(children_.end(), children.begin(), children.end());
  const auto number = static_cast<Expression>(nodes_.size());
  nodes_.push_back(node);
  hashes_.push_back(hash);
  table_[i] = number;
  if (nodes_.size() * 2 > table_.size()) grow();
  return number;
}

}  // namespace unisono::verify
