// SPDX-License-Identifier: Apache-2.0
// What several replicas keep in one Secret: whoever writes first is believed by all.
#include "controller/admission/shared_secret.h"

#include <string>

#include "absl/strings/escaping.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/testing/faulty_kube_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::admission {
namespace {

using kube::Fault;
using kube::Json;

const kube::ObjectKey kSecret{"starling-system", "shared"};
const CertificatePolicy kPolicy = {.dns_names = ServiceNames("api", "starling-system")};

class SharedSecretTest : public ::testing::Test {
 protected:
  absl::StatusOr<ServingCertificate> Certificate() {
    return SharedCertificate(client_, clock_, kSecret, kPolicy, "api");
  }
  absl::StatusOr<std::string> Key() { return SharedKey(client_, kSecret, "signing"); }
  void MakeSecret(const Json& data) {
    ASSERT_TRUE(store_
                    ->Create(kube::kSecret,
                             {{"metadata", {{"name", kSecret.name}, {"namespace", kSecret.ns}}},
                              {"data", data}})
                    .ok());
  }
  Json Secret() { return store_->Get(kube::kSecret, kSecret).value(); }
  // The next so many writes are refused, as by one who was faster.
  void Conflict(int times) {
    conflicts_ = times;
    client_.FailWritesThat([this](const auto&, auto) { return conflicts_-- > 0; },
                           Fault::kConflict);
  }

  clock::FakeClock clock_{absl::Now()};
  std::unique_ptr<kube::KubeClient> store_ = kube::OpenEmbeddedKubeClient(clock_, {}).value();
  kube::FaultyKubeClient client_{*store_};
  int conflicts_ = 0;
};

TEST_F(SharedSecretTest, ACertificateIsMadeOnceAndSaysWhoseItIs) {
  const auto made = Certificate();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(kube::StringAt(Secret(), "/type"), "Opaque");
  EXPECT_EQ(kube::LabelOf(Secret(), "app.kubernetes.io/component"), "api");
  const Json secret = Secret();
  const auto read = Certificate();
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->certificate, made->certificate);
  EXPECT_EQ(Secret(), secret);
}

TEST_F(SharedSecretTest, WhatElseASecretHoldsStaysThere) {
  MakeSecret({{"theirs", "eA=="}});
  ASSERT_TRUE(Certificate().ok());
  ASSERT_TRUE(Key().ok());
  EXPECT_EQ(kube::StringAt(Secret(), "/data/theirs"), "eA==");
}

TEST_F(SharedSecretTest, WhoeverIsSlowerReadsAgainFourTimes) {
  for (const Json& there : {Json(), Json::object()}) {
    if (!there.is_null()) MakeSecret(there);
    Conflict(5);
    EXPECT_TRUE(absl::IsAborted(Certificate().status()));
    EXPECT_EQ(conflicts_, 0);
    Conflict(4);
    EXPECT_TRUE(Certificate().ok());
    ASSERT_TRUE(store_->Delete(kube::kSecret, kSecret, {}).ok());
  }
}

TEST_F(SharedSecretTest, OneThatAnotherHasJustMadeIsTaken) {
  SharedCertificate(*store_, clock_, {kSecret.ns, "theirs"}, kPolicy, "api").IgnoreError();
  const Json theirs = store_->Get(kube::kSecret, {kSecret.ns, "theirs"}).value();
  client_.FailWritesThat(
      [&](const auto&, std::string_view verb) {
        if (verb == "create") MakeSecret(theirs["data"]);
        return false;
      },
      Fault::kRefuse);
  const auto taken = Certificate();
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(Secret()["data"], theirs["data"]);
}

TEST_F(SharedSecretTest, ACertificateThatIsDueWhenItIsMadeIsAnError) {
  CertificatePolicy policy = kPolicy;
  policy.leaf_life = -absl::Hours(1);
  const absl::Status status = SharedCertificate(client_, clock_, kSecret, policy, "api").status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("right after their making"));
  EXPECT_EQ(client_.writes(), 1) << "it would be so again";
}

TEST_F(SharedSecretTest, OtherErrorsAreToldAtOnce) {
  client_.FailWrite(1, Fault::kRefuse);
  EXPECT_TRUE(absl::IsUnavailable(Certificate().status()));
  EXPECT_EQ(client_.writes(), 1);
  MakeSecret(Json::object());
  client_.FailWrite(1, Fault::kRefuse);
  EXPECT_TRUE(absl::IsUnavailable(Key().status()));
  EXPECT_EQ(client_.writes(), 2);
  client_.FailWrite(1, Fault::kCrashBefore);
  EXPECT_FALSE(Key().ok());
  EXPECT_TRUE(absl::IsCancelled(Certificate().status())) << "it cannot be read";
}

TEST_F(SharedSecretTest, WhatCannotBeReadIsNotMadeAnew) {
  client_.AskBeforeReads([](const auto&) { return absl::UnavailableError("busy"); });
  EXPECT_TRUE(absl::IsUnavailable(Certificate().status()));
  EXPECT_TRUE(absl::IsUnavailable(Key().status()));
  EXPECT_EQ(client_.writes(), 0);
}

TEST_F(SharedSecretTest, AKeyOfEnoughBytesIsMadeOnce) {
  EXPECT_TRUE(absl::IsNotFound(Key().status())) << "the Secret is the certificate's";
  MakeSecret({{"signing", absl::Base64Escape(std::string(31, 'k'))}});
  const auto key = Key();
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(key->size(), 32U);
  EXPECT_EQ(*Key(), *key);
  EXPECT_EQ(client_.writes(), 1);
  Json secret = Secret();
  for (const std::string& given : {std::string(32, 'k'), std::string(64, 'k')}) {
    secret = Secret();
    secret["data"]["signing"] = absl::Base64Escape(given);
    ASSERT_TRUE(store_->Update(kube::kSecret, secret).ok());
    EXPECT_EQ(*Key(), given);
  }
  secret = Secret();
  secret["data"]["signing"] = "!";
  ASSERT_TRUE(store_->Update(kube::kSecret, secret).ok());
  EXPECT_EQ(Key()->size(), 32U);
}

TEST_F(SharedSecretTest, AKeyThatAnotherHasJustWrittenIsTaken) {
  MakeSecret(Json::object());
  client_.FailWrite(1, Fault::kConflict);
  EXPECT_TRUE(Key().ok());
  ASSERT_TRUE(store_->Delete(kube::kSecret, kSecret, {}).ok());
  MakeSecret(Json::object());
  Conflict(1000);
  EXPECT_TRUE(absl::IsAborted(Key().status()));
  EXPECT_EQ(conflicts_, 995);
}

}  // namespace
}  // namespace starling::admission
