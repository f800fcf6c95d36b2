// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/credentials.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "common/clock/clock.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/message_json.h"
#include "controller/resources/resources.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kubernetes/objects.pb.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {
namespace {

using ::testing::HasSubstr;

const std::string kSeed(32, 's');
const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
const JobIdentity kJob{.ns = "team", .name = "digits", .uid = "u1"};

std::string TextOf(const kube::Message& object) { return kube::ToJson(object).dump(); }

JobCredentials Made(const std::string& uid = "u1", const std::string& seed = kSeed,
                    absl::Time now = kNow) {
  return *MakeJobCredentials(seed, uid, now);
}

TEST(Credentials, EveryRoleHasALeafOfItsOwnName) {
  const JobCredentials made = Made();
  for (const Role role : {Role::kCoordinator, Role::kWorker}) {
    const tls::Identity& leaf = made.leaves.at(role);
    EXPECT_TRUE(tls::Verify(leaf, kNow).ok());
    EXPECT_THAT(tls::ReadCertificate(leaf.certificate)->dns_names,
                ::testing::ElementsAre(std::string(RoleName(role)) + ".u1.starling"));
  }
  EXPECT_EQ(made.data_plane_key.size(), 64U);
}

TEST(Credentials, LeavesOutliveTheLongestJob) {
  const JobCredentials made = Made();
  const absl::Time late = kNow + 3649 * absl::Hours(24);
  EXPECT_TRUE(tls::Verify(made.leaves.at(Role::kWorker), late).ok());
  EXPECT_FALSE(tls::Verify(made.leaves.at(Role::kWorker), late + absl::Hours(48)).ok());
}

TEST(Credentials, NewLeaderNeedsNothingFromTheOld) {
  const JobCredentials old = Made();
  const JobCredentials later = Made("u1", kSeed, kNow + absl::Hours(1000));
  EXPECT_EQ(old.data_plane_key, later.data_plane_key);
  tls::Identity leaf = old.leaves.at(Role::kCoordinator);
  leaf.authority = later.authority;
  EXPECT_TRUE(tls::Verify(leaf, kNow + absl::Hours(1000)).ok());
  // The leaf that it makes for itself is one of the same authority.
  tls::Identity own = *MakeControllerIdentity(kSeed, "u1", kNow + absl::Hours(1000));
  own.authority = old.authority;
  EXPECT_TRUE(tls::Verify(own, kNow + absl::Hours(1000)).ok());
  EXPECT_THAT(tls::ReadCertificate(own.certificate)->dns_names,
              ::testing::ElementsAre("controller.u1.starling"));
}

TEST(Credentials, JobsAndSeedsDoNotMix) {
  const JobCredentials one = Made();
  for (const JobCredentials& other : {Made("u2"), Made("u1", std::string(32, 't'))}) {
    EXPECT_NE(one.data_plane_key, other.data_plane_key);
    tls::Identity leaf = one.leaves.at(Role::kCoordinator);
    leaf.authority = other.authority;
    EXPECT_FALSE(tls::Verify(leaf, kNow).ok());
  }
}

TEST(Credentials, ShortSeedIsRefused) {
  for (const std::string& seed : {std::string(), std::string(31, 's')}) {
    EXPECT_EQ(MakeJobCredentials(seed, "u1", kNow).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_FALSE(MakeControllerIdentity(seed, "u1", kNow).ok());
    EXPECT_FALSE(SecretFits({}, seed, "u1"));
  }
}

TEST(Credentials, SecretFitsItsSeedAndJobOnly) {
  const kubernetes::Secret secret = BuildSecret(kJob, Made());
  EXPECT_EQ(secret.metadata().name(), "digits-secret");
  EXPECT_FALSE(secret.has_immutable());
  EXPECT_TRUE(SecretFits(secret, kSeed, "u1"));
  EXPECT_FALSE(SecretFits(secret, kSeed, "u2"));
  EXPECT_FALSE(SecretFits(secret, std::string(32, 't'), "u1"));
  for (const auto& [key, value] : secret.data()) {
    kubernetes::Secret part = secret;
    part.mutable_data()->erase(key);
    EXPECT_FALSE(SecretFits(part, kSeed, "u1")) << key;
  }
}

TEST(Credentials, OnlyJobsWithServersHaveALeafForThem) {
  EXPECT_FALSE(Made().leaves.contains(Role::kParameterServer));
  const auto made = MakeJobCredentials(kSeed, "u1", kNow, Servers::kSome);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(made->leaves.contains(Role::kParameterServer));
  EXPECT_TRUE(SecretFits(BuildSecret(kJob, *made), kSeed, "u1", Servers::kSome));
  EXPECT_FALSE(SecretFits(BuildSecret(kJob, Made()), kSeed, "u1", Servers::kSome));
}

TEST(Credentials, AuthoritysKeyAndSeedAreNotInTheJobsSecret) {
  const std::string text = TextOf(BuildSecret(kJob, Made()));
  EXPECT_THAT(text, ::testing::Not(HasSubstr(absl::Base64Escape(kSeed))));
  const tls::Key authority = tls::Key::Derive(kSeed, "starling job authority u1");
  EXPECT_THAT(text, ::testing::Not(HasSubstr(absl::Base64Escape(authority.ToPem()))));
}

// A canary: what is secret is in the Secret and in no other object of the job.
TEST(Credentials, SecretsAreInNoOtherObject) {
  const JobCredentials made = Made();
  std::string objects = TextOf(BuildService(kJob)) + TextOf(BuildBudget(kJob, Role::kWorker)) +
                        TextOf(BuildConfig(kJob, 1, "{}", "{}"));
  const Platform platform{.jobs_folder = "", .image = "starling:1", .seed = kSeed};
  for (const Role role : kEveryRole) {
    objects += BuildPod(kJob, {}, {.role = role}, platform)->dump();
  }
  std::vector<std::string> secrets = {kSeed, made.data_plane_key};
  for (const auto& [role, leaf] : made.leaves) secrets.push_back(leaf.key);
  const std::string held = TextOf(BuildSecret(kJob, made));
  for (const std::string& secret : secrets) {
    EXPECT_THAT(objects, ::testing::Not(HasSubstr(secret)));
    EXPECT_THAT(objects, ::testing::Not(HasSubstr(absl::Base64Escape(secret))));
  }
  // The check can fail: there is one object that does hold them.
  EXPECT_THAT(held, HasSubstr(absl::Base64Escape(made.data_plane_key)));
}

struct Seed : ::testing::Test {
  clock::FakeClock clock{kNow};
  std::unique_ptr<kube::KubeClient> client = *kube::OpenEmbeddedKubeClient(clock, {});
};

TEST_F(Seed, IsMadeOnceAndThenTaken) {
  const auto first = EnsureSeed(*client);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->size(), 32U);
  EXPECT_EQ(*EnsureSeed(*client), *first);
  EXPECT_TRUE(client->Get(kube::kSecret, {"starling-system", "starling-controller-ca"}).ok());
  EXPECT_NE(*EnsureSeed(*client, "another"), *first);
}

TEST_F(Seed, WhatIsNoSeedIsNotUsed) {
  ASSERT_TRUE(
      client
          ->Create(
              kube::kSecret,
              {{"apiVersion", "v1"},
               {"kind", "Secret"},
               {"metadata", {{"name", "starling-controller-ca"}, {"namespace", "starling-system"}}},
               {"data", {{"seed", absl::Base64Escape("short")}}}})
          .ok());
  const auto seed = EnsureSeed(*client);
  EXPECT_EQ(seed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(seed.status().message()), HasSubstr("delete the Secret"));
}

}  // namespace
}  // namespace starling::resources
