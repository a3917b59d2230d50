// uni-info, run as its users run it.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/tools/run_job.h"

namespace unisono::tools_test {
namespace {

using Json = nlohmann::json;

class UniInfo : public testing::Test {
 protected:
  void SetUp() override {
    if (access(program("uni-info").c_str(), X_OK) != 0) GTEST_SKIP() << "uni-info was not built";
  }
};

// Standard output of uni-info after `environment` ("A=1 B=2").
std::string uni_info(const std::string& environment, const std::string& arguments) {
  const std::string command = "env " + environment + " " + program("uni-info") + " " + arguments;
  std::string text;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  std::array<char, 4096> bytes;
  while (const size_t got = fread(bytes.data(), 1, bytes.size(), pipe)) {
    text.append(bytes.data(), got);
  }
  EXPECT_EQ(pclose(pipe), 0) << text;
  return text;
}

Json setting(const Json& all, const std::string& name) {
  for (const Json& row : all["settings"]["variables"]) {
    if (row["name"] == name) return row;
  }
  return nullptr;
}

TEST_F(UniInfo, RefusesWrongArgumentsWithStatusTwoAndSaysThatItCannotWrite) {
  const auto status_of = [](const std::string& words) {
    FILE* const pipe = popen((program("uni-info") + words).c_str(), "w");
    return pipe == nullptr ? -1 : WEXITSTATUS(pclose(pipe));
  };
  EXPECT_EQ(status_of(" --ranks 0 2>/dev/null"), 2);
  EXPECT_EQ(status_of(" --nonsense 2>/dev/null"), 2);
  EXPECT_EQ(status_of(" 2>&1 >/dev/full | grep -q 'uni-info: standard output: '"), 0);
}

TEST_F(UniInfo, JsonTellsMachineTransportsKernelsAndVersion) {
  const Json all = Json::parse(uni_info("", "--json"));
  EXPECT_GE(all["machine"]["hardware_threads"], all["machine"]["usable_cores"]);
  EXPECT_GE(all["machine"]["usable_cores"], 1);
  EXPECT_EQ(all["library"]["version"], all["library"]["header_version"]);
  EXPECT_EQ(all["kernels"]["available"][0], "scalar");
  std::map<std::string, bool> available;
  for (const Json& transport : all["transports"]) {
    available[transport["name"]] = transport["available"];
    EXPECT_NE(transport["detail"], "") << transport["name"];
  }
  EXPECT_TRUE(available["shm"]);
  EXPECT_TRUE(available.count("tcp"));
}

// What is said of ucx, which is not to be available. `folder`: where libucp.so.0 is looked for
// first.
std::string why_no_ucx(const std::string& folder) {
  const Json all = Json::parse(uni_info("LD_LIBRARY_PATH=" + folder, "--json"));
  for (const Json& transport : all["transports"]) {
    if (transport["name"] != "ucx") continue;
    EXPECT_FALSE(transport["available"]);
    return transport["detail"];
  }
  return "";
}

TEST_F(UniInfo, SaysInOneLineWhyThereIsNoUcxAndGoesOnWithoutIt) {
#ifndef UNISONO_HAS_UCX
  EXPECT_EQ(why_no_ucx("."), "ucx: not built: UCX headers were absent");
#else
  const std::string build = std::string(getenv("UNISONO_BUILD_DIR"));
  EXPECT_EQ(why_no_ucx(build + "/tests/old_ucx"), "ucx: UCX 1.9.0 is too old: 1.13 is needed");
  char folder[] = "/tmp/no_ucx_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string broken = std::string(folder) + "/libucp.so.0";
  FILE* const empty = fopen(broken.c_str(), "w");
  ASSERT_NE(empty, nullptr);
  fclose(empty);
  const std::string why = why_no_ucx(folder);
  EXPECT_EQ(why.find("ucx: not installed: "), 0u) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  const Json all = Json::parse(uni_info(
      "UNISONO_TRANSPORTS=ucx,tcp LD_LIBRARY_PATH=" + std::string(folder), "--json --ranks 2"));
  EXPECT_EQ(all["job"]["pairs"][0]["transport"], "tcp");
  unlink(broken.c_str());
  rmdir(folder);
#endif
}

TEST_F(UniInfo, WithoutNcclSaysWhyDeviceBuffersCannotBeUsed) {
  const Json all = Json::parse(uni_info("UNISONO_CUDART_LIB=libno-cudart.so", "--json"));
  ASSERT_EQ(all["devices"].size(), 1u);
  const Json& cuda = all["devices"][0];
  EXPECT_EQ(cuda["device"], "cuda");
  EXPECT_EQ(cuda["name"], "nccl");
  EXPECT_FALSE(cuda["available"]);
  EXPECT_NE(cuda["detail"].get<std::string>().find("no CUDA runtime: libno-cudart.so"),
            std::string::npos)
      << cuda;
}

TEST_F(UniInfo, SettingsSayWhereTheyCameFrom) {
  const Json all = Json::parse(uni_info(
      "UNISONO_TIMEOUT_MS=1234 PMI_RANK=1 PMI_SIZE=4 UNISONO_JOB_SECRET=hunter2", "--json"));
  EXPECT_EQ(setting(all, "UNISONO_TIMEOUT_MS")["value"], 1234);
  EXPECT_EQ(setting(all, "UNISONO_TIMEOUT_MS")["from"], "UNISONO_TIMEOUT_MS");
  EXPECT_EQ(setting(all, "UNISONO_TIMEOUT_MS")["source"], "environment");
  EXPECT_EQ(setting(all, "UNISONO_ALGORITHM")["from"], "default");
  EXPECT_EQ(setting(all, "UNISONO_ALGORITHM")["source"], "default");
  EXPECT_EQ(setting(all, "rank")["value"], 1);
  EXPECT_EQ(setting(all, "rank")["from"], "PMI_RANK");
  EXPECT_EQ(setting(all, "UNISONO_JOB_SECRET")["value"], "(set)");
}

TEST_F(UniInfo, MalformedVariableAndFilterAreNamed) {
  const Json all =
      Json::parse(uni_info("UNISONO_TIMEOUT_MS=soon UNISONO_INTERFACES=nosuch0", "--json"));
  EXPECT_EQ(all["settings"]["problem"], "UNISONO_TIMEOUT_MS: 'soon' is not a number");
  EXPECT_NE(all["addresses"]["problem"].get<std::string>().find("nosuch0"), std::string::npos);
}

TEST_F(UniInfo, TextNamesEveryPartAndHidesSecrets) {
  const std::string text = uni_info("UNISONO_JOB_SECRET=hunter2", "");
  for (const char* words : {"Unisono ", "Machine", "usable core", "Network interfaces", "lo ",
                            "Addresses, best first", "Transports", "shm", "Device buffers",
                            "Reduction kernels", "Settings", "UNISONO_LOG_LEVEL"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  EXPECT_EQ(text.find("hunter2"), std::string::npos);
  EXPECT_EQ(text.find("\nJob\n"), std::string::npos) << "nobody asked for one";
}

TEST_F(UniInfo, EachInterfaceIsUsedOrSaysWhatLeavesItOut) {
  const auto loopback_of = [](const std::string& filter) {
    const Json all = Json::parse(uni_info("UNISONO_INTERFACES=" + filter, "--json"));
    for (const Json& one : all["interfaces"]) {
      EXPECT_EQ(one["used"].get<bool>(), !one.contains("why_not")) << one;
      if (one["name"] == "lo") return one;
    }
    return Json();
  };
  const Json named = loopback_of("lo");
  if (named.is_null() || named["addresses"].empty()) GTEST_SKIP() << "no loopback here";
  EXPECT_TRUE(named["used"]) << named;
  EXPECT_EQ(named["kind"], "loopback");
  EXPECT_GT(named["mtu"], 0);
  EXPECT_EQ(loopback_of("'^zz*,l?'")["why_not"], "UNISONO_INTERFACES=^zz*,l?: 'l?' matches it");
  EXPECT_EQ(loopback_of("nosuch0")["why_not"], "UNISONO_INTERFACES=nosuch0 does not name it");
}

// What the job of this answer chose for each pair: {"0-1": "shm"}.
std::map<std::string, std::string> choices(const Json& all) {
  std::map<std::string, std::string> chosen;
  for (const Json& pair : all["job"]["pairs"]) {
    chosen[pair["ranks"][0].dump() + "-" + pair["ranks"][1].dump()] = pair["transport"];
    EXPECT_NE(pair["why"], "");
  }
  return chosen;
}

TEST_F(UniInfo, LocalRanksShowWhatTheyChoseAndWhy) {
  const Json all = Json::parse(uni_info("", "--ranks 3 --json"));
  const std::map<std::string, std::string> shm = {{"0-1", "shm"}, {"0-2", "shm"}, {"1-2", "shm"}};
  EXPECT_EQ(choices(all), shm) << all["job"];
  EXPECT_EQ(all["job"]["pairs"][0]["why"], "first of shm,tcp");
  ASSERT_EQ(all["job"]["ranks"].size(), 3u);
  EXPECT_EQ(all["job"]["ranks"][2]["ranks_sharing_memory"], 3);
  const std::string text = uni_info("UNISONO_TRANSPORTS=tcp", "--ranks 2");
  for (const char* words :
       {"\nJob\n", "order of preference: tcp\n", "tcp: first of tcp\n    pairs 0-1"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
}

TEST_F(UniInfo, JobThatDoesNotMeetEndsWithItsReason) {
  const Json all =
      Json::parse(uni_info("UNISONO_TRANSPORTS=nosuch", "--ranks 2 --json; [ $? -eq 1 ]"));
  const std::string problem = all["job"]["problem"];
  EXPECT_NE(problem.find("unknown transport 'nosuch'"), std::string::npos) << problem;
}

// Two of three ranks say that they are on another host: shared memory joins two, sockets the rest.
TEST_F(UniRun, InfoOfALaunchedJobNamesMixedTransportsOnce) {
  if (access(program("uni-info").c_str(), X_OK) != 0) GTEST_SKIP() << "uni-info was not built";
  const Outcome outcome =
      uni_run(shell(3, "if [ $RANK -gt 0 ]; then export UNISONO_HOSTID=other; fi; exec " +
                           program("uni-info") + " --job --json"));
  ASSERT_EQ(outcome.status, 0) << outcome;
  EXPECT_EQ(outcome.of_rank(1), "");
  const Json all = Json::parse(outcome.of_rank(0), nullptr, false);
  ASSERT_FALSE(all.is_discarded()) << outcome;
  const std::map<std::string, std::string> mixed = {{"0-1", "tcp"}, {"0-2", "tcp"}, {"1-2", "shm"}};
  EXPECT_EQ(choices(all), mixed) << all["job"];
  EXPECT_NE(all["job"]["pairs"][0]["why"].get<std::string>().find("shm: does not join them"),
            std::string::npos)
      << all["job"];
}

}  // namespace
}  // namespace unisono::tools_test
