// SPDX-License-Identifier: Apache-2.0
// What is said on the wire: members whose programs differ in it would refuse each other. Who is
// believed is in strangers_test.cc.
#include "trainer/transport/handshake.h"

#include <string>

#include "gtest/gtest.h"

namespace starling::transport {
namespace {

Hello AnyHello() {
  Hello hello;
  hello.view = 1;
  hello.network = 2;
  hello.nonce.fill(std::byte{9});
  hello.dialer = "dialer";
  hello.acceptor = "acceptor";
  return hello;
}

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(HandshakeOnTheWire, AHelloIsItsFieldsOneBehindTheOther) {
  using namespace std::string_literals;
  std::string expected = "STRLNG-2\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"s + std::string(32, '\x09');
  for (const std::string& member : {"dialer"s, "acceptor"s}) {
    expected += member + std::string(kMemberFieldBytes - member.size(), '\0');
  }
  EXPECT_EQ(Text(Encode(AnyHello())), expected);
}

TEST(HandshakeOnTheWire, AProofIsAKeyedHashOverALabelAZeroAndBothMessages) {
  const HelloBytes hello = Encode(AnyHello());
  Handshake acceptor("key", hello);
  const ChallengeBytes challenge = acceptor.MakeChallenge();
  const auto nonce = std::span(challenge).first(kNonceBytes);
  const auto proof = std::span(challenge).last(kProofBytes);
  const auto expected =
      bytes::Hmac("key", std::string("acceptor\0", 9) + Text(hello) + Text(nonce));
  EXPECT_EQ(Text(proof), Text(std::as_bytes(std::span(expected))));
}

}  // namespace
}  // namespace starling::transport
