// Without NCCL or CUDA, or with an NCCL that is too old: one clear line, and host buffers as ever.
// The library is loaded once a process: each case is a process of its own.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/comm/harness.h"

namespace unisono::testing {
namespace {

struct Libraries {
  std::string nccl = NCCL_DOUBLE, cudart = NCCL_DOUBLE, version;
};

// What uniCommInitAll with a device says in a fresh process; "made" when it works.
std::string said_by_child(const Libraries& setup) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();  // before this process has used the library
  if (child == 0) {
    setenv("UNISONO_NCCL_LIB", setup.nccl.c_str(), 1);
    setenv("UNISONO_CUDART_LIB", setup.cudart.c_str(), 1);
    setenv("NCCL_DOUBLE_VERSION", setup.version.c_str(), setup.version.empty() ? 0 : 1);
    uniConfig_t config = UNI_CONFIG_INITIALIZER;
    config.transports = "shm";
    config.device = "cuda";
    uniComm_t comms[2] = {};
    std::string text = uniCommInitAll(comms, 2, &config) == uniSuccess ? "made" : "";
    if (text.empty()) text = uniGetLastError(nullptr);
    for (const uniComm_t comm : comms) (void)uniCommDestroy(comm);
    config.device = nullptr;  // host buffers are none of its business
    if (uniCommInitAll(comms, 2, &config) != uniSuccess) text += " and no host buffers either";
    for (const uniComm_t comm : comms) (void)uniCommDestroy(comm);
    if (write(ends[1], text.data(), text.size()) < 0) _exit(1);
    _exit(0);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  size_t bytes = 0;
  for (ssize_t got = 0; (got = read(ends[0], &text[bytes], text.size() - bytes)) > 0;) {
    bytes += static_cast<size_t>(got);
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  text.resize(bytes);
  return text;
}

void expect_line(const Libraries& setup, const std::string& words) {
  const std::string text = said_by_child(setup);
  EXPECT_NE(text.find(words), std::string::npos) << text;
  EXPECT_NE(text.find("(on rank 0)"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_EQ(text.find("host buffers either"), std::string::npos) << text;
}

TEST(WithoutNccl, OneLineSaysSo) {
  Libraries setup;
  setup.nccl = "libno-such-nccl.so";
  expect_line(setup, "config.device: cuda: no NCCL: libno-such-nccl.so");
}

TEST(WithoutCuda, OneLineSaysSo) {
  Libraries setup;
  setup.cudart = "libno-such-cudart.so";
  expect_line(setup, "config.device: cuda: no CUDA runtime: libno-such-cudart.so");
}

TEST(WithALibraryThatIsNotNccl, OneLineNamesWhatItLacks) {
  Libraries setup;
  setup.nccl = "libm.so.6";
  expect_line(setup, "this NCCL has no ncclGetVersion: 2.18.0 or newer is needed");
}

TEST(WithAnOlderNccl, OneLineNamesBothVersions) {
  Libraries setup;
  setup.version = "21705";
  expect_line(setup, "NCCL 2.17.5 is too old: 2.18.0 or newer is needed");
  setup.version = "2708";
  expect_line(setup, "NCCL 2.7.8 is too old");
  setup.version = "21800";
  EXPECT_EQ(said_by_child(setup), "made");
}

TEST(ProgramsOnHostBuffers, LoadNeitherNcclNorCuda) {
  setenv("UNISONO_NCCL_LIB", "libm.so.6", 1);
  {
    const Ranks world(2, {});
    ASSERT_TRUE(world.ok());
    world.run([](int, uniComm_t comm) { UNI_OK(uniBarrier(comm, nullptr)); });
  }
  for (const char* name : {"libnccl.so.2", "libcudart.so.13", "libcudart.so.12", "libcuda.so.1"}) {
    EXPECT_EQ(dlopen(name, RTLD_NOW | RTLD_NOLOAD), nullptr) << name;
  }
}

}  // namespace
}  // namespace unisono::testing
