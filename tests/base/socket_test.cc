#include "base/net/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

namespace unisono::net {
namespace {

void wait_readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  while (::poll(&one, 1, -1) < 0) {
  }
}

struct Pair {
  Fd a, b;
};
Pair unix_pair() {
  std::array<int, 2> raw{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, raw.data()), 0);
  return {Fd(raw[0]), Fd(raw[1])};
}

TEST(Fd, ClosesItsDescriptorOnceAndMovesIt) {
  const int raw = ::eventfd(0, 0);  // not close-on-exec
  ASSERT_GE(raw, 0);
  {
    Fd first(raw);
    EXPECT_NE(::fcntl(raw, F_GETFD) & FD_CLOEXEC, 0);
    Fd second = std::move(first);
    EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): that is the promise
    EXPECT_EQ(second.get(), raw);
    first = std::move(second);
    EXPECT_EQ(first.get(), raw);
  }
  EXPECT_EQ(::fcntl(raw, F_GETFD), -1);
}

TEST(Fd, ReleaseHandsTheDescriptorOver) {
  Fd owner(::eventfd(0, EFD_CLOEXEC));
  const int raw = owner.release();
  EXPECT_FALSE(owner.valid());
  EXPECT_GE(::fcntl(raw, F_GETFD), 0);
  ::close(raw);
}

TEST(Address, NumericTextIsParsedAndPrinted) {
  const auto text = [](std::string_view host, int port) {
    const auto address = parse_address(host, port);
    return address.ok() ? address->text() : "refused";
  };
  EXPECT_EQ(text("10.0.0.1", 4711), "10.0.0.1:4711");
  EXPECT_EQ(text("::1", 1), "[::1]:1");
  EXPECT_EQ(text("[fd00::2]", 65535), "[fd00::2]:65535");
  EXPECT_EQ(text("fe80::1%lo", 5), "[fe80::1%lo]:5");
  EXPECT_EQ(unix_address("some-name").text(), "unix:some-name");
}

TEST(Address, WhatIsNotNumericIsRefused) {
  using namespace std::string_view_literals;
  for (const std::string_view host :
       {""sv, "localhost"sv, "10.0.0.256"sv, "[::1"sv, ":::"sv, "1.2.3.4\0.5"sv}) {
    EXPECT_EQ(parse_address(host, 1).status().code(), Code::kInvalidArgument) << host;
  }
  EXPECT_FALSE(parse_address("10.0.0.1", 65536).ok());
  EXPECT_FALSE(parse_address("10.0.0.1", -1).ok());
  EXPECT_FALSE(parse_address(std::string(1000, '1'), 1).ok());
}

TEST(LocalAddresses, LoopbackIsAskedForByNameOrComesWhenNothingElseIsThere) {
  const auto loopback = local_addresses("lo");
  ASSERT_TRUE(loopback.ok()) << loopback.status().message();
  ASSERT_FALSE(loopback->empty());
  for (const Address& one : *loopback) {
    const std::string text = one.text();
    EXPECT_TRUE(text.starts_with("127.") || text.starts_with("[::1]")) << text;
  }
  const auto all = local_addresses("");
  ASSERT_TRUE(all.ok());
  EXPECT_FALSE(all->empty());
  const auto others = local_addresses("^lo");
  if (others.ok()) {
    EXPECT_EQ(others->size(), all->size());  // loopback was not among them
  } else {
    EXPECT_EQ(all->size(), loopback->size());  // only loopback is there
  }
}

TEST(LocalAddresses, AFilterThatMatchesNothingIsAnErrorThatNamesIt) {
  const auto none = local_addresses("no-such-if*,neither");
  EXPECT_EQ(none.status().code(), Code::kInvalidArgument);
  EXPECT_NE(none.status().message().find("no-such-if*,neither"), std::string::npos);
  EXPECT_NE(none.status().message().find("lo (127.0.0.1"), std::string::npos)
      << "the choices: " << none.status().message();
  EXPECT_FALSE(local_addresses("^*").ok());
  EXPECT_TRUE(local_addresses("l?,no-such-if").ok());
}

