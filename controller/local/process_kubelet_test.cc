// SPDX-License-Identifier: Apache-2.0
#include "controller/local/process_kubelet.h"

#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "controller/testing/test_kubelet.h"
#include "gmock/gmock.h"

namespace starling::local {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ProcessKubeletTest, RunningPodHasAnAddressAPidAndIsReady) {
  Create(Pod("worker", kForever));

  const Json pod = Await("worker", "Running");

  EXPECT_THAT(kube::StringAt(pod, "/status/podIP"), StartsWith("127."));
  EXPECT_FALSE(kube::StringAt(pod, "/status/podIP").starts_with("127.0."));
  EXPECT_TRUE(kube::IsConditionTrue(pod, "Ready"));
  EXPECT_EQ(kube::StringAt(pod, "/spec/nodeName"), "local");
  EXPECT_TRUE(Runs(PidOf(pod)));
}

TEST_F(ProcessKubeletTest, PodsHaveDifferentAddresses) {
  Create(Pod("a", kForever));
  Create(Pod("b", kForever));

  EXPECT_NE(kube::StringAt(Await("a", "Running"), "/status/podIP"),
            kube::StringAt(Await("b", "Running"), "/status/podIP"));
}

TEST_F(ProcessKubeletTest, SuccessAndFailureReachTheStatus) {
  Create(Pod("good", "echo fine"));
  Create(Pod("bad", "echo 'went wrong' >&2; exit 3"));

  EXPECT_EQ(Terminated(Await("good", "Succeeded"))["exitCode"], 0);
  EXPECT_EQ(Log(Get("good")), "fine\n");
  const Json bad = Terminated(Await("bad", "Failed"));
  EXPECT_EQ(bad["exitCode"], 3);
  EXPECT_EQ(bad["message"], "went wrong\n");
  EXPECT_FALSE(bad.contains("signal"));
}

TEST_F(ProcessKubeletTest, KilledPodFailsWithItsSignalAndLeavesNoProcess) {
  Create(Pod("worker", "sleep 300 & echo $! > child.pid; wait"));
  const Json pod = Await("worker", "Running");
  const std::string file = PodFolder(home_, pod) + "/child.pid";
  ASSERT_TRUE(Eventually([&] { return ReadFile(file).value_or("").ends_with("\n"); }));
  const pid_t child = std::atoi(ReadFile(file)->c_str());

  ASSERT_EQ(kill(PidOf(pod), SIGKILL), 0);

  const Json terminated = Terminated(Await("worker", "Failed"));
  EXPECT_EQ(terminated["signal"], SIGKILL);
  EXPECT_EQ(terminated["exitCode"], 137);
  EXPECT_TRUE(Eventually([&] { return !Runs(child); }));
}

TEST_F(ProcessKubeletTest, DownwardApiAndVariablesAreResolved) {
  Json pod = Pod("worker", "echo $NAME $ADDRESS $ROLE $GREETING; echo \"$1\"");
  Json& container = pod["spec"]["containers"][0];
  pod["metadata"]["labels"] = {{"role", "chief"}};
  const auto field = [](const char* name, const char* path) -> Json {
    return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
  };
  container["env"] = Json::array({field("NAME", "metadata.name"),
                                  field("ADDRESS", "status.podIP"),
                                  field("ROLE", "metadata.labels['role']"),
                                  {{"name", "GREETING"}, {"value", "hello-$(NAME)"}}});
  container["args"] = {"sh", "at $(ADDRESS) $$(NAME) $(UNKNOWN)"};
  Create(pod);

  const Json ended = Await("worker", "Succeeded");
  const std::string ip = kube::StringAt(ended, "/status/podIP");
  EXPECT_EQ(Log(ended), "worker " + ip + " chief hello-worker\nat " + ip + " $(NAME) $(UNKNOWN)\n");
}

