#include "base/net/auth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace unisono::net {
namespace {

using State = Handshake::State;

Secret secret_of(unsigned char seed) {
  Secret secret{};
  secret.fill(seed);
  return secret;
}
Handshake::Nonce nonce_of(unsigned char seed) {
  Handshake::Nonce nonce{};
  nonce.fill(seed);
  return nonce;
}

const HandshakeFields kFields{0x1122334455667788, 3, 5, Purpose::kShm};

struct Talk {
  Handshake dialler;
  Handshake acceptor;
  std::vector<std::vector<unsigned char>> messages;  // as sent, in order

  // Moves what one side has to say to the other, in pieces.
  bool move(Handshake* from, Handshake* to, size_t piece) {
    bool any = false;
    std::vector<unsigned char> all;
    while (!from->unsent().empty()) {
      const auto bytes = from->unsent().first(std::min(piece, from->unsent().size()));
      all.insert(all.end(), bytes.begin(), bytes.end());
      const size_t taken = to->feed(bytes);
      from->sent(bytes.size());
      any = true;
      if (taken < bytes.size()) break;
    }
    if (any) messages.push_back(all);
    return any;
  }
  void run(size_t piece) {
    while (move(&dialler, &acceptor, piece) || move(&acceptor, &dialler, piece)) {
      if (dialler.state() == State::kProved) dialler.confirm();
      if (acceptor.state() == State::kProved) acceptor.confirm();
    }
  }
};

Talk good_talk() {
  return {Handshake::dial(secret_of(1), kFields, nonce_of(7)),
          Handshake::accept(secret_of(1), kFields.job, kFields.to, nonce_of(9)),
          {}};
}

TEST(Handshake, TwoWhoKnowTheSecretAgreeHoweverTheBytesArrive) {
  for (const size_t piece : {1, 7, 64, 1000}) {
    Talk talk = good_talk();
    talk.run(piece);
    EXPECT_EQ(talk.dialler.state(), State::kDone);
    EXPECT_EQ(talk.acceptor.state(), State::kDone);
    EXPECT_EQ(talk.acceptor.fields().from, 3);
    EXPECT_EQ(talk.acceptor.fields().to, 5);
    EXPECT_EQ(talk.acceptor.fields().job, kFields.job);
    EXPECT_EQ(talk.acceptor.fields().purpose, Purpose::kShm);
  }
}

TEST(Handshake, LaterBytesOfTheLinkAreNotSwallowed) {
  Talk talk = good_talk();
  talk.run(1000);
  ASSERT_EQ(talk.messages.size(), 4U);
  Handshake again = Handshake::dial(secret_of(1), kFields, nonce_of(7));
  again.sent(again.unsent().size());
  again.feed(talk.messages[1]);
  again.confirm();
  again.sent(again.unsent().size());
  EXPECT_EQ(again.wanted(), 1U);
  const std::array<unsigned char, 3> ok_and_more = {1, 42, 43};
  EXPECT_EQ(again.feed(ok_and_more), 1U);
  EXPECT_EQ(again.state(), State::kDone);
  EXPECT_EQ(again.wanted(), 0U);
}

TEST(Handshake, AnotherSecretJobOrRankIsRefusedWithoutAWordToTheStranger) {
  {  // The acceptor cannot prove itself: the dialler says no more.
    Talk talk{Handshake::dial(secret_of(1), kFields, nonce_of(7)),
              Handshake::accept(secret_of(2), kFields.job, kFields.to, nonce_of(9)),
              {}};
    talk.run(1000);
    EXPECT_EQ(talk.dialler.state(), State::kFailed);
    EXPECT_TRUE(talk.dialler.unsent().empty());
    EXPECT_EQ(talk.acceptor.state(), State::kRunning);
  }
  for (const bool wrong_job : {true, false}) {
    Talk talk{Handshake::dial(secret_of(1), kFields, nonce_of(7)),
              Handshake::accept(secret_of(1), kFields.job + (wrong_job ? 1 : 0),
                                kFields.to + (wrong_job ? 0 : 1), nonce_of(9)),
              {}};
    talk.run(1000);
    EXPECT_EQ(talk.acceptor.state(), State::kFailed);
    EXPECT_TRUE(talk.acceptor.unsent().empty());
  }
}

TEST(Handshake, ADiallerWithoutTheSecretIsRefused) {
  Handshake acceptor = Handshake::accept(secret_of(1), kFields.job, kFields.to, nonce_of(9));
  Handshake dialler = Handshake::dial(secret_of(2), kFields, nonce_of(7));
  acceptor.feed(dialler.unsent());
  ASSERT_EQ(acceptor.unsent().size(), Handshake::kAcceptBytes);
  // It can do no better than play the acceptor's own proof back.
  const std::vector<unsigned char> reply(acceptor.unsent().begin() + 32, acceptor.unsent().end());
  acceptor.sent(acceptor.unsent().size());
  acceptor.feed(reply);
  EXPECT_EQ(acceptor.state(), State::kFailed);
}

TEST(Handshake, EveryFlippedBitIsNoticed) {
  Talk good = good_talk();
  good.run(1000);
  ASSERT_EQ(good.messages.size(), 4U);
  for (size_t message = 0; message < 4; message++) {
    for (size_t bit = 0; bit < good.messages[message].size() * 8; bit++) {
      Talk talk = good_talk();
      bool to_acceptor = true;
      for (size_t m = 0; m <= message; m++) {
        Handshake& from = to_acceptor ? talk.dialler : talk.acceptor;
        Handshake& to = to_acceptor ? talk.acceptor : talk.dialler;
        std::vector<unsigned char> bytes(from.unsent().begin(), from.unsent().end());
        ASSERT_EQ(bytes, good.messages[m]);
        from.sent(bytes.size());
        if (m == message) bytes[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
        to.feed(bytes);
        if (to.state() == State::kProved && m < message) to.confirm();
        to_acceptor = !to_acceptor;
      }
      // A flipped bit of the hello may still be a valid question (nonce, rank, purpose): then the
      // proofs differ.
      if (message == 0 && talk.acceptor.state() == State::kRunning) {
        talk.dialler.feed(talk.acceptor.unsent());
        EXPECT_EQ(talk.dialler.state(), State::kFailed) << "hello bit " << bit;
      } else {
        EXPECT_EQ((message % 2 == 0 ? talk.acceptor : talk.dialler).state(), State::kFailed)
            << "message " << message << " bit " << bit;
      }
    }
  }
}

TEST(Handshake, ARecordedTalkCannotBePlayedBack) {
  Talk recorded = good_talk();
  recorded.run(1000);
  Handshake acceptor = Handshake::accept(secret_of(1), kFields.job, kFields.to, nonce_of(10));
  acceptor.feed(recorded.messages[0]);
  acceptor.sent(acceptor.unsent().size());
  acceptor.feed(recorded.messages[2]);
  EXPECT_EQ(acceptor.state(), State::kFailed);
  Handshake dialler = Handshake::dial(secret_of(1), kFields, nonce_of(8));
  dialler.sent(dialler.unsent().size());
  dialler.feed(recorded.messages[1]);
  EXPECT_EQ(dialler.state(), State::kFailed);
}

TEST(Handshake, ADiallerSpeaksOnToTheAcceptorItConfirmsOnly) {
  Talk talk = good_talk();
  talk.move(&talk.dialler, &talk.acceptor, 1000);
  talk.move(&talk.acceptor, &talk.dialler, 1000);
  EXPECT_EQ(talk.dialler.state(), State::kProved);
  EXPECT_TRUE(talk.dialler.unsent().empty());
  EXPECT_EQ(talk.dialler.wanted(), 0U);
  talk.dialler.confirm();
  EXPECT_EQ(talk.dialler.unsent().size(), Handshake::kProofBytes);
}

TEST(Handshake, APeerThatSpeaksBeforeItsTurnFailsAndOverflowsNothing) {
  Handshake acceptor = Handshake::accept(secret_of(1), kFields.job, kFields.to, nonce_of(9));
  const Handshake dialler = Handshake::dial(secret_of(1), kFields, nonce_of(7));
  std::vector<unsigned char> flood(dialler.unsent().begin(), dialler.unsent().end());
  flood.resize(1000, 0xab);
  EXPECT_EQ(acceptor.feed(flood), Handshake::kHelloBytes + Handshake::kProofBytes);
  EXPECT_EQ(acceptor.state(), State::kFailed);
}

}  // namespace
}  // namespace unisono::net
