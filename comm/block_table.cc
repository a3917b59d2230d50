#include "comm/block_table.h"

#include <algorithm>

namespace unisono {

std::shared_ptr<const BlockTable> make_block_table(const size_t* lengths, const size_t* offsets,
                                                   size_t blocks) {
  auto table = std::make_shared<BlockTable>();
  table->lengths.assign(lengths, lengths + blocks);
  table->packed = true;
  table->hash = mix(0, blocks);
  for (size_t i = 0; i < blocks; i++) {
    const uint64_t offset = offsets == nullptr ? table->total : offsets[i];
    table->packed = table->packed && offset == table->total;
    table->offsets.push_back(offset);
    table->total += lengths[i];
    table->longest = std::max<uint64_t>(table->longest, lengths[i]);
    table->hash = mix(table->hash, lengths[i]);
  }
  return table;
}

}  // namespace unisono