TEST_F(ProcessKubeletTest, SecretsAreFilesForUsAloneAndGoWithThePod) {
  Json secret = {{"apiVersion", "v1"},
                 {"kind", "Secret"},
                 {"metadata", {{"name", "keys"}, {"namespace", "default"}}},
                 {"data", {{"data-plane", "c2VzYW1l"}}}};
  ASSERT_TRUE(client_->Create(kube::kSecret, secret).ok());
  Json pod = Pod("worker", "cat /etc/keys/data-plane; stat -c %a /etc/keys/data-plane");
  Json& container = pod["spec"]["containers"][0];
  container["command"] = {"/bin/sh", "-c", "cat \"$1\"; stat -c ' %a' \"$1\"", "sh",
                          "/etc/keys/data-plane"};
  container["volumeMounts"] = Json::array({{{"name", "keys"}, {"mountPath", "/etc/keys"}}});
  pod["spec"]["volumes"] = Json::array({{{"name", "keys"}, {"secret", {{"secretName", "keys"}}}}});
  Create(pod);

  const Json ended = Await("worker", "Succeeded");
  EXPECT_EQ(Log(ended), "sesame 600\n");
  EXPECT_FALSE(std::filesystem::exists(PodFolder(home_, ended) + "/volumes"));
}

TEST_F(ProcessKubeletTest, PodWaitsForItsConfigMapAndThenRuns) {
  Json pod = Pod("worker", "true");
  pod["spec"]["containers"][0]["command"] = {"/bin/cat", "/etc/job/spec.json"};
  pod["spec"]["containers"][0]["volumeMounts"] =
      Json::array({{{"name", "spec"}, {"mountPath", "/etc/job"}}});
  pod["spec"]["volumes"] = Json::array({{{"name", "spec"}, {"configMap", {{"name", "frozen"}}}}});
  Create(pod);
  const auto reason = [&] {
    return kube::StringAt(Get("worker"), "/status/containerStatuses/0/state/waiting/reason");
  };
  ASSERT_TRUE(Eventually([&] { return reason() == "CreateContainerConfigError"; }));
  EXPECT_THAT(kube::StringAt(Get("worker"), "/status/containerStatuses/0/state/waiting/message"),
              HasSubstr("frozen"));

  ASSERT_TRUE(
      client_
          ->Create(kube::kConfigMap, {{"apiVersion", "v1"},
                                      {"kind", "ConfigMap"},
                                      {"metadata", {{"name", "frozen"}, {"namespace", "default"}}},
                                      {"data", {{"spec.json", "{}"}}}})
          .ok());

  EXPECT_EQ(Log(Await("worker", "Succeeded")), "{}");
}

TEST_F(ProcessKubeletTest, MissingProgramFailsThePodAndSaysSo) {
  Json pod = Pod("worker", "");
  pod["spec"]["containers"][0]["command"] = {"no-such-program"};
  Create(pod);

  const Json terminated = Terminated(Await("worker", "Failed"));
  EXPECT_EQ(terminated["reason"], "StartError");
  EXPECT_THAT(terminated["message"].get<std::string>(), HasSubstr("no-such-program"));
}

TEST_F(ProcessKubeletTest, PodsThatNeedIsolationAreRefused) {
  Json two = Pod("two", "true");
  two["spec"]["containers"].push_back(Container("true"));
  Create(two);
  Json claim = Pod("claim", "true");
  claim["spec"]["volumes"] = Json::array({{{"name", "v"}, {"persistentVolumeClaim", {}}}});
  Create(claim);

  EXPECT_THAT(Terminated(Await("two", "Failed"))["message"].get<std::string>(),
              HasSubstr("exactly one container"));
  EXPECT_THAT(Terminated(Await("claim", "Failed"))["message"].get<std::string>(),
              HasSubstr("volume v"));
}

