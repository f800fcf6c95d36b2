// SPDX-License-Identifier: Apache-2.0
#include "common/bytes/bytes.h"

#include "gtest/gtest.h"

namespace starling::bytes {
namespace {

TEST(Bytes, Sha256OfTheEmptyTextIsTheKnownOne) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Bytes, DigestInPiecesEqualsDigestOfTheWhole) {
  Sha256 pieces;
  pieces.Update(View("ab"));
  pieces.Update(View("c"));
  EXPECT_EQ(pieces.Finish(), Sha256Of(View("abc")));
}

TEST(Bytes, HmacMatchesTheSecondCaseOfRfc4231) {
  EXPECT_EQ(ToHex(Hmac("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Bytes, EqualOnlyWhenEveryByteIs) {
  Digest a = Sha256Of(View("a"));
  Digest b = a;
  EXPECT_TRUE(ConstantTimeEqual(a, b));
  b[31] ^= 1;
  EXPECT_FALSE(ConstantTimeEqual(a, b));
}

TEST(Bytes, UuidsDifferAndHaveTheUsualForm) {
  const std::string uuid = RandomUuid();
  EXPECT_EQ(uuid.size(), 36u);
  EXPECT_EQ(uuid[14], '4');
  EXPECT_NE(uuid, RandomUuid());
}

}  // namespace
}  // namespace starling::bytes
