// SPDX-License-Identifier: Apache-2.0
#include "controller/admission/certificates.h"

#include "absl/strings/escaping.h"
#include "common/tls/tls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::admission {
namespace {

using Json = nlohmann::json;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
const CertificatePolicy kPolicy = {.dns_names =
                                       ServiceNames("starling-webhook", "starling-system")};

Json SecretWith(const Json& data) { return {{"data", data}}; }
Json Fresh(absl::Time now) { return SecretWith(RenewedData(nullptr, kPolicy, now).value()); }

std::string Decoded(const Json& secret, const char* key) {
  std::string text;
  EXPECT_TRUE(absl::Base64Unescape(secret["data"][key].get<std::string>(), &text));
  return text;
}

TEST(Certificates, WithoutASecretThereAreNone) {
  EXPECT_FALSE(CurrentCertificate(nullptr, kPolicy, kNow));
}

TEST(Certificates, ANewOneServesTheServiceUnderEachOfItsNames) {
  const Json secret = Fresh(kNow);
  const auto current = CurrentCertificate(&secret, kPolicy, kNow);
  ASSERT_TRUE(current);
  const auto facts = tls::ReadCertificate(current->certificate);
  EXPECT_EQ(facts->dns_names, kPolicy.dns_names);
  EXPECT_EQ(facts->dns_names.front(), "starling-webhook.starling-system.svc");
  EXPECT_FALSE(facts->authority);
  EXPECT_TRUE(tls::Verify({current->certificate, current->key, current->bundle}, kNow).ok());
}

TEST(Certificates, AreDueAThirdOfTheirLifeBeforeTheEnd) {
  const Json secret = Fresh(kNow);
  EXPECT_TRUE(CurrentCertificate(&secret, kPolicy, kNow + absl::Hours(24) * 58));
  EXPECT_FALSE(CurrentCertificate(&secret, kPolicy, kNow + absl::Hours(24) * 61));
}

TEST(Certificates, AreGoodFromTheirFirstSecondToThatInWhichTheyAreDue) {
  const Json secret = Fresh(kNow);
  const tls::Validity leaf = tls::ReadCertificate(Decoded(secret, "tls.crt"))->validity;
  const absl::Time due = leaf.until - (leaf.until - leaf.from) / 3;
  const auto good = [&](absl::Time now) {
    return CurrentCertificate(&secret, kPolicy, now).has_value();
  };
  EXPECT_FALSE(good(leaf.from - absl::Seconds(1)));
  EXPECT_TRUE(good(leaf.from));
  EXPECT_TRUE(good(due - absl::Nanoseconds(1)));
  EXPECT_FALSE(good(due));
}

TEST(Certificates, AnAuthorityThatIsNotGoodYetSignsNothing) {
  const Json first = Fresh(kNow);
  const absl::Time early =
      tls::ReadCertificate(Decoded(first, "ca.crt"))->validity.from - absl::Seconds(1);
  const Json renewed = SecretWith(RenewedData(&first, kPolicy, early).value());
  EXPECT_NE(renewed["data"]["ca.key"], first["data"]["ca.key"]);
  EXPECT_TRUE(CurrentCertificate(&renewed, kPolicy, early));
}

TEST(Certificates, AnAuthorityThatHasEndedLeavesTheBundle) {
  const Json first = Fresh(kNow);
  const absl::Time until = tls::ReadCertificate(Decoded(first, "ca.crt"))->validity.until;
  for (const absl::Time now : {until - absl::Seconds(1), until}) {
    const std::string bundle =
        Decoded(SecretWith(RenewedData(&first, kPolicy, now).value()), "ca.crt");
    const bool kept = bundle.find("BEGIN", bundle.find("BEGIN") + 1) != std::string::npos;
    EXPECT_EQ(kept, now < until);
  }
}

TEST(Certificates, ALeafThatIsDueIsRenewedUnderTheSameAuthority) {
  const Json before = Fresh(kNow);
  const absl::Time later = kNow + absl::Hours(24) * 70;
  const Json after = SecretWith(RenewedData(&before, kPolicy, later).value());
  EXPECT_EQ(after["data"]["ca.crt"], before["data"]["ca.crt"]);
  EXPECT_EQ(after["data"]["ca.key"], before["data"]["ca.key"]);
  EXPECT_NE(after["data"]["tls.crt"], before["data"]["tls.crt"]);
  EXPECT_TRUE(CurrentCertificate(&after, kPolicy, later));
}

TEST(Certificates, AfterANewAuthorityTheOldLeafIsStillAccepted) {
  const Json first = Fresh(kNow);
  // The authority, good for ten years, is due from the third year before its end.
  const absl::Time before_due = kNow + absl::Hours(24) * 2400;
  const absl::Time after_due = kNow + absl::Hours(24) * 2450;
  const Json old = SecretWith(RenewedData(&first, kPolicy, before_due).value());
  const Json renewed = SecretWith(RenewedData(&old, kPolicy, after_due).value());
  EXPECT_EQ(old["data"]["ca.key"], first["data"]["ca.key"]);
  EXPECT_NE(renewed["data"]["ca.key"], first["data"]["ca.key"]);
  const std::string bundle = Decoded(renewed, "ca.crt");
  for (const Json& secret : {old, renewed}) {
    const tls::Identity leaf = {Decoded(secret, "tls.crt"), Decoded(secret, "tls.key"), bundle};
    EXPECT_TRUE(tls::Verify(leaf, after_due).ok()) << tls::Verify(leaf, after_due);
  }
  const tls::Identity strange = {Decoded(Fresh(after_due), "tls.crt"),
                                 Decoded(Fresh(after_due), "tls.key"), bundle};
  EXPECT_FALSE(tls::Verify(strange, after_due).ok());
}

TEST(Certificates, TheBundleOfManyRotationsHoldsTwoAuthorities) {
  Json secret = Fresh(kNow);
  absl::Time now = kNow;
  for (int i = 0; i < 5; ++i) {
    now += absl::Hours(24) * 3000;
    secret = SecretWith(RenewedData(&secret, kPolicy, now).value());
  }
  const std::string bundle = Decoded(secret, "ca.crt");
  const std::size_t second = bundle.find("BEGIN", bundle.find("BEGIN") + 1);
  EXPECT_NE(second, std::string::npos);
  EXPECT_EQ(bundle.find("BEGIN", second + 1), std::string::npos);
  EXPECT_TRUE(bundle.ends_with("-----END CERTIFICATE-----\n")) << bundle;
}

TEST(Certificates, ALeafInTheAuthoritysPlaceSignsNothingAndIsNotKept) {
  Json secret = Fresh(kNow);
  secret["data"]["ca.crt"] = secret["data"]["tls.crt"];
  secret["data"]["ca.key"] = secret["data"]["tls.key"];
  EXPECT_FALSE(CurrentCertificate(&secret, kPolicy, kNow));
  const Json repaired = SecretWith(RenewedData(&secret, kPolicy, kNow).value());
  EXPECT_TRUE(CurrentCertificate(&repaired, kPolicy, kNow));
  const std::string bundle = Decoded(repaired, "ca.crt");
  EXPECT_EQ(bundle.find("BEGIN", bundle.find("BEGIN") + 1), std::string::npos) << bundle;
}

TEST(Certificates, ADamagedOrForeignSecretIsMadeAnew) {
  const Json good = Fresh(kNow);
  const Json other = Fresh(kNow);
  for (const char* key : {"tls.crt", "tls.key", "ca.crt", "ca.key"}) {
    for (const Json& odd : {Json(), Json(3), Json("!"), Json("aGVsbG8="), other["data"][key]}) {
      Json secret = good;
      secret["data"][key] = odd;
      EXPECT_FALSE(CurrentCertificate(&secret, kPolicy, kNow)) << key << " " << odd;
      const Json repaired = SecretWith(RenewedData(&secret, kPolicy, kNow).value());
      EXPECT_TRUE(CurrentCertificate(&repaired, kPolicy, kNow)) << key << " " << odd;
    }
  }
  for (const Json& odd : {Json(), Json(1), Json{{"data", 1}}, Json::array()}) {
    EXPECT_FALSE(CurrentCertificate(&odd, kPolicy, kNow));
    EXPECT_TRUE(RenewedData(&odd, kPolicy, kNow).ok());
  }
}

TEST(Certificates, AnotherServicesNamesAreNotTaken) {
  const Json secret = Fresh(kNow);
  CertificatePolicy other = kPolicy;
  other.dns_names = ServiceNames("starling-webhook", "elsewhere");
  EXPECT_FALSE(CurrentCertificate(&secret, other, kNow));
}

}  // namespace
}  // namespace starling::admission