TEST_F(ProcessKubeletTest, DeletionLetsThePodSaveItsWork) {
  Create(Pod("worker", "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.01; done"));
  const Json pod = Await("worker", "Running");
  ASSERT_TRUE(Eventually([&] { return Log(pod) == "up\n"; }));

  Delete("worker", 30);

  EXPECT_TRUE(Eventually([&] { return IsGone("worker"); }));
  EXPECT_FALSE(Runs(PidOf(pod)));
}

TEST_F(ProcessKubeletTest, PodThatIgnoresItsEndIsKilledAfterItsGrace) {
  Create(Pod("worker", "trap '' TERM; echo up; while :; do sleep 0.01; done"));
  const Json pod = Await("worker", "Running");
  ASSERT_TRUE(Eventually([&] { return Log(pod) == "up\n"; }));

  Delete("worker", 1);

  EXPECT_TRUE(Eventually([&] { return IsGone("worker"); }));
  EXPECT_FALSE(Runs(PidOf(pod)));
}

TEST_F(ProcessKubeletTest, PodThatVanishesFromTheStoreIsKilled) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");

  Delete("worker", 0);

  EXPECT_TRUE(Eventually([&] { return !Runs(PidOf(pod)); }));
}

TEST_F(ProcessKubeletTest, SuccessorAdoptsARunningPod) {
  Create(Pod("worker", kForever));
  const Json before = Await("worker", "Running");

  StopKubelet(StopMode::kLeavePods);
  EXPECT_TRUE(Runs(PidOf(before)));
  StartKubelet();
  AwaitRecovery();
  ASSERT_EQ(kill(PidOf(before), SIGTERM), 0);

  const Json after = Await("worker", "Failed");
  EXPECT_EQ(PidOf(after), PidOf(before));
  EXPECT_EQ(Terminated(after)["signal"], SIGTERM);
}

TEST_F(ProcessKubeletTest, AddressOfAnAdoptedPodIsNobodyElses) {
  Create(Pod("worker", kForever));
  const std::string ip = kube::StringAt(Await("worker", "Running"), "/status/podIP");
  StopKubelet(StopMode::kLeavePods);
  Create(Pod("new", kForever));  // which the successor sees before the one that runs
  StartKubelet();
  EXPECT_NE(kube::StringAt(Await("new", "Running"), "/status/podIP"), ip);
  EXPECT_EQ(kube::StringAt(Get("worker"), "/status/podIP"), ip);
}

TEST_F(ProcessKubeletTest, SuccessorReadsTheRecordOfAPodThatEndedMeanwhile) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  StopKubelet(StopMode::kLeavePods);
  std::ofstream(PodFolder(home_, pod) + "/exit.json")
      << R"({"exitCode": 5, "signal": 0, "reason": "Error", "message": "bad luck"})";
  ASSERT_EQ(kill(PidOf(pod), SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] { return !Runs(PidOf(pod)); }));

  StartKubelet();

  const Json terminated = Terminated(Await("worker", "Failed"));
  EXPECT_EQ(terminated["exitCode"], 5);
  EXPECT_EQ(terminated["message"], "bad luck");
}

TEST_F(ProcessKubeletTest, PodThatVanishedWithoutARecordCountsAsKilled) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  StopKubelet(StopMode::kLeavePods);
  ASSERT_EQ(kill(PidOf(pod), SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] { return !Runs(PidOf(pod)); }));

  StartKubelet();

  EXPECT_EQ(Terminated(Await("worker", "Failed"))["signal"], SIGKILL);
}

TEST_F(ProcessKubeletTest, PodOfWhichOnlyTheStoreKnowsCountsAsKilledToo) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  StopKubelet(StopMode::kLeavePods);
  KillPodProcesses(kube::UidOf(pod));
  std::filesystem::remove_all(PodFolder(home_, pod));

  StartKubelet();

  EXPECT_EQ(Terminated(Await("worker", "Failed"))["signal"], SIGKILL);
}

