#include "comm/geometry.h"

namespace unisono {

Geometry make_geometry(const Plan& plan, uint64_t count, uint64_t type_bytes, uint64_t slice_bytes,
                       const BlockTable* table) {
  Geometry g;
  g.rule = plan.rule;
  g.count = count;
  g.table = table;
  g.table_in_input =
      plan.collective == Collective::kReduceScatter || plan.collective == Collective::kScatter;
  const uint64_t align = std::max<uint64_t>(1, 64 / type_bytes);
  g.share = block_share(count, plan.blocks, align);
  const uint64_t per_block = slice_bytes / static_cast<uint64_t>(plan.message_blocks) / type_bytes;
  g.slice_elements =
      std::max<uint64_t>(1, per_block >= align ? per_block / align * align : per_block);
  const uint64_t longest = g.longest();
  g.rounds = std::max<uint64_t>(1, (longest + g.slice_elements - 1) / g.slice_elements);
  return g;
}

}  // namespace unisono
