// Ranks on other hosts: one ssh a host starts uni-run there (the agent, agent.h), which starts the
// ranks.
//
// Towards an agent its standard input carries lines, of which the first is "start ..."; from it
// standard output and error carry the ranks' lines as they are to be shown, after one hello.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/uni_run/crew.h"
#include "tools/uni_run/hosts.h"

namespace unisono::uni_run {

inline constexpr std::string_view kHello = "uni-run-agent/1 ";  // then two ports
// What all agents are told once each has said hello.
struct StartOrder {
  std::string id, secret;   // of the job
  std::string address;      // of the first host
  int meeting_port = 0;     // UNISONO_MEETING's, on the first host
  std::string master_host;  // MASTER_ADDR
  int master_port = 0;
};
std::string encode_start(const StartOrder& order);  // one line, without its newline
Result<StartOrder> decode_start(std::string_view line);

// One word for any shell of the Bourne family.
std::string quote(std::string_view word);
// What the shell of host `node` of `hosts` is asked to run.
std::string remote_command(const Options& options, const std::vector<HostSlots>& hosts,
                           size_t node);

class HostCrew : public Crew {
 public:
  // Both outlive it.
  HostCrew(const Options& options, const std::vector<HostSlots>& hosts);
  int size() const override { return static_cast<int>(hosts_.size()); }
  Result<RankSpec> spec(int number) override;
  std::string prefix(int) const override { return ""; }  // the agents write it
  std::string name(int number) const override;
  std::string names(const std::vector<int>& ascending) const override;
  const char* plural() const override { return "hosts"; }
  bool reports_itself() const override { return true; }
  bool takes_input() const override { return false; }
  void started(int number, const Spawned& process) override;
  void finished(int number) override;
  bool heard(int number, std::string_view line) override;

 private:
  struct Node {
    const Spawned* process = nullptr;
    bool ready = false;
  };
  void start_all();

  const Options& options_;
  const std::vector<HostSlots>& hosts_;
  std::vector<Node> nodes_;
  StartOrder order_;
};

// Speaks to agents where a LocalSpawner would send signals.
class SshSpawner : public Spawner {
 public:
  explicit SshSpawner(LocalSpawner& local) : local_(local) {}
  Result<Spawned> spawn(const RankSpec& spec) override { return local_.spawn(spec); }
  // SIGKILL a second time, or to an agent that cannot be told: ends the ssh itself.
  void send_signal(const Spawned& host, int number) override;
  void end(const Spawned& host) override;

 private:
  LocalSpawner& local_;
  std::map<pid_t, bool> killed_;
};

}  // namespace unisono::uni_run
