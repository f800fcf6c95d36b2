// SPDX-License-Identifier: Apache-2.0
// A real API server judges the objects that are built here, in a namespace that enforces the Pod
// Security standard "restricted". Each is created in a dry run by kubectl. Skipped where there is
// no server; tests/kube/with_api_server.py starts one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/time/clock.h"
#include "controller/kube/message_json.h"
#include "controller/kube/messages.h"
#include "controller/resources/credentials.h"
#include "controller/resources/endpoints.h"
#include "controller/resources/resources.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {
namespace {

const JobIdentity kJob{
    .ns = "restricted", .name = "digits", .uid = "0a1b2c3d-0000-4000-8000-000000000000"};
const std::string kSeed(32, 's');
const Platform kCluster{.jobs_folder = "", .image = "starling:dev", .seed = kSeed};

struct Outcome {
  int code = 0;
  std::string output;
};

Outcome Execute(const std::string& command) {
  Outcome run;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {.code = -1, .output = "popen failed"};
  std::array<char, 4096> buffer;
  for (std::size_t got; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    run.output.append(buffer.data(), got);
  }
  run.code = pclose(pipe);
  return run;
}

class ApiServer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("STARLING_TEST_KUBE") == nullptr) {
      GTEST_SKIP() << "no API server; run it under tests/kube/with_api_server.py";
    }
    const Json ns = {{"apiVersion", "v1"},
                     {"kind", "Namespace"},
                     {"metadata",
                      {{"name", kJob.ns},
                       {"labels",
                        {{"pod-security.kubernetes.io/enforce", "restricted"},
                         {"pod-security.kubernetes.io/warn", "restricted"}}}}}};
    const Outcome made = Kubectl("apply", ns);
    ASSERT_EQ(made.code, 0) << made.output;
    // The controller that makes it does not run here, and pods must have one.
    const Json account = {{"apiVersion", "v1"},
                          {"kind", "ServiceAccount"},
                          {"metadata", {{"name", "default"}, {"namespace", kJob.ns}}}};
    ASSERT_EQ(Kubectl("apply", account).code, 0);
  }

  static Outcome Kubectl(const std::string& verb, const Json& object) {
    const std::string file = ::testing::TempDir() + "object." + std::to_string(getpid()) + ".json";
    std::ofstream(file) << object.dump();
    Outcome run = Execute("kubectl " + verb + " -f " + file);
    std::remove(file.c_str());
    return run;
  }
  // What the server says to a create of this object; empty: it would take it, with no word of
  // warning.
  static std::string Verdict(const Json& object) {
    const Outcome run = Kubectl("create --dry-run=server --validate=strict", object);
    const bool warned = run.output.find("Warning") != std::string::npos;
    return run.code == 0 && !warned ? "" : run.output;
  }
};

TEST_F(ApiServer, TakesPodsOfEveryRoleInARestrictedNamespace) {
  for (const Role role : kEveryRole) {
    const auto pod = BuildPod(kJob, {}, {.role = role}, kCluster);
    ASSERT_TRUE(pod.ok()) << pod.status();
    EXPECT_EQ(Verdict(*pod), "");
  }
}

TEST_F(ApiServer, TakesPodsWithAllThatMayBeAsked) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_replica_specs()->mutable_worker()->set_template_(R"({
      "metadata": {"labels": {"team": "vision"}},
      "spec": {"priorityClassName": "", "nodeSelector": {"disk": "fast"},
               "volumes": [{"name": "checkpoints",
                            "persistentVolumeClaim": {"claimName": "checkpoints"}}],
               "containers": [{"name": "trainer", "image": "mine:2",
                               "resources": {"limits": {"memory": "96Mi", "cpu": "1"}},
                               "startupProbe": {"exec": {"command": ["true"]}},
                               "volumeMounts": [{"name": "checkpoints",
                                                 "mountPath": "/checkpoints"}]}]}})");
  const auto pod = BuildPod(kJob, spec,
                            {.index = 7,
                             .config_generation = 3,
                             .avoid = {"node1", "node2"},
                             .memory = "144Mi",
                             .annotations = {{"starling.dev/avoid", "node1,node2"}}},
                            kCluster);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(Verdict(*pod), "");
}

TEST_F(ApiServer, TakesEverythingElseOfAJob) {
  const auto credentials = MakeJobCredentials(kSeed, kJob.uid, absl::Now(), Servers::kSome);
  ASSERT_TRUE(credentials.ok());
  const auto verdict = [](const kube::Message& object) {
    return Verdict(kube::ToJson(kube::KindOf(object), object));
  };
  EXPECT_EQ(verdict(BuildService(kJob)), "");
  for (const char* address : {"10.0.0.1", "fd00::1"}) {
    PodEndpoints endpoints;
    AddEndpoint(kJob, 3, {"digits-worker-3", "uid", "digits-worker-3", "node1", address},
                endpoints);
    const auto& [name, held] = *endpoints.begin();
    EXPECT_EQ(verdict(BuildSlice(kJob, name, held)), "");
  }
  EXPECT_EQ(verdict(BuildBudget(kJob, Role::kWorker)), "");
  EXPECT_EQ(verdict(BuildBudget(kJob, Role::kParameterServer)), "");
  EXPECT_EQ(verdict(BuildSecret(kJob, *credentials)), "");
  EXPECT_EQ(verdict(BuildConfig(kJob, 1, "{}", "{}")), "");
}

// That the checks above can fail.
TEST_F(ApiServer, RefusesWhatIsNotRestrictedAndWhatItDoesNotKnow) {
  Json pod = *BuildPod(kJob, {}, {}, kCluster);
  pod["spec"]["containers"][0]["securityContext"].erase("capabilities");
  EXPECT_NE(Verdict(pod).find("capabilities"), std::string::npos);
  pod = *BuildPod(kJob, {}, {}, kCluster);
  pod["spec"]["hostNetwrok"] = true;
  EXPECT_NE(Verdict(pod).find("hostNetwrok"), std::string::npos);
}

}  // namespace
}  // namespace starling::resources