TEST_F(ProcessKubeletTest, PodsThatLeftTheStoreMeanwhileAreKilled) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  StopKubelet(StopMode::kLeavePods);
  Delete("worker", 0);
  EXPECT_TRUE(Runs(PidOf(pod)));

  StartKubelet();

  EXPECT_TRUE(Eventually([&] { return !Runs(PidOf(pod)); }));
}

TEST_F(ProcessKubeletTest, ProcessStartedJustBeforeItsKubeletDiedIsFound) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  StopKubelet(StopMode::kLeavePods);
  const std::string folder = PodFolder(home_, pod);
  auto state = ReadPodState(folder);
  ASSERT_TRUE(state.ok());
  state->process = {};  // as it is written before the start
  ASSERT_TRUE(WritePodState(folder, *state).ok());

  StartKubelet();
  AwaitRecovery();
  ASSERT_EQ(kill(PidOf(pod), SIGTERM), 0);

  EXPECT_EQ(Terminated(Await("worker", "Failed"))["signal"], SIGTERM);
}

TEST_F(ProcessKubeletTest, StoppingTheNodeEndsItsPodsAsNoFailureOfTheirs) {
  Create(Pod("worker", "trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done"));
  const Json pod = Await("worker", "Running");
  ASSERT_TRUE(Eventually([&] { return Log(pod) == "up\n"; }));

  StopKubelet(StopMode::kTerminatePods);

  const Json after = Get("worker");
  EXPECT_EQ(kube::StringAt(after, "/status/phase"), "Failed");
  EXPECT_EQ(kube::StringAt(after, "/status/reason"), "NodeShutdown");
  EXPECT_TRUE(kube::IsConditionTrue(after, "DisruptionTarget"));
  EXPECT_EQ(Terminated(after)["exitCode"], 0);
}

TEST_F(ProcessKubeletTest, JobsFifoIsHeldWhileTheJobIsThereAndItsFolderGoesWithIt) {
  const auto job = client_->Create(kube::kTrainingJob, Job("digits"));
  ASSERT_TRUE(job.ok());
  const std::string folder = JobFolder(home_, ReferenceTo(*job));
  struct stat info {};
  ASSERT_TRUE(Eventually([&] { return stat((folder + "/alive").c_str(), &info) == 0; }));
  EXPECT_TRUE(S_ISFIFO(info.st_mode));
  ASSERT_TRUE(Eventually([&] { return IsHeld(*job); }));
  Json pod = Pod("worker", "echo $STARLING_ALIVE_FIFO; exec sleep 300");
  pod["metadata"]["ownerReferences"] = Json::array({kube::ControllerReference(*job)});
  Create(pod);
  const Json running = Await("worker", "Running");
  const pid_t pid = PidOf(running);
  EXPECT_TRUE(Eventually([&] { return Log(running) == folder + "/alive\n"; })) << Log(running);

  ASSERT_TRUE(client_->Delete(kube::kTrainingJob, {.ns = "default", .name = "digits"}, {}).ok());
  Delete("worker", 30);

  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folder); }));
  EXPECT_FALSE(Runs(pid));
}

TEST_F(ProcessKubeletTest, JobThatIsSuspendedHoldsNothingUntilItIsResumed) {
  Json job = Job("digits");
  job["spec"]["runPolicy"]["suspend"] = true;
  const auto suspended = client_->Create(kube::kTrainingJob, job);
  ASSERT_TRUE(suspended.ok());
  ASSERT_TRUE(client_->Create(kube::kTrainingJob, Job("other")).ok());
  const auto alive = [&](const char* name) {
    const auto found = client_->Get(kube::kTrainingJob, {.ns = "default", .name = name});
    return std::filesystem::exists(JobFolder(home_, ReferenceTo(*found)) + "/alive");
  };
  ASSERT_TRUE(Eventually([&] { return alive("other"); }));  // which was heard of later
  EXPECT_FALSE(alive("digits"));

  const Json resume = {{"spec", {{"runPolicy", {{"suspend", false}}}}}};
  ASSERT_TRUE(client_->Patch(kube::kTrainingJob, {.ns = "default", .name = "digits"}, resume).ok());
  EXPECT_TRUE(Eventually([&] { return alive("digits"); }));
}

