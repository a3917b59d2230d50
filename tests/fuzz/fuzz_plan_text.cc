// Any bytes as a plan's text: no overrun, no endless work, errors that name a line; what is
// accepted comes out again the same; and the verifier survives it.
//
// Random bytes rarely get past the first line. So half of the inputs edit a good plan: the first
// bytes choose where, the rest is what is put there.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/plan_text.h"
#include "algorithms/registry.h"
#include "algorithms/verify/verify.h"
#include "base/check.h"

namespace {

using unisono::Plan;

const std::string& good_text() {
  static const std::string kText = [] {
    std::vector<Plan> plans;
    unisono::PlanRequest request{.ranks = 3};
    for (request.rank = 0; request.rank < 3; ++request.rank) {
      auto plan = unisono::build_plan("direct", request);
      CHECK(plan.ok());
      plans.push_back(*plan);
    }
    return unisono::to_plan_text(plans);
  }();
  return kText;
}

void parse(std::string_view text) {
  const auto plans = unisono::parse_plan_text(text);
  if (!plans.ok()) {
    CHECK(plans.status().message().rfind("line ", 0) == 0);
    return;
  }
  const std::string again = unisono::to_plan_text(*plans);
  const auto second = unisono::parse_plan_text(again);
  CHECK(second.ok());
  CHECK(unisono::to_plan_text(*second) == again);
  CHECK(unisono::plan_hash(*second) == unisono::plan_hash(*plans));
  // The verifier is next to see it. (What a large plan takes is bounded, but too long for here.)
  const Plan& any = plans->front();
  if (any.blocks <= 64 && any.message_blocks <= 64) (void)unisono::verify_plans(*plans);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  parse(bytes);
  if (size < 4) return 0;
  std::string text = good_text();
  const size_t place = (size_t{data[0]} | size_t{data[1]} << 8) % text.size();
  const size_t replaced = data[2] % 8;
  std::string put(bytes.substr(3, data[3] % 6));
  if (data[2] % 2 == 0)  // printable, so that words and numbers arise
    for (char& c : put) c = "0123456789 +.:,-\nabi"[static_cast<unsigned char>(c) % 20];
  text.replace(place, replaced, put);
  parse(text);
  return 0;
}