TEST(Listen, TheKernelChoosesThePortAndAConnectionGetsThrough) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    const auto address = parse_address(host, 0);
    ASSERT_TRUE(address.ok());
    auto listener = listen_on(*address);
    if (!listener.ok() && std::strcmp(host, "::1") == 0) continue;  // a machine without IPv6
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    EXPECT_EQ(accept_from(listener->get()).status().code(), Code::kInProgress);
    const auto bound = bound_address(listener->get());
    ASSERT_TRUE(bound.ok());
    EXPECT_FALSE(bound->text().ends_with(":0"));
    auto client = start_connect(*bound);
    ASSERT_TRUE(client.ok()) << client.status().message();
    wait_readable(listener->get());
    auto server = accept_from(listener->get());
    ASSERT_TRUE(server.ok());
    tune_tcp(server->get());
    ASSERT_EQ(::send(server->get(), "x", 1, MSG_NOSIGNAL), 1);
    wait_readable(client->get());
    char byte = 0;
    EXPECT_EQ(::recv(client->get(), &byte, 1, 0), 1);
    EXPECT_EQ(byte, 'x');
  }
}

TEST(Listen, AnErrorNamesTheAddress) {
  const auto listener = listen_on(*parse_address("127.0.0.1", 0));
  ASSERT_TRUE(listener.ok());
  const auto bound = bound_address(listener->get());
  const auto second = listen_on(*bound);
  EXPECT_EQ(second.status().code(), Code::kSystemError);
  EXPECT_NE(second.status().message().find(bound->text()), std::string::npos);
}

TEST(Descriptors, TravelOverAUnixSocketWithTheirBytes) {
  Pair pair = unix_pair();
  Fd event(::eventfd(7, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::array<int, 2> both = {event.get(), event.get()};
  const std::array<std::byte, 3> bytes = {std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 16> buffer{};
  std::vector<Fd> fds;
  EXPECT_EQ(receive_with_fds(pair.b.get(), buffer, &fds).status().code(), Code::kInProgress);
  ASSERT_TRUE(send_with_fds(pair.a.get(), bytes, both).ok());
  const auto got = receive_with_fds(pair.b.get(), buffer, &fds);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(*got, 3U);
  EXPECT_EQ(buffer[2], std::byte{3});
  ASSERT_EQ(fds.size(), 2U);
  EXPECT_NE(::fcntl(fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  uint64_t value = 0;
  ASSERT_EQ(::read(fds[1].get(), &value, sizeof value), 8);
  EXPECT_EQ(value, 7U);
  pair.a.reset();
  const auto end = receive_with_fds(pair.b.get(), buffer, &fds);
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(*end, 0U);
}

TEST(Descriptors, UnwantedOnesAreClosed) {
  const Pair pair = unix_pair();
  std::array<int, 2> raw{};
  ASSERT_EQ(::pipe2(raw.data(), O_CLOEXEC), 0);
  Fd reader(raw[0]);
  Fd writer(raw[1]);
  const std::array<std::byte, 1> bytes = {std::byte{1}};
  const std::array<int, 1> one = {writer.get()};
  ASSERT_TRUE(send_with_fds(pair.a.get(), bytes, one).ok());
  writer.reset();
  std::array<std::byte, 1> buffer{};
  ASSERT_TRUE(receive_with_fds(pair.b.get(), buffer, nullptr).ok());
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);  // end of file: nobody holds the writing end
}

TEST(Descriptors, AFullSocketSaysInProgressAndBigMessagesAreRefused) {
  const Pair pair = unix_pair();
  const std::vector<std::byte> chunk(4096);
  Status status;
  for (int i = 0; i < 100'000 && status.ok(); i++) status = send_with_fds(pair.a.get(), chunk, {});
  EXPECT_EQ(status.code(), Code::kInProgress);
  const std::vector<std::byte> big(4097);
  EXPECT_EQ(send_with_fds(pair.a.get(), big, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(send_with_fds(pair.a.get(), {}, {}).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace unisono::net