TEST_F(ProcessKubeletTest, LogOfADeletedPodStaysWhileItsJobIsThere) {
  const auto job = client_->Create(kube::kTrainingJob, Job("digits"));
  Json pod = Pod("worker", "echo something");
  pod["metadata"]["ownerReferences"] = Json::array({kube::ControllerReference(*job)});
  Create(pod);
  const Json ended = Await("worker", "Succeeded");

  Delete("worker", 0);

  const std::string folder = PodFolder(home_, ended);
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folder + "/state.json"); }));
  EXPECT_EQ(Log(ended), "something\n");
}

TEST_F(ProcessKubeletTest, FolderOfAJobThatLeftMeanwhileIsRemoved) {
  StopKubelet(StopMode::kLeavePods);
  const std::string folder = home_ + "/jobs/default/gone-01234567";
  ASSERT_TRUE(MakeFolder(folder + "/pods/worker-01234567").ok());

  StartKubelet();

  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folder); }));
}

TEST_F(ProcessKubeletTest, FoldersOfJobsThatAreGoneStayUntilTheyMayGo) {
  MayRemove(false);
  StopKubelet(StopMode::kLeavePods);
  const std::string leftover = home_ + "/jobs/default/gone-01234567";
  ASSERT_TRUE(MakeFolder(leftover + "/pods/worker-01234567").ok());
  StartKubelet();
  const auto job = client_->Create(kube::kTrainingJob, Job("digits"));
  ASSERT_TRUE(job.ok());
  const std::string folder = JobFolder(home_, ReferenceTo(*job));
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(folder); }));
  Json pod = Pod("worker", "echo something");
  pod["metadata"]["ownerReferences"] = Json::array({kube::ControllerReference(*job)});
  Create(pod);
  const Json ended = Await("worker", "Succeeded");
  ASSERT_TRUE(client_->Delete(kube::kTrainingJob, {.ns = "default", .name = "digits"}, {}).ok());
  Delete("worker", 0);
  EXPECT_TRUE(Eventually(
      [&] { return !std::filesystem::exists(PodFolder(home_, ended) + "/state.json"); }));

  const std::string digits = "default/digits-" + kube::UidOf(*job).substr(0, 8);
  EXPECT_TRUE(Eventually([&] {
    return Asked() == std::set<std::string>{digits, "default/gone-01234567"};
  }));
  EXPECT_TRUE(std::filesystem::exists(leftover));
  EXPECT_TRUE(std::filesystem::exists(folder));
  EXPECT_EQ(Log(ended), "something\n");

  MayRemove(true);
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(leftover); }));
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folder); }));
}

