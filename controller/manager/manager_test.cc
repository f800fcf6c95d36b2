// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/clock/clock.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/manager/controller.h"
#include "controller/manager/home_lock.h"
#include "controller/manager/idle.h"
#include "controller/manager/lease.h"
#include "controller/manager/options.h"
#include "gtest/gtest.h"

namespace starling::manager {
namespace {

using kube::Json;

// A folder of the test's own.
class Folder {
 public:
  Folder() : path_(testing::TempDir() + "starling-" + std::to_string(getpid())) {
    std::filesystem::remove_all(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(ManagerOptions, HomeIsMadeAbsolute) {
  const auto options = ParseOptions({"--home=/a/b/../c", "--exit-when-idle"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->home, "/a/c");
  EXPECT_TRUE(options->exit_when_idle);
}

TEST(ManagerOptions, MistakesAreNamed) {
  for (const auto& [arguments, names] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--hoem", "x"}, "--hoem"},
           {{"--home"}, "--home"},
           {{"--home", "x", "--log-level", "loud"}, "loud"},
           {{"--home", "x", "--kubeconfig", "y"}, "--home"},
           {{"--kubeconfig", "y", "--leader-elect=perhaps"}, "perhaps"},
           {{"--kubeconfig", "y", "--kube-api-qps", "-1"}, "--kube-api-qps"},
           {{"--kubeconfig", "y", "--concurrent-reconciles=0"}, "--concurrent-reconciles"},
           {{"--kubeconfig", "y", "--metrics-bind-address", "8080"}, "--metrics-bind-address"},
           {{"--kubeconfig", "y", "--leader-elect-lease-duration=5s"}, "renew deadline"},
           {{"--kubeconfig", "y", "--gang-scheduler", "slurm"}, "volcano or native"},
           {{"--home", "x", "--coordinator-silence", "soon"}, "soon"}}) {
    const auto options = ParseOptions(arguments);
    ASSERT_FALSE(options.ok());
    EXPECT_NE(std::string(options.status().message()).find(names), std::string::npos);
  }
}

TEST(ManagerOptions, AClusterHasKubebuildersFlags) {
  const auto defaults = ParseOptions({"--kubeconfig", "/k"});
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->home, "");
  EXPECT_TRUE(defaults->cluster.leader_elect);
  EXPECT_EQ(defaults->cluster.metrics_bind_address, ":8080");
  EXPECT_EQ(defaults->cluster.health_probe_bind_address, ":8081");
  EXPECT_EQ(defaults->cluster.election.duration, absl::Seconds(15));

  const auto options = ParseOptions(
      {"--kubeconfig=/k", "--leader-elect=false", "--metrics-bind-address", "0", "--namespace=ml",
       "--health-probe-bind-address=[::1]:9", "--kube-api-qps=1000", "--kube-api-burst=2000",
       "--concurrent-reconciles", "4", "--image", "starling:1", "--leader-elect-retry-period=1s"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->cluster.leader_elect);
  EXPECT_EQ(options->cluster.metrics_bind_address, "0");
  EXPECT_EQ(options->cluster.ns, "ml");
  EXPECT_EQ(options->cluster.kube_api_qps, 1000);
  EXPECT_EQ(options->cluster.kube_api_burst, 2000);
  EXPECT_EQ(options->cluster.concurrent_reconciles, 4);
  EXPECT_EQ(options->cluster.image, "starling:1");
  EXPECT_EQ(options->cluster.election.retry, absl::Seconds(1));
}

TEST(ManagerOptions, AnAdministratorChoosesTheGangScheduler) {
  const auto defaults = ParseOptions({"--kubeconfig", "/k"});
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->cluster.scheduling.gang_scheduler, "auto");
  EXPECT_EQ(defaults->cluster.scheduling.gang_scheduler_name, "");
  for (const char* name : {"auto", "none", "coscheduling", "volcano", "native"}) {
    const auto options =
        ParseOptions({"--kubeconfig=/k", "--gang-scheduler", name, "--gang-scheduler-name=gangs"});
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->cluster.scheduling.gang_scheduler, name);
    EXPECT_EQ(options->cluster.scheduling.gang_scheduler_name, "gangs");
  }
}

TEST(ManagerOptions, EveryFlagIsInTheHelp) {
  for (const char* flag :
       {"--gang-scheduler", "--gang-scheduler-name", "--home", "--leader-elect", "--kube-api-qps",
        "--namespace", "--image", "--zap-log-level", "--health-probe-bind-address"}) {
    EXPECT_NE(Usage().find(flag), std::string::npos) << flag;
  }
}

TEST(HomeLock, SecondControllerIsRefusedWhileTheFirstLives) {
  const Folder folder;
  {
    const auto first = HomeLock::Take(folder.path());
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = HomeLock::Take(folder.path());
    EXPECT_TRUE(absl::IsAlreadyExists(second.status()));
    EXPECT_NE(std::string(second.status().message()).find(std::to_string(getpid())),
              std::string::npos);
  }
  EXPECT_TRUE(HomeLock::Take(folder.path()).ok());
}

TEST(Lease, EveryControllerGetsAHigherTransition) {
  const clock::FakeClock clock;
  const auto store = kube::OpenEmbeddedKubeClient(clock, {});
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(*TakeLease(**store, clock, {.identity = "a"}), 1);
  EXPECT_EQ(*TakeLease(**store, clock, {.identity = "b"}), 2);
  EXPECT_EQ(*TakeLease(**store, clock, {.identity = "a"}), 3);
}

Object Job(const std::string& condition, Json spec = Json::object()) {
  Json job = {{"metadata", {{"name", "digits"}}}, {"spec", {{"runPolicy", std::move(spec)}}}};
  job["status"]["completionTime"] = "2026-01-01T00:00:00Z";
  job["status"]["conditions"] = Json::array({{{"type", condition}, {"status", "True"}}});
  return std::make_shared<const Json>(std::move(job));
}

Object Pod(const std::string& phase) {
  return std::make_shared<const Json>(Json{{"status", {{"phase", phase}}}});
}

TEST(Idle, OnlyJobsAtRestAndPodsThatEndedAreIdle) {
  const absl::Time now = *kube::ParseTimestamp("2026-01-01T00:00:05Z");
  EXPECT_TRUE(IsIdle({}, {}, now));
  EXPECT_TRUE(IsIdle({Job("Succeeded")}, {Pod("Succeeded")}, now));
  EXPECT_TRUE(IsIdle({Job("Failed")}, {Pod("Failed")}, now));
  EXPECT_FALSE(IsIdle({Job("Running")}, {}, now));
  EXPECT_FALSE(IsIdle({Job("Succeeded")}, {Pod("Running")}, now));
  EXPECT_FALSE(IsIdle({Job("Succeeded")}, {Pod("Pending")}, now));
  EXPECT_TRUE(IsIdle({Job("Suspended", {{"suspend", true}})}, {}, now));
  EXPECT_FALSE(IsIdle({Job("Suspended", {{"suspend", false}})}, {}, now));
}

TEST(Idle, JobThatIsSoonDeletedIsWaitedFor) {
  const absl::Time now = *kube::ParseTimestamp("2026-01-01T00:00:05Z");
  const auto expires = [](int seconds) {
    return Job("Succeeded", {{"ttlSecondsAfterFinished", seconds}});
  };
  EXPECT_FALSE(IsIdle({expires(8)}, {}, now));
  EXPECT_TRUE(IsIdle({expires(3600)}, {}, now));
}

TEST(Controller, StartsOnAnEmptyHomeIsIdleAndLeavesNothingBehind) {
  const Folder folder;
  const clock::SystemClock clock;
  const auto lock = HomeLock::Take(folder.path());
  ASSERT_TRUE(lock.ok());
  Options options;
  options.home = folder.path();
  {
    const auto controller = Controller::Start(options, "/nowhere", clock);
    ASSERT_TRUE(controller.ok()) << controller.status();
    EXPECT_TRUE((*controller)->IsIdle());
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/controller.json"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/controller.json"));
}

TEST(Controller, StoreThatIsNoneIsAnErrorNotACrash) {
  const Folder folder;
  const clock::SystemClock clock;
  std::filesystem::create_directories(folder.path() + "/store.db");
  Options options;
  options.home = folder.path();
  EXPECT_FALSE(Controller::Start(options, "/nowhere", clock).ok());
}

}  // namespace
}  // namespace starling::manager
