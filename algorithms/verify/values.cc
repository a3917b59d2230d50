// Values (rule 15): one round is run on expressions instead of numbers, in every in-place form
// (rule 16); then each output block is compared with what the collective's own table says. Overlap
// has been checked, so any one run shows all.
#include <algorithm>
#include <vector>

#include "algorithms/verify/expressions.h"
#include "algorithms/verify/machine.h"

namespace unisono::verify {
namespace {

enum class Form { kNone, kAll, kEveryOther };

class Values : public Machine::Observer {
 public:
  Values(const Plans& plans, Form form, Expressions* expressions)
      : plans_(plans), op_(has_op(plans[0].collective)), expressions_(*expressions) {
    for (const Plan& plan : plans) {
      const bool in_place = form == Form::kAll || (form == Form::kEveryOther && plan.rank % 2 == 0);
      maps_.emplace_back(plan, in_place);
      memory_.emplace_back(at(maps_.back().size()), kUndefined);
      for (int32_t b = 0; b < plan.input_blocks; ++b) {
        memory_.back()[at(maps_.back().input(b))] =
            op_ ? expressions_.raw(plan.rank, b) : expressions_.leaf(plan.rank, b);
      }
    }
  }

  Status fired(const Machine::Firing& f, const Machine& machine) override {
    if (messages_.empty()) messages_.resize(machine.slots());
    const Plan& plan = plans_[at(f.rank)];
    const Step& step = *f.what;
    const Place where{plan, f.lane, f.step, f.round};
    if (!op_ && step.sources.size() > 1)
      return violation("9", where, "reduces without an operation");
    result_.resize(at(step.length.blocks));
    operands_.resize(step.sources.size());
    for (int32_t b = 0; b < step.length.blocks; ++b) {
      for (size_t s = 0; s < step.sources.size(); ++s) {
        const Operand& source = step.sources[s];
        operands_[s] = source.receive ? messages_[machine.slot_of_receive(f, source.channel)][at(b)]
                                      : load(f.rank, source.chunk, b);
        TRY(check_operand(where, source, b, operands_[s]));
      }
      const bool computes = step.sources.size() > 1 || (op_ && step.final);
      result_[at(b)] = computes ? expressions_.node(op_ && step.final, operands_) : operands_[0];
    }
    if (step.has_destination) {
      for (int32_t b = 0; b < step.length.blocks; ++b) {
        memory_[at(f.rank)][at(maps_[at(f.rank)].location(step.destination, b))] = result_[at(b)];
      }
    }
    if (step.forward >= 0) messages_[machine.slot_of_send(f)] = result_;
    return {};
  }

  Status check_outputs() {
    for (const Plan& plan : plans_) {
      for (int32_t b = 0; b < plan.output_blocks; ++b) {
        const Expression value = memory_[at(plan.rank)][at(maps_[at(plan.rank)].output(b))];
        TRY(op_ ? check_reduced(plan, b, value) : check_copied(plan, b, value));
      }
    }
    return {};
  }

 private:
  // An operand from `input` is pre-scaled as it is read.
  Expression load(int32_t rank, const Chunk& chunk, int32_t b) {
    const Expression value = memory_[at(rank)][at(maps_[at(rank)].location(chunk, b))];
    const Expressions::Node node = expressions_[value];
    if (chunk.buffer == Buffer::kInput && node.kind == Expressions::Kind::kRaw) {
      return expressions_.leaf(node.rank, node.block);
    }
    return value;
  }

  Status check_operand(const Place& where, const Operand& source, int32_t b,
                       Expression value) const {
    const Expressions::Node& node = expressions_[value];
    if (node.kind == Expressions::Kind::kNothing) {
      return violation("15", where, "reads block {} of an operand before anything is there", b);
    }
    if (node.kind == Expressions::Kind::kRaw) {
      return violation("15", where, "an input operand that is not pre-scaled");
    }
    if (node.final && where.plan.lanes[at(where.lane)].steps[at(where.step)].sources.size() > 1) {
      return violation("15", where, "reduces a final value again");
    }
    if (source.receive || source.chunk.buffer != Buffer::kInput) return {};
    // Only an input block that nobody has touched may be read as input: in place, the output is
    // written over it. A block that holds its own pre-scaled value is touched: it would be scaled
    // twice.
    const size_t rank = at(where.plan.rank);
    const Expressions::Node& held =
        expressions_[memory_[rank][at(maps_[rank].location(source.chunk, b))]];
    const auto untouched = op_ ? Expressions::Kind::kRaw : Expressions::Kind::kLeaf;
    if (held.kind == untouched && held.rank == where.plan.rank &&
        held.block == (source.chunk.first + b) % where.plan.input_blocks) {
      return {};
    }
    return violation("15", where, "reads input block {} after it was overwritten in place", b);
  }