TEST_F(ProcessKubeletTest, StartsOnceItsInformersHaveSynced) {
  StopKubelet(StopMode::kLeavePods);
  MakeKubelet();
  EXPECT_EQ(kubelet_->Start().code(), absl::StatusCode::kFailedPrecondition);
  informers_.emplace_back([this] { pods_->Run(); });
  ASSERT_TRUE(Eventually([this] { return pods_->HasSynced(); }));
  EXPECT_EQ(kubelet_->Start().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ProcessKubeletTest, PodIsToldWhereItIsAndWhoItIs) {
  Create(Pod("worker",
             "echo $STARLING_HOME $STARLING_POD_UID $STARLING_EXIT_RECORD $STARLING_OOM_COUNTER "
             "${STARLING_ALIVE_FIFO:-none}; pwd -P"));
  const Json pod = Await("worker", "Succeeded");
  const std::string folder = PodFolder(home_, pod);
  EXPECT_EQ(Log(pod), home_ + " " + kube::UidOf(pod) + " " + folder + "/exit.json none none\n" +
                          std::filesystem::canonical(folder).string() + "\n");
  Json elsewhere = Pod("elsewhere", "pwd -P");
  elsewhere["spec"]["containers"][0]["workingDir"] = "/";
  Create(elsewhere);
  EXPECT_EQ(Log(Await("elsewhere", "Succeeded")), "/\n");
}

TEST_F(ProcessKubeletTest, PodsInheritLittleOfOurEnvironment) {
  ASSERT_EQ(setenv("STARLING_TEST_SECRET", "sesame", 1), 0);
  ASSERT_EQ(setenv("TZ", "UTC", 1), 0);
  const std::string path = getenv("PATH");
  const KubeletOptions options{
      .home = "/home/a", .program_folder = "/opt/starling/bin", .environment = {}};
  const std::vector<std::string> environment = PodEnvironment(options);
  EXPECT_THAT(environment, Contains("PATH=/opt/starling/bin:" + path));
  EXPECT_THAT(environment, Contains("STARLING_HOME=/home/a"));
  EXPECT_THAT(environment, Contains("TZ=UTC"));
  EXPECT_THAT(environment, Not(Contains(StartsWith("STARLING_TEST_SECRET"))));
  ASSERT_EQ(unsetenv("PATH"), 0);
  EXPECT_THAT(PodEnvironment(options),
              Contains("PATH=/opt/starling/bin:/usr/local/bin:/usr/bin:/bin"));
  ASSERT_EQ(setenv("PATH", path.c_str(), 1), 0);
}

TEST_F(ProcessKubeletTest, PodsOfOtherNodesAreNotOurs) {
  Json theirs = Pod("theirs", "true");
  theirs["spec"]["nodeName"] = "node-7";
  Create(theirs);
  Json ours = Pod("ours", "true");
  ours["spec"]["nodeName"] = "local";
  Create(ours);
  Await("ours", "Succeeded");
  AwaitRecovery();
  EXPECT_EQ(PidOf(Get("theirs")), 0);
  EXPECT_THAT(kube::StringAt(Get("theirs"), "/status/phase"), Not("Succeeded"));
}

TEST_F(ProcessKubeletTest, PodThatSomebodyElseEndedIsKilledAndStaysAsTheySaid) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  const auto evicted = client_->PatchStatus(
      kube::kPod, kube::KeyOf(pod), {{"status", {{"phase", "Failed"}, {"reason", "Evicted"}}}});
  ASSERT_TRUE(evicted.ok()) << evicted.status();
  EXPECT_TRUE(Eventually([&] { return !Runs(PidOf(pod)); }));
  AwaitRecovery();
  EXPECT_EQ(kube::StringAt(Get("worker"), "/status/reason"), "Evicted");
  EXPECT_TRUE(Terminated(Get("worker")).is_null());
}

TEST_F(ProcessKubeletTest, PodOfAUsedNameRunsAndItsPredecessorDoesNot) {
  Create(Pod("worker", kForever));
  const Json first = Await("worker", "Running");
  Delete("worker", 0);
  Create(Pod("worker", kForever));
  const Json second = Await("worker", "Running");
  EXPECT_NE(kube::UidOf(second), kube::UidOf(first));
  EXPECT_TRUE(Runs(PidOf(second)));
  EXPECT_TRUE(Eventually([&] { return !Runs(PidOf(first)); }));
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(PodFolder(home_, first)); }));
  EXPECT_TRUE(Runs(PidOf(second)));
}

