// What a writer learns from timed messages, with costs made up by the test.
#include "transports/shm/store_chooser.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace unisono::shm {
namespace {

constexpr uint32_t kBytes = 65536;

// A machine on which a message costs so many ticks a byte either way.
struct Machine {
  uint64_t ordinary, streaming;
};

// Sends so many messages; every timed one is told to the chooser. How many were streamed.
int send(StoreChooser& chooser, int messages, const Machine& machine, uint32_t bytes = kBytes) {
  int streamed = 0;
  for (int i = 0; i < messages; ++i) {
    const StoreChooser::Choice choice = chooser.next(bytes);
    streamed += choice.streaming ? 1 : 0;
    if (choice.timed) {
      chooser.sample(bytes, choice.streaming,
                     bytes * (choice.streaming ? machine.streaming : machine.ordinary));
    }
  }
  return streamed;
}

constexpr Machine kNear{2, 4}, kFar{10, 4};

TEST(StoreChooser, TriesBothWaysFirstAndThenKeepsToTheCheaper) {
  StoreChooser near, far;
  send(near, 4, kNear);
  send(far, 4, kFar);
  EXPECT_LE(send(near, 640, kNear), 10) << "one in 64 or less looks at the other way";
  EXPECT_GE(send(far, 640, kFar), 630);
}

TEST(StoreChooser, FollowsCoresThatMove) {
  StoreChooser chooser;
  for (int turn = 0; turn < 3; ++turn) {
    send(chooser, 1024, kNear);
    EXPECT_LE(send(chooser, 640, kNear), 10) << "turn " << turn;
    send(chooser, 1024, kFar);
    EXPECT_GE(send(chooser, 640, kFar), 630) << "turn " << turn;
  }
}

TEST(StoreChooser, ASampleOfARankThatLostItsCoreChangesNothing) {
  StoreChooser chooser;
  send(chooser, 256, kNear);
  chooser.sample(kBytes, false, uint64_t{1} << 40);  // minutes, or a peer's lie
  chooser.sample(kBytes, true, UINT64_MAX - 1);
  send(chooser, 64, kNear);
  EXPECT_LE(send(chooser, 640, kNear), 10);
}

TEST(StoreChooser, WhatCostsTheSameIsLeftAsItIs) {
  StoreChooser chooser;
  EXPECT_LE(send(chooser, 640, {100, 97}), 12);
}

TEST(StoreChooser, EveryLengthLearnsByItself) {
  StoreChooser chooser;
  send(chooser, 4, kFar, 8192);
  send(chooser, 4, kNear, 32768);
  send(chooser, 4, kFar, 4u << 20);
  EXPECT_GE(send(chooser, 640, kFar, 8192), 630);
  EXPECT_LE(send(chooser, 640, kNear, 32768), 10);
  EXPECT_GE(send(chooser, 640, kFar, 4u << 20), 630);
}

TEST(StoreChooser, UntilBothEndsKnowItAsksAgain) {
  StoreChooser chooser;
  for (int i = 0; i < 10; ++i) {
    const StoreChooser::Choice choice = chooser.next(kBytes);
    EXPECT_TRUE(choice.timed && !choice.streaming);
  }
  chooser.sample(kBytes, false, 1000);
  const StoreChooser::Choice choice = chooser.next(kBytes);
  EXPECT_TRUE(choice.timed && choice.streaming);
}

}  // namespace
}  // namespace unisono::shm
