// Two ranks as threads over one mapping, built against transports/shm with a release planted away
// (UNISONO_PLANT_MISSING_RELEASE): the thread sanitizer must report a race, or it sees nothing in
// this design at all.
#include <cstdio>

#include "tests/transports/rig.h"

int main() {
  using namespace unisono;
  using namespace unisono::testing;
  Rig rig(Setup{"shm"}, 2);
  const ChannelShape shape{4096, 4};
  rig.on_threads([&](int rank) {
    SendEnd* send = *rig[rank].open_send({0, rank, 1 - rank}, shape);
    RecvEnd* recv = *rig[rank].open_recv({0, 1 - rank, rank}, shape);
    for (uint64_t i = 0; i < 200; ++i) {
      if (!rig.until(rank, [&] { return send_pattern(*send, i, 2000) != SendOutcome::kAgain; }))
        return;
      Message message;
      if (!rig.until(rank, [&] { return recv->lend(&message); })) return;
      if (!is_pattern(message, i, 2000)) std::printf("message %d differs\n", static_cast<int>(i));
      recv->release();
    }
  });
  std::printf("exchanged\n");
  return 0;
}
