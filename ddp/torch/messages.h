// Words between ranks: so that every rank fails with the reason of the one that found it.
#pragma once

#include <string>

#include "unisono/unisono.h"

namespace unisono::ddp {

// Collective. Root's text, on every rank.
std::string broadcast_text(const std::string& text, int root, uniComm_t comm);

// Collective. Throws on every rank if any gives a problem (not the empty string): that of the
// lowest such rank.
void fail_together(const std::string& problem, uniComm_t comm);

}  // namespace unisono::ddp
