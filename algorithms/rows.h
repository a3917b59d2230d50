// The rows of the registry, one function an algorithm file. Only registry.cc needs them.
#pragma once

#include "algorithms/registry.h"

namespace unisono {

Algorithm one_shot_row();
Algorithm direct_row();
Algorithm ring_row();
Algorithm chain_row();
Algorithm binomial_tree_row();
Algorithm recursive_doubling_row();
Algorithm pairwise_row();
Algorithm binary_tree_row();
Algorithm double_binary_tree_row();
Algorithm recursive_halving_row();
Algorithm circulant_row();
Algorithm bruck_row();
Algorithm pat_row();
Algorithm scatter_allgather_row();
Algorithm two_level_row();

}  // namespace unisono
