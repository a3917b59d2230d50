// Slurm's lists of hosts.
#include "comm/bootstrap/host_list.h"

#include <gtest/gtest.h>

namespace unisono::bootstrap {
namespace {

using Names = std::vector<std::string>;

TEST(HostListTest, EveryFormIsExpandedInOrder) {
  const std::pair<const char*, Names> cases[] = {
      {"node1", {"node1"}},
      {"b,a", {"b", "a"}},
      {"node[1-3,7]", {"node1", "node2", "node3", "node7"}},
      {"n[08-11]", {"n08", "n09", "n10", "n11"}},
      {"login,n[1-2]x,z", {"login", "n1x", "n2x", "z"}},
      {"r[1-2]n[1-2]", {"r1n1", "r1n2", "r2n1", "r2n2"}},
      {"a.b-c_d", {"a.b-c_d"}},
  };
  for (const auto& [list, names] : cases) {
    const auto expanded = expand_host_list(list);
    ASSERT_TRUE(expanded.ok()) << list << ": " << expanded.status().message();
    EXPECT_EQ(*expanded, names) << list;
  }
}

TEST(HostListTest, WhatIsNoListIsRefusedAndQuoted) {
  for (const char* list :
       {"", ",", "a,", ",a", "a,,b", "n[", "n]", "n[]", "n[1", "n[1-]", "n[-1]", "n[2-1]", "n[x]",
        "n[1-2", "n[1,]", "n[[1]]", "n[0-999999999]", "n[9999999999]", "a[1-400]b[1-400]"}) {
    const auto expanded = expand_host_list(list);
    ASSERT_FALSE(expanded.ok()) << list;
    EXPECT_EQ(expanded.status().code(), Code::kInvalidArgument) << list;
    EXPECT_NE(expanded.status().message().find(std::string("'") + list + "'"), std::string::npos);
  }
}

}  // namespace
}  // namespace unisono::bootstrap
