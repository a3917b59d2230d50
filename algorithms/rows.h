// The rows of the registry, one function an algorithm file. Only registry.cc needs them.
#pragma once

#include "algorithms/registry.h"

namespace unisono {

Algorithm one_shot_row();
Algorithm direct_row();
Algorithm ring_row();
Algorithm binomial_tree_row();
Algorithm recursive_doubling_row();
Algorithm pairwise_row();

}  // namespace unisono