  Status check_copied(const Plan& plan, int32_t b, Expression value) {
    int32_t rank = b, block = 0;  // all-gather, gather
    switch (plan.collective) {
      case Collective::kBroadcast:
        rank = plan.root;
        block = b;
        break;
      case Collective::kScatter:
        rank = plan.root;
        block = plan.rank;
        break;
      case Collective::kAllToAll:
        block = plan.rank;
        break;
      default:
        break;
    }
    if (value == expressions_.leaf(rank, block)) return {};
    const Expressions::Node& node = expressions_[value];
    if (node.kind == Expressions::Kind::kNothing) {
      return violation("15", Place{plan}, "output block {} is never written", b);
    }
    return violation("15", Place{plan},
                     "output block {} is block {} of rank {}, not block {} of rank {}", b,
                     node.block, node.rank, block, rank);
  }

  Status check_reduced(const Plan& plan, int32_t b, Expression value) {
    const int32_t block = plan.collective == Collective::kReduceScatter ? plan.rank : b;
    if (plan.collective == Collective::kAllReduce && plan.rank > 0) {
      // Same trees as rank 0's, whose leaves have been counted.
      if (value == memory_[0][at(maps_[0].output(b))]) return {};
      return violation("15", Place{plan}, "output block {} is not the tree of rank 0", b);
    }
    const Expressions::Node root = expressions_[value];
    if (root.kind != Expressions::Kind::kNode || !root.final) {
      return violation("15", Place{plan}, "output block {} was not made by a final step", b);
    }
    if (plan.ranks > 1 && root.children < 2) {
      return violation("15", Place{plan}, "output block {} is rounded again by a final copy", b);
    }
    if (plan.reproducible) TRY(check_reproducible(plan, b, block, value));
    return check_leaves(plan, b, block, value);
  }

  // The multiset of leaves is `block` of each rank once; nothing below the root is final.
  Status check_leaves(const Plan& plan, int32_t b, int32_t block, Expression value) {
    counted_.assign(plans_.size(), 0);
    const auto root_children = expressions_.children(value);
    stack_.assign(root_children.begin(), root_children.end());
    size_t leaves = 0;
    while (!stack_.empty()) {
      const Expression e = stack_.back();
      stack_.pop_back();
      const Expressions::Node& node = expressions_[e];
      if (node.kind == Expressions::Kind::kNode) {
        if (node.final) return violation("15", Place{plan}, "block {}: final twice", b);
        const auto children = expressions_.children(e);
        stack_.insert(stack_.end(), children.begin(), children.end());
        // A tree that shares its parts may have more leaves than memory: n + 1 are wrong already.
        if (stack_.size() <= 2 * plans_.size()) continue;
        return violation("15", Place{plan}, "block {}: more leaves than ranks", b);
      }
      if (node.block != block || ++counted_[at(node.rank)] > 1 || ++leaves > plans_.size()) {
        return violation("15", Place{plan}, "output block {} has block {} of rank {} {}", b,
                         node.block, node.rank, node.block != block ? "in it" : "twice");
      }
    }
    if (leaves == plans_.size()) return {};
    const auto missing = std::find(counted_.begin(), counted_.end(), 0) - counted_.begin();
    return violation("15", Place{plan}, "output block {} lacks rank {}", b, missing);
  }

  // One node with the leaves 0..n-1.
  Status check_reproducible(const Plan& plan, int32_t b, int32_t block, Expression value) {
    const auto children = expressions_.children(value);
    bool ordered = children.size() == plans_.size();
    for (size_t r = 0; ordered && r < children.size(); ++r) {
      const Expressions::Node& node = expressions_[children[r]];
      ordered = node.kind == Expressions::Kind::kLeaf && node.rank == static_cast<int32_t>(r) &&
                node.block == block;
    }
    if (ordered) return {};
    return violation("15", Place{plan},
                     "output block {} is not one node with the leaves of ranks 0..n-1", b);
  }

  const Plans& plans_;
  const bool op_;
  Expressions& expressions_;
  std::vector<MemoryMap> maps_;
  std::vector<std::vector<Expression>> memory_;    // by rank, by location
  std::vector<std::vector<Expression>> messages_;  // by slot
  std::vector<Expression> result_, operands_, stack_;
  std::vector<int32_t> counted_;
};

}  // namespace

Status check_values(const Plans& plans, const Wiring& wiring, const VerifyOptions& options) {
  MachineOptions machine;
  machine.slots = options.slots;
  machine.rounds = 1;
  const bool forms =
      options.all_in_place_forms && std::any_of(plans.begin(), plans.end(), has_in_place_form);
  Expressions expressions;
  for (Form form : {Form::kNone, Form::kAll, Form::kEveryOther}) {
    if (form != Form::kNone && !forms) break;
    Values values(plans, form, &expressions);
    TRY(Machine({&plans}, wiring, machine).run(&values));
    TRY(values.check_outputs());
  }
  return {};
}

}  // namespace unisono::verify
