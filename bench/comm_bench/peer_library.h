// A peer's shared object (bench/peers), loaded.
#pragma once

#include <string>
#include <vector>

#include "bench/comm_bench/options.h"
#include "bench/comm_bench/work.h"
#include "bench/peers/peer.h"

namespace bench {

// How one name after --versus is run.
struct PeerPlan {
  std::string name;    // "openmpi-tcp"
  std::string object;  // path of its shared object
  std::vector<std::string>
      launcher;         // mpirun and its flags, before the program; empty: we start the ranks
  std::string missing;  // why it cannot run here; empty: it can
};
PeerPlan plan_peer(const std::string& name, int ranks);
std::vector<std::string> known_peers();

class PeerLibrary {
 public:
  // Ends the process with words on failure. `rank` and `ranks` as in Peer::open.
  PeerLibrary(const std::string& object, const std::string& name, int* rank, int* ranks,
              const std::string& folder);
  ~PeerLibrary();
  PeerLibrary(const PeerLibrary&) = delete;

  std::string version() const { return peer_->version(); }
  void broadcast(void* data, size_t bytes) const;
  // False: the peer has no such call.
  bool issue(const Options& options, const WorkBuffers::Case& c,
             const WorkBuffers::Pointers& at) const;

 private:
  void must(int result, const char* what) const;

  std::string name_;
  const Peer* peer_ = nullptr;
};

}  // namespace bench
