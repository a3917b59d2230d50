// uni-info, run as its users run it.
#include <nlohmann/json.hpp>

#include <cstdio>

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

TEST_F(UniInfo, SettingsSayWhereTheyCameFrom) {
  const Json all = Json::parse(uni_info(
      "UNISONO_TIMEOUT_MS=1234 PMI_RANK=1 PMI_SIZE=4 UNISONO_JOB_SECRET=hunter2", "--json"));
  EXPECT_EQ(setting(all, "UNISONO_TIMEOUT_MS")["value"], 1234);
  EXPECT_EQ(setting(all, "UNISONO_TIMEOUT_MS")["from"], "UNISONO_TIMEOUT_MS");
  EXPECT_EQ(setting(all, "UNISONO_ALGORITHM")["from"], "default");
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
  for (const char* words : {"Unisono ", "Machine", "usable core", "Addresses", "Transports", "shm",
                            "Reduction kernels", "UNISONO_LOG_LEVEL"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  EXPECT_EQ(text.find("hunter2"), std::string::npos);
}

}  // namespace
}  // namespace unisono::tools_test
