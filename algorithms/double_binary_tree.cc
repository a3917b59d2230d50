// Double binary tree. Two binary trees over the same ranks, such that no rank is an inner node of
// both; each carries one half of the vector. An inner rank of one tree sends its half twice, a leaf
// not at all, so that over both trees every rank sends and receives the vector about once: the
// bandwidth of a chain at the depth of a tree.
//
// The first tree is numbered in order, positions 1 ... m: odd positions are leaves, position p with
// lowest set bit b > 1 has the children p - b/2 and p + b/2 (the latter moved left until it
// exists), the root is the largest power of two. The second is the first one mirrored (m even) or
// shifted by one position (m odd), which makes its leaves the other's inner nodes. Broadcast and
// reduce leave the root out (m = n - 1) and join it to the roots of both trees; all-reduce has m =
// n, each tree folding to its own root and passing down again.
//
// Notation: n ranks, S bytes; each tree moves S/2; depth floor(log2 m).
//   broadcast: the root 2 sends of S/2; the others 2 receives of S/2, at most 2 sends of S/2.
//   reduce:    2 folds; the others send S in all and receive at most S, the root receives S.
//   all-reduce: per tree 1 fold, 1 receive (not its root) and a send for each child; sends
//   and receives at most 2 S.
// Wins for long vectors on many ranks, where a ring's or chain's n-1 hops count.
//
// Paper: Sanders, Speck, Traff: Two-tree algorithms for full bandwidth broadcast, reduction and
// scan (2009); NCCL 2.4 (2019) uses it for all-reduce.
#include "algorithms/rows.h"
#include "algorithms/tree.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

// Of a tree numbered in order; 0: there is none.
struct Position {
  int32_t parent = 0, left = 0, right = 0;
};

Position in_order(int32_t p, int32_t m) {
  const int32_t bit = p & -p;
  Position position;
  const int32_t up = (p ^ bit) | (bit << 1);
  const int32_t top = power_of_two_below(m);
  if (p != top) position.parent = up <= m ? up : p ^ bit;
  position.left = bit > 1 ? p - bit / 2 : 0;
  for (int32_t step = bit / 2; step > 0 && position.right == 0; step /= 2)
    if (p + step <= m) position.right = p + step;
  return position;
}

// The second tree's position that stands where the first one's `p` does, and back.
int32_t second(int32_t p, int32_t m) {
  return m % 2 == 0 ? m + 1 - p : p % m + 1;
}
int32_t first(int32_t p, int32_t m) {
  return m % 2 == 0 ? m + 1 - p : wrap(p - 2, m) + 1;
}

// Position `p` of 1 ... m in tree `tree`; `rank_of(position)`; `parent` of the tree's root.
template <class RankOf>
TreePlace place_of(int32_t p, int32_t m, int32_t tree, int32_t parent, RankOf rank_of) {
  const Position position = in_order(tree == 0 ? p : first(p, m), m);
  const auto rank = [&](int32_t q) { return rank_of(tree == 0 ? q : second(q, m)); };
  TreePlace place;
  place.parent = position.parent == 0 ? parent : rank(position.parent);
  // Sent to from the last: the left subtree is never the smaller one.
  for (int32_t child : {position.right, position.left})
    if (child != 0) place.children.push_back(rank(child));
  return place;
}

// This rank's place in a tree over all ranks but the root, which stands above it.
TreePlace rooted_place(const PlanBuilder& plan, int32_t tree) {
  const int32_t n = plan.n(), m = n - 1, root = plan.root();
  const int32_t v = wrap(plan.me() - root, n);
  const auto rank_of = [&](int32_t relative) { return (relative + root) % n; };
  if (v > 0) return place_of(v, m, tree, root, rank_of);
  const int32_t top = power_of_two_below(m);
  return {.children = {rank_of(tree == 0 ? top : second(top, m))}};
}

TreePlace place_among_all(const PlanBuilder& plan, int32_t tree) {
  return place_of(plan.me() + 1, plan.n(), tree, -1, [](int32_t p) { return p - 1; });
}

TreeLanes lanes_of(int32_t tree) {
  return {.block = tree, .up = 2 * tree, .down = 2 * tree + 1};
}

void broadcast(PlanBuilder* plan) {
  for (int32_t tree = 0; tree < 2; ++tree) {
    TreeLanes lanes = lanes_of(tree);
    lanes.receive = plan->lane(tree == 0 ? "receive-1" : "receive-2");
    lanes.send = plan->lane(tree == 0 ? "send-1" : "send-2");
    pass_down(plan, rooted_place(*plan, tree), lanes);
  }
}

void reduce(PlanBuilder* plan) {
  for (int32_t tree = 0; tree < 2; ++tree) {
    TreeLanes lanes = lanes_of(tree);
    lanes.reduce = plan->lane(tree == 0 ? "reduce-1" : "reduce-2");
    fold_up(plan, rooted_place(*plan, tree), lanes);
  }
}

void all_reduce(PlanBuilder* plan) {
  TreeLanes lanes[] = {lanes_of(0), lanes_of(1)};
  for (int32_t tree = 0; tree < 2; ++tree) {
    lanes[tree].reduce = plan->lane(tree == 0 ? "reduce-1" : "reduce-2");
    lanes[tree].receive = plan->lane(tree == 0 ? "receive-1" : "receive-2");
    lanes[tree].send = plan->lane(tree == 0 ? "send-1" : "send-2");
  }
  for (int32_t tree = 0; tree < 2; ++tree) fold_up(plan, place_among_all(*plan, tree), lanes[tree]);
  for (int32_t tree = 0; tree < 2; ++tree)
    pass_down(plan, place_among_all(*plan, tree), lanes[tree]);
}

constexpr About kAbout{"double_binary_tree", "Sanders, Speck, Traff 2009; NCCL 2.4", true, 9,
                       kUnmeasured};
constexpr Way kWays[] = {{Collective::kAllReduce, all_reduce, two_blocks},
                         {Collective::kReduce, reduce, two_blocks},
                         {Collective::kBroadcast, broadcast, two_blocks}};

Cost cost(const PlanRequest& request) {
  const int32_t n = request.ranks;
  // Start-ups one port a rank: two trees, two children or parents a level.
  const double rooted = 2 + 2 * floor_log2(n == 2 ? 1 : n - 1);
  switch (request.collective) {
    case Collective::kBroadcast:
      return {.messages = rooted, .wire_bytes = 1, .copy_bytes = 1};
    case Collective::kReduce:
      return {.messages = rooted, .wire_bytes = 1, .reduce_bytes = n < 4 ? 2. : 2.5};
    default:
      return {.messages = 4. * floor_log2(n),
              .wire_bytes = n >= 4 ? 2 : n / 2.,
              .reduce_bytes = n < 3 ? 1.5 : 2.};
  }
}

}  // namespace

Algorithm double_binary_tree_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
