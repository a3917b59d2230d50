// Expressions: what a chunk holds, as a tree with one node a step (rule 15). Equal trees have equal
// numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace unisono::verify {

using Expression = int32_t;
inline constexpr Expression kUndefined = 0;

class Expressions {
 public:
  enum class Kind : uint8_t {
    kNothing,  // never written
    kRaw,      // an input block as it lies in memory: not yet pre-scaled
    kLeaf,     // an input block as an operand
    kNode,     // the children reduced from left to right, rounded once
  };
  struct Node {
    Kind kind = Kind::kNothing;
    bool final = false;              // nodes only
    int32_t rank = 0, block = 0;     // raw, leaf
    size_t first = 0, children = 0;  // nodes only
  };

  Expressions() : nodes_(1), table_(64, kUndefined), hashes_(1, 0) {}
  Expression raw(int32_t rank, int32_t block) {
    return intern({Kind::kRaw, false, rank, block}, {});
  }
  Expression leaf(int32_t rank, int32_t block) {
    return intern({Kind::kLeaf, false, rank, block}, {});
  }
  Expression node(bool final, std::span<const Expression> children) {
    return intern({Kind::kNode, final, 0, 0}, children);
  }
  const Node& operator[](Expression e) const { return nodes_[static_cast<size_t>(e)]; }
  std::span<const Expression> children(Expression e) const {
    const Node& node = (*this)[e];
    return std::span(children_).subspan(node.first, node.children);
  }

 private:
  Expression intern(Node node, std::span<const Expression> children);
  bool equal(const Node& node, std::span<const Expression> children, Expression other) const;
  void grow();

  std::vector<Node> nodes_;
  std::vector<Expression> children_;
  // Open addressing, a power of two long, at most half full; kUndefined: free.
  std::vector<Expression> table_;
  std::vector<uint64_t> hashes_;  // by expression
};

}  // namespace unisono::verify