TEST_F(ProcessKubeletTest, PodOfAJobThatIsGoneIsNotStarted) {
  Json job = CreateJob(Job("digits"));
  job["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000";  // of an earlier one
  CreateOf(job, Pod("worker", "true"));
  AwaitRecovery();
  EXPECT_EQ(PidOf(Get("worker")), 0);
  EXPECT_FALSE(std::filesystem::exists(JobFolder(home_, ReferenceTo(job))));
}

TEST_F(ProcessKubeletTest, WaitingPodIsToldOfOnce) {
  Json pod = Pod("worker", "true");
  pod["spec"]["containers"][0]["envFrom"] = Json::array({{{"secretRef", {{"name", "keys"}}}}});
  Create(pod);
  ASSERT_TRUE(Eventually([&] {
    return !kube::At(Get("worker"), "/status/containerStatuses/0/state/waiting").is_null();
  }));
  const std::string version = kube::ResourceVersionOf(Get("worker"));
  const std::int64_t writes = faulty_->writes();
  AwaitRecovery("sleep 0.1");  // in which it is tried again
  EXPECT_EQ(kube::ResourceVersionOf(Get("worker")), version);
  EXPECT_EQ(faulty_->writes(), writes + 3) << "the sentinel's place, its start and its end";
}

TEST_F(ProcessKubeletTest, StoppingTheNodeKillsPodsThatIgnoreIt) {
  Create(Pod("worker", "trap '' TERM; echo up; while :; do sleep 0.01; done"));
  const Json pod = Await("worker", "Running");
  ASSERT_TRUE(Eventually([&] { return Log(pod) == "up\n"; }));
  StopKubelet(StopMode::kTerminatePods);
  EXPECT_FALSE(Runs(PidOf(pod)));
  EXPECT_EQ(kube::StringAt(Get("worker"), "/status/reason"), "NodeShutdown");
  EXPECT_EQ(Terminated(Get("worker"))["signal"], SIGKILL);
}

TEST_F(ProcessKubeletTest, StatusesThatCouldNotBeWrittenAreWrittenLater) {
  for (const char* refused : {"patch", "patchStatus"}) {
    const std::string name = std::string("worker-") + (refused[5] == 0 ? "a" : "b");
    faulty_->FailWritesThat(
        [=](const kube::ResourceKind&, std::string_view verb) { return verb == refused; },
        kube::Fault::kRefuse);
    Create(Pod(name, "echo up; while [ ! -e go ]; do sleep 0.01; done; exit 3"));
    ASSERT_TRUE(Eventually([&] { return Log(Get(name)) == "up\n"; }));
    EXPECT_EQ(kube::StringAt(Get(name), "/status/podIP"), "");
    faulty_->Heal();
    EXPECT_NE(PidOf(Await(name, "Running")), 0) << "its pid is known before it counts as running";
    faulty_->FailWritesThat(
        [](const kube::ResourceKind&, std::string_view verb) { return verb == "patchStatus"; },
        kube::Fault::kRefuse);
    const std::string folder = PodFolder(home_, Get(name));
    std::ofstream(folder + "/go") << "x";
    ASSERT_TRUE(Eventually([&] { return !Runs(PidOf(Get(name))); }));
    faulty_->Heal();
    EXPECT_EQ(Terminated(Await(name, "Failed"))["exitCode"], 3);
  }
}

TEST_F(ProcessKubeletTest, DeletionThatCouldNotBeFinishedIsFinishedLater) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  faulty_->FailWritesThat(
      [](const kube::ResourceKind&, std::string_view verb) { return verb == "delete"; },
      kube::Fault::kRefuse);
  Delete("worker", 30);
  ASSERT_TRUE(Eventually([&] { return !Runs(PidOf(pod)); }));
  EXPECT_FALSE(IsGone("worker"));
  faulty_->Heal();
  EXPECT_TRUE(Eventually([&] { return IsGone("worker"); }));
}

TEST_F(ProcessKubeletTest, PodThatEndedForItsControllerWasGoneFailsAsIfItsNodeHad) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  StopKubelet(StopMode::kLeavePods);
  std::ofstream(PodFolder(home_, pod) + "/exit.json")
      << R"({"exitCode": 0, "reason": "Orphaned", "message": ""})";
  KillPodProcesses(kube::UidOf(pod));
  StartKubelet();
  EXPECT_EQ(kube::StringAt(Await("worker", "Failed"), "/status/reason"), "NodeShutdown");
}

