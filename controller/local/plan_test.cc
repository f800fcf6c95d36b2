// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "controller/local/address_pool.h"
#include "controller/local/container_plan.h"
#include "controller/local/volumes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::local {
namespace {

using kube::Json;
using ::testing::HasSubstr;

absl::StatusOr<Json> ReadNothing(const kube::ResourceKind&, const std::string& name) {
  return absl::NotFoundError(name + " is not there");
}

TEST(ExpandVariables, FollowsKubernetes) {
  const std::vector<std::string> variables = {"A=1", "LONG=x=y"};
  EXPECT_EQ(ExpandVariables("$(A)", variables), "1");
  EXPECT_EQ(ExpandVariables("a$(A)b$(LONG)c", variables), "a1bx=yc");
  EXPECT_EQ(ExpandVariables("$(UNKNOWN)", variables), "$(UNKNOWN)");
  EXPECT_EQ(ExpandVariables("$$(A)", variables), "$(A)");
  EXPECT_EQ(ExpandVariables("$A $", variables), "$A $");
  EXPECT_EQ(ExpandVariables("$(A", variables), "$(A");
}

TEST(RewritePath, TakesTheLongestMountAndWholeNamesOnly) {
  const std::vector<Mount> mounts = {{"/etc", "/real/a"}, {"/etc/starling", "/real/b"}};
  EXPECT_EQ(RewritePath("/etc/starling/spec.json", mounts), "/real/b/spec.json");
  EXPECT_EQ(RewritePath("/etc/starlings", mounts), "/real/a/starlings");
  EXPECT_EQ(RewritePath("/etc", mounts), "/real/a");
  EXPECT_EQ(RewritePath("/etcetera", mounts), "/etcetera");
  EXPECT_EQ(RewritePath("--spec=/etc/starling/x", mounts), "--spec=/real/b/x");
  EXPECT_EQ(RewritePath("say /etc", mounts), "say /etc");
}

TEST(PlanContainer, MissingSecretKeyIsWorthWaitingFor) {
  const Json container = {
      {"command", {"/bin/true"}},
      {"env", Json::array({{{"name", "KEY"},
                            {"valueFrom", {{"secretKeyRef", {{"name", "s"}, {"key", "k"}}}}}}})}};
  const Json pod = Json::object();
  const PodFacts facts{.pod = pod, .ip = ""};

  EXPECT_EQ(PlanContainer(facts, container, {}, {}, "/bin", ReadNothing).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(PlanContainer, ContainerWithoutACommandSaysWhatToDo) {
  const Json pod = Json::object();
  const PodFacts facts{.pod = pod, .ip = ""};
  const auto plan = PlanContainer(facts, {{"image", "x"}}, {}, {}, "/bin", ReadNothing);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("give it one"));
}

TEST(Volumes, PathsThatLeadOutAreRefused) {
  const std::string folder = ::testing::TempDir() + "volumes" + std::to_string(getpid());
  for (const char* path : {"../x", "/etc/passwd", "a/../../x"}) {
    const Json pod = {
        {"spec",
         {{"volumes",
           Json::array({{{"name", "v"},
                         {"downwardAPI",
                          {{"items", Json::array({{{"path", path},
                                                   {"fieldRef",
                                                    {{"fieldPath", "metadata.name"}}}}})}}}}})}}}};
    const auto mounts = ProjectVolumes({.pod = pod, .ip = ""}, Json::object(), folder, ReadNothing);
    EXPECT_EQ(mounts.status().code(), absl::StatusCode::kInvalidArgument) << path;
  }
  const Json named = {{"spec", {{"volumes", Json::array({{{"name", ".."}, {"emptyDir", {}}}})}}}};
  EXPECT_FALSE(ProjectVolumes({.pod = named, .ip = ""}, Json::object(), folder, ReadNothing).ok());
  std::filesystem::remove_all(folder);
}

TEST(AddressPool, SkipsWhatIsTakenAndGoesRound) {
  std::string taken;
  AddressPool pool("/home/a", [&taken](const std::string& address) { return address == taken; });
  const std::string first = *pool.Take();
  const std::string second = *pool.Take();
  EXPECT_NE(first, second);
  pool.Release(first);
  const std::string third = *pool.Take();
  EXPECT_NE(third, first) << "an address just released is not the next one";
  pool.Release(second);
  pool.Release(third);
  taken = second;
  for (int i = 0; i < 3000; ++i) {
    const auto next = pool.Take();
    ASSERT_TRUE(next.ok());
    EXPECT_NE(*next, second);
    EXPECT_FALSE(next->starts_with("127.0."));
    pool.Release(*next);
  }
}

TEST(AddressPool, FullPoolSaysSo) {
  AddressPool pool("/home/a", [](const std::string&) { return true; });
  EXPECT_EQ(pool.Take().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(AddressPool, SuccessorGoesOnAfterTheAddressesInUse) {
  AddressPool before("/home/a", [](const std::string&) { return false; });
  const std::string first = *before.Take();
  const std::string second = *before.Take();
  AddressPool after("/home/a", [](const std::string&) { return false; });
  after.Use(first);
  EXPECT_EQ(*after.Take(), second);
}

}  // namespace
}  // namespace starling::local
