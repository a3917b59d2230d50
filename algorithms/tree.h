// Trees of ranks, and the two things that are done along one: fold up to its root, pass down from
// it. All tree algorithms share them; they differ in the shape of the tree alone.
#pragma once

#include <optional>
#include <vector>

#include "algorithms/builder.h"

namespace unisono {

// One rank's place in a tree.
struct TreePlace {
  int32_t parent = -1;            // -1: the tree's root
  std::vector<int32_t> children;  // folded from the first, sent to from the last
};

// What a tree owns: the block that travels on it, its lanes and its channels.
struct TreeLanes {
  int32_t block = 0;
  int32_t up = 0, down = 1;                     // channel numbers
  int8_t reduce = -1, receive = -1, send = -1;  // -1: the tree only goes the other way
};

// 1 step: folds the own input and all children's partial results. The root's is the output, the
// others' goes to the parent.
void fold_up(PlanBuilder* plan, const TreePlace& place, const TreeLanes& lanes);
// Whoever has a parent receives the block into the output; then it goes to the children, from the
// output. The root of a broadcast copies its input to the output in the first send.
void pass_down(PlanBuilder* plan, const TreePlace& place, const TreeLanes& lanes);

// The whole vector over one tree.
void broadcast_on_tree(PlanBuilder* plan, const TreePlace& place);
void reduce_on_tree(PlanBuilder* plan, const TreePlace& place);
void all_reduce_on_tree(PlanBuilder* plan, const TreePlace& place);

// Binomial tree over v = (rank - root) mod n. The parent of v is v with its lowest set bit cleared;
// the children of v are v + 2^j for every 2^j below that bit (below n for the root): the subtree of
// v is the `span` ranks v ... v + span - 1.
struct BinomialPlace {
  int32_t n = 1;
  int32_t root = 0;
  int32_t v = 0;
  int32_t span = 1;
  int32_t parent = -1;         // a rank
  std::vector<int32_t> steps;  // children are v + step; ascending

  int32_t rank_of(int32_t relative) const { return (relative + root) % n; }
  int32_t child(int32_t step) const { return rank_of(v + step); }
  // Ranks of the subtree of v + step.
  int32_t child_span(int32_t step) const { return step < n - v - step ? step : n - v - step; }
  bool is_leaf() const { return steps.empty(); }
  TreePlace in_tree() const;
};
BinomialPlace binomial_place(int32_t n, int32_t rank, int32_t root);
// The most ranks below one child of the root: blocks that a message of gather or scatter carries.
int32_t largest_binomial_subtree(int32_t n);

}  // namespace unisono