TEST_F(ProcessKubeletTest, FifoOfAFinishedJobIsHeldAsLongAsItsPodsRun) {
  const Json job = CreateJob(Job("digits"));
  CreateOf(job, Pod("worker", kForever));
  Await("worker", "Running");
  Finish(job);
  AwaitRecovery();
  EXPECT_TRUE(IsHeld(job));
  StopKubelet(StopMode::kLeavePods);
  StartKubelet();
  Delete("sentinel", 0);
  ASSERT_TRUE(Eventually([&] { return IsGone("sentinel"); }));
  AwaitRecovery();
  EXPECT_TRUE(IsHeld(job)) << "by the successor too";
  Delete("worker", 30);
  EXPECT_TRUE(Eventually([&] { return !IsHeld(job); }));
}

TEST_F(ProcessKubeletTest, LogsGoWithTheirPodWhereNobodyWantsThem) {
  Json all = Job("all");
  all["spec"]["runPolicy"]["cleanPodPolicy"] = "All";
  all = CreateJob(all);
  const Json some = CreateJob(Job("some"));
  CreateOf(all, Pod("of-all", "echo up"));
  CreateOf(some, Pod("of-some", "echo up"));
  Create(Pod("of-none", "echo up"));
  std::vector<std::string> folders;
  for (const char* name : {"of-all", "of-some", "of-none"}) {
    folders.push_back(PodFolder(home_, Await(name, "Succeeded")));
  }
  Finish(all);
  Finish(some);
  ASSERT_TRUE(Eventually([&] { return !IsHeld(all) && !IsHeld(some); }));
  for (const char* name : {"of-all", "of-some", "of-none"}) Delete(name, 0);
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folders[0]); }));
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folders[1] + "/state.json"); }));
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folders[2]); }));
  EXPECT_EQ(ReadFile(folders[1] + "/log").value_or(""), "up\n");
}

TEST_F(ProcessKubeletTest, LogStaysWhileItsJobTrainsThoughItsPolicyIsAll) {
  Json job = Job("digits");
  job["spec"]["runPolicy"]["cleanPodPolicy"] = "All";
  job = CreateJob(job);
  CreateOf(job, Pod("worker", "echo up"));
  const std::string folder = PodFolder(home_, Await("worker", "Succeeded"));
  Delete("worker", 0);
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folder + "/state.json"); }));
  EXPECT_EQ(ReadFile(folder + "/log").value_or(""), "up\n");
}

TEST_F(ProcessKubeletTest, NothingIsRemovedWhileTheStoreDoesNotAnswer) {
  const Json stays = CreateJob(Job("stays"));
  const Json goes = CreateJob(Job("goes"));
  const std::string folder = JobFolder(home_, ReferenceTo(goes));
  ASSERT_TRUE(Eventually([&] { return IsHeld(stays) && IsHeld(goes); }));
  StopKubelet(StopMode::kLeavePods);
  BreakStore();
  StartKubelet();
  ASSERT_TRUE(Eventually([&] { return IsHeld(stays) && IsHeld(goes); }));
  ASSERT_TRUE(client_->Delete(kube::kTrainingJob, kube::KeyOf(goes), {}).ok());
  const Json later = CreateJob(Job("later"));  // which is heard of after that
  ASSERT_TRUE(Eventually([&] { return IsHeld(later); }));
  EXPECT_TRUE(IsHeld(stays));
  EXPECT_TRUE(std::filesystem::exists(folder));
  faulty_->Heal();
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folder); }));
  EXPECT_TRUE(IsHeld(stays));
  EXPECT_TRUE(Asked().contains("default/goes-" + kube::UidOf(goes).substr(0, 8)));
}

}  // namespace
}  // namespace starling::local
