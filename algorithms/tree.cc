#include "algorithms/tree.h"

#include <algorithm>
#include <utility>

namespace unisono {

void fold_up(PlanBuilder* plan, const TreePlace& place, const TreeLanes& lanes) {
  StepSpec fold{.sources = {plan->input(lanes.block)}};
  for (int32_t child : place.children) fold.sources.push_back(plan->receive(child, lanes.up));
  if (place.parent < 0) {
    fold.into = plan->output(lanes.block);
    fold.final = true;
  } else {
    fold.forward = plan->to(place.parent, lanes.up);
  }
  plan->step(lanes.reduce, std::move(fold));
}

void pass_down(PlanBuilder* plan, const TreePlace& place, const TreeLanes& lanes) {
  const Chunk output = plan->output(lanes.block);
  const bool from_input = place.parent < 0 && lanes.reduce < 0;
  if (place.parent >= 0)
    plan->step(lanes.receive,
               {.sources = {plan->receive(place.parent, lanes.down)}, .into = output});
  StepSpec send{.sources = {from_input ? plan->input(lanes.block) : output}};
  if (from_input) send.into = output;
  for (size_t i = place.children.size(); i-- > 0;) {
    send.forward = plan->to(place.children[i], lanes.down);
    plan->step(lanes.send, send);
    send.into.reset();
  }
}

void broadcast_on_tree(PlanBuilder* plan, const TreePlace& place) {
  TreeLanes lanes;
  lanes.receive = plan->lane("receive");
  lanes.send = plan->lane("send");
  pass_down(plan, place, lanes);
}

void reduce_on_tree(PlanBuilder* plan, const TreePlace& place) {
  fold_up(plan, place, {.reduce = plan->lane("reduce")});
}

void all_reduce_on_tree(PlanBuilder* plan, const TreePlace& place) {
  TreeLanes lanes;
  lanes.reduce = plan->lane("reduce");
  lanes.receive = plan->lane("receive");
  lanes.send = plan->lane("send");
  fold_up(plan, place, lanes);
  pass_down(plan, place, lanes);
}

TreePlace BinomialPlace::in_tree() const {
  TreePlace place{.parent = parent};
  for (int32_t step : steps) place.children.push_back(child(step));
  return place;
}

BinomialPlace binomial_place(int32_t n, int32_t rank, int32_t root) {
  BinomialPlace place;
  place.n = n;
  place.root = root;
  place.v = (rank - root + n) % n;
  // Steps stay below the lowest set bit of v. 64 bits: the last doubling may pass 2^31.
  const int64_t lowest_bit = place.v == 0 ? n : place.v & -place.v;
  for (int64_t step = 1; step < lowest_bit && place.v + step < n; step *= 2)
    place.steps.push_back(static_cast<int32_t>(step));
  if (place.v == 0) {
    place.span = n;
  } else {
    place.parent = place.rank_of(place.v & (place.v - 1));
    place.span = static_cast<int32_t>(std::min<int64_t>(lowest_bit, n - place.v));
  }
  return place;
}

int32_t largest_binomial_subtree(int32_t n) {
  int32_t largest = 1;
  for (int64_t step = 1; step < n; step *= 2)
    largest = std::max(largest, static_cast<int32_t>(std::min(step, n - step)));
  return largest;
}

}  // namespace unisono
