// CommunicatorBuilder: how a Communicator comes to be, in phases, so that one thread may also build
// all ranks of a simulated world side by side: prepare -> (payloads of all ranks are exchanged) ->
// join -> agree.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/bootstrap/bootstrap.h"
#include "comm/communicator.h"
#include "comm/settings.h"
#include "transports/collective_provider.h"

namespace unisono {

// Meets the other ranks at `place` and builds this rank's communicator. Blocks up to the settings'
// timeout.
// `provider`, if not null, is this rank's part in the device's library, made from a parent's.
Result<std::unique_ptr<Communicator>> create_communicator(
    const Settings& settings, const Place& place,
    std::unique_ptr<CollectiveProvider> provider = nullptr);

// All ranks in this process, [r] being rank r. With transports=sim: of one simulated world.
Result<std::vector<std::unique_ptr<Communicator>>> create_all(const Settings& settings,
                                                              int32_t ranks);

class CommunicatorBuilder {
 public:
  CommunicatorBuilder(const Settings& settings, int32_t ranks, int32_t rank, std::string how,
                      int64_t deadline_ns, std::shared_ptr<World> world);
  // Makes endpoint and transports. `id` is null in a simulated world and for one rank.
  Status prepare(const IdContents* id);
  // What the other ranks need to know; valid after prepare.
  std::string payload() const;
  // Reads all ranks' payloads, connects transports and control.
  Status join(const std::vector<std::string>& payloads);
  // Settles who reaches whom over what, with rank 0 as the judge; the INFO line. The same in two
  // halves, so that one thread can do the first of all ranks before the second.
  Status send_reach();
  Status judge();
  Status receive_links();
  // Meets the ranks in the device's library, where the settings say so.
  Status connect_device(std::unique_ptr<CollectiveProvider> provider);
  std::unique_ptr<Communicator> finish() { return std::move(comm_); }

 private:
  struct RankEntry {
    std::string host, endpoint_address, algorithm, core_mask;
    uint32_t cores = 1;
    uint8_t reproducible = 0;
    int64_t slice_bytes = 0;
    uint64_t plan_hash = 0;    // of UNISONO_PLAN_FILE; 0: none
    std::string plan_problem;  // why that file is not usable on this rank
    std::string device, device_problem;
    int32_t device_version = 0;                                   // of the device's library
    std::vector<std::pair<std::string, std::string>> transports;  // name, address
  };
  Result<RankEntry> parse_entry(const std::string& payload, int32_t rank) const;
  Status check_agreement(const std::vector<RankEntry>& entries) const;
  Status connect_transports(const std::vector<RankEntry>& entries);
  Status connect_control();
  Status wait_ready();
  void count_hosts(const std::vector<RankEntry>& entries);
  void finish_links(const std::string& verdict);
  void find_device();
  Result<std::unique_ptr<CollectiveProvider>> meet_on_device();
  Status settle_device(Status status);
  Status check_devices(const std::vector<RankEntry>& entries) const;
  void load_plan();
  Status check_plan() const;
  void say_hello() const;

  std::unique_ptr<Communicator> comm_;
  std::string how_;
  int64_t deadline_ns_;
  bool oversubscribed_ = false;
  std::string plan_problem_;
  DeviceRuntime* runtime_ = nullptr;  // of settings.device; null: the host's, or see the problem
  int32_t device_ = -1;
  std::string device_problem_;
};

}  // namespace unisono
