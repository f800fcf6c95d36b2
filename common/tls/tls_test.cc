// SPDX-License-Identifier: Apache-2.0
#include "common/tls/tls.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::tls {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
const std::string kSeed(32, 's');

Authority MakeAuthority(const std::string& purpose = "ca", absl::Time now = kNow) {
  return *Authority::Create(Key::Derive(kSeed, purpose), "authority of " + purpose,
                            ValidFrom(now, absl::Hours(48)));
}

Identity MakeLeaf(const Authority& authority, Usage usage = Usage::kBoth) {
  return *authority.Issue({.dns_names = {"worker.u1.starling", "b.example"},
                           .usage = usage,
                           .validity = ValidFrom(kNow, absl::Hours(24))});
}

std::string MessageOf(const Identity& identity, absl::Time now = kNow) {
  return std::string(Verify(identity, now).message());
}

// A letter in the middle of the text, replaced by another one.
std::string Tampered(std::string pem) {
  char& letter = pem[pem.size() / 2];
  letter = letter == 'A' ? 'B' : 'A';
  return pem;
}

TEST(Tls, DerivedBytesAreThoseOfTheStandard) {
  // RFC 5869, test case 3: no salt. Its info is empty, which OpenSSL takes as no info.
  EXPECT_EQ(DeriveBytes(std::string(22, '\x0b'), "", 42).substr(0, 4), "\x8d\xa4\xe7\x75");
}

TEST(Tls, DerivedKeyIsTheSameForTheSameSeedAndPurposeOnly) {
  const std::string key = Key::Derive(kSeed, "a").ToPem();
  EXPECT_EQ(key, Key::Derive(kSeed, "a").ToPem());
  EXPECT_NE(key, Key::Derive(kSeed, "b").ToPem());
  EXPECT_NE(key, Key::Derive(std::string(32, 't'), "a").ToPem());
  EXPECT_NE(Key::Generate().ToPem(), Key::Generate().ToPem());
}

TEST(Tls, KeySurvivesPem) {
  const Key key = Key::Derive(kSeed, "a");
  const auto again = Key::FromPem(key.ToPem());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToPem(), key.ToPem());
}

TEST(Tls, WhatIsNoKeyIsRefused) {
  const std::string key = Key::Generate().ToPem();
  for (const std::string& text : {std::string(), std::string("nonsense"), Tampered(key),
                                  key.substr(0, 90), MakeAuthority().certificate()}) {
    EXPECT_FALSE(Key::FromPem(text).ok()) << text;
  }
}

TEST(Tls, LeafSaysItsNamesAndItsTime) {
  const auto facts = ReadCertificate(MakeLeaf(MakeAuthority()).certificate);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->common_name, "worker.u1.starling");
  EXPECT_THAT(facts->dns_names, ElementsAre("worker.u1.starling", "b.example"));
  EXPECT_EQ(facts->validity.from, kNow - absl::Hours(24));
  EXPECT_EQ(facts->validity.until, kNow + absl::Hours(24));
  EXPECT_FALSE(facts->authority);
  EXPECT_TRUE(ReadCertificate(MakeAuthority().certificate())->authority);
}

TEST(Tls, LeafIsGoodForItsAuthorityAndItsTime) {
  const Identity leaf = MakeLeaf(MakeAuthority());
  EXPECT_EQ(MessageOf(leaf), "");
  EXPECT_THAT(MessageOf(leaf, kNow + absl::Hours(25)), HasSubstr("expired"));
  EXPECT_THAT(MessageOf(leaf, kNow - absl::Hours(25)), HasSubstr("not yet valid"));
}

TEST(Tls, AuthorityMadeAnewFromTheSameSeedAcceptsOldLeaves) {
  Identity leaf = MakeLeaf(MakeAuthority());
  leaf.authority = MakeAuthority("ca", kNow + absl::Hours(1)).certificate();
  EXPECT_EQ(MessageOf(leaf), "");
}

TEST(Tls, LeafOfAnotherAuthorityIsRefused) {
  Identity leaf = MakeLeaf(MakeAuthority());
  leaf.authority = MakeAuthority("other").certificate();
  EXPECT_NE(MessageOf(leaf), "");
  // Of several authorities one is enough.
  leaf.authority += MakeAuthority().certificate();
  EXPECT_EQ(MessageOf(leaf), "");
}

TEST(Tls, AuthorityOfTheSameNameButAnotherKeyIsRefused) {
  Identity leaf = MakeLeaf(MakeAuthority());
  leaf.authority =
      Authority::Create(Key::Generate(), "authority of ca", ValidFrom(kNow, absl::Hours(48)))
          ->certificate();
  EXPECT_NE(MessageOf(leaf), "");
}

TEST(Tls, TamperedLeafIsRefused) {
  const Identity good = MakeLeaf(MakeAuthority());
  Identity changed = good;
  changed.certificate = Tampered(good.certificate);
  EXPECT_NE(MessageOf(changed), "");
  changed = good;
  changed.key = MakeLeaf(MakeAuthority()).key;
  EXPECT_THAT(MessageOf(changed), HasSubstr("not the certificate's"));
}

TEST(Tls, LeafCannotBeAnAuthority) {
  const Identity leaf = MakeLeaf(MakeAuthority());
  EXPECT_THAT(std::string(Authority::FromPem(leaf.certificate, leaf.key).status().message()),
              HasSubstr("not an authority's"));
}

TEST(Tls, AuthorityIsReadBackWithItsOwnKeyOnly) {
  const Authority authority = MakeAuthority();
  const auto again = Authority::FromPem(authority.certificate(), authority.key().ToPem());
  ASSERT_TRUE(again.ok()) << again.status();
  Identity leaf = MakeLeaf(*again);
  leaf.authority = authority.certificate();
  EXPECT_EQ(MessageOf(leaf), "");
  EXPECT_FALSE(Authority::FromPem(authority.certificate(), Key::Generate().ToPem()).ok());
}

TEST(Tls, NamesThatAreNoneAreRefused) {
  const Authority authority = MakeAuthority();
  for (const char* name : {"", "a b", "a,DNS:b", ".a", "a/b", "\n"}) {
    EXPECT_FALSE(authority.Issue({.dns_names = {name}, .validity = ValidFrom(kNow, {})}).ok())
        << name;
  }
  EXPECT_FALSE(authority.Issue({.dns_names = {}, .validity = ValidFrom(kNow, {})}).ok());
  EXPECT_FALSE(Authority::Create(Key::Generate(), std::string(65, 'a'), ValidFrom(kNow, {})).ok());
}

TEST(Tls, IdentityIsReadFromItsFiles) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("starling_tls_test." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const Identity leaf = MakeLeaf(MakeAuthority());
  std::ofstream(folder / "tls.crt") << leaf.certificate;
  std::ofstream(folder / "ca.crt") << leaf.authority;
  EXPECT_THAT(std::string(ReadIdentity(folder).status().message()), HasSubstr("tls.key"));
  std::ofstream(folder / "tls.key") << leaf.key;
  const auto read = ReadIdentity(folder);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->key, leaf.key);
  std::ofstream(folder / "tls.key") << Key::Generate().ToPem();
  EXPECT_THAT(std::string(ReadIdentity(folder).status().message()),
              HasSubstr("not the certificate's"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace starling::tls
