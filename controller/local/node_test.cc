// SPDX-License-Identifier: Apache-2.0
#include "controller/local/node.h"

#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "controller/testing/test_kubelet.h"
#include "gmock/gmock.h"

namespace starling::local {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kIgnoring[] = "trap '' TERM; echo up; exec sleep 300";
constexpr absl::Duration kRetry = absl::Milliseconds(10);
constexpr absl::Duration kStopGrace = absl::Seconds(2);
constexpr absl::Duration kLastWrites = absl::Seconds(5);

// Whose container needs a Secret that is not there.
Json WaitingPod(const std::string& name) {
  Json pod = Pod(name, kForever);
  pod["spec"]["containers"][0]["envFrom"] = Json::array({{{"secretRef", {{"name", "keys"}}}}});
  return pod;
}

Json Secret(const std::string& name) {
  return {{"apiVersion", "v1"},
          {"kind", "Secret"},
          {"metadata", {{"name", name}, {"namespace", "default"}}},
          {"data", {{"key", "c2VzYW1l"}}}};
}

std::ptrdiff_t Descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

class NodeTest : public ProcessKubeletTest {
 protected:
  static kube::ObjectKey KeyOf(const std::string& name) { return {.ns = "default", .name = name}; }
  static std::string WaitingOf(const Json& pod) {
    return kube::StringAt(pod, "/status/containerStatuses/0/state/waiting/message");
  }
  Json AwaitWaiting(const std::string& name) {
    EXPECT_TRUE(Eventually([&] { return !WaitingOf(Get(name)).empty(); })) << Get(name).dump(2);
    return Get(name);
  }
  // The pod once its script has written its first line.
  Json AwaitUp(const std::string& name) {
    EXPECT_TRUE(Eventually([&] { return Log(Get(name)) == "up\n"; }));
    return Get(name);
  }
  void AwaitGone(const std::string& name) {
    EXPECT_TRUE(Eventually([&] { return IsGone(name); }));
  }

  // Bound to this node, but not started: its job is not there. Only the node finishes its deletion.
  void CreateIdle(const std::string& name) {
    Json gone = Job("gone");
    gone["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000";
    Json pod = Pod(name, "true");
    pod["spec"]["nodeName"] = "local";
    CreateOf(gone, pod);
  }
  // Until the node has looked twice at what there is, after all that the store has told of pods.
  void PodTurns() {
    for (int i = 0; i < 2; ++i) {
      const std::string name = "turn-" + std::to_string(++turns_);
      CreateIdle(name);
      Delete(name, 30);
      AwaitGone(name);
    }
  }
  // The same, of jobs: it writes nothing, and needs no copy of the pods.
  void JobTurns() {
    for (int i = 0; i < 2; ++i) {
      const Json job = CreateJob(Job("turn-" + std::to_string(++turns_)));
      EXPECT_TRUE(Eventually([&] { return IsHeld(job); }));
    }
  }

  // From now on: refuses the first `refused` writes of that verb, and notes all that there are.
  void NoteWrites(const std::string& verb = "", int refused = 0) {
    faulty_->FailWritesThat(
        [this, verb, left = refused](const kube::ResourceKind&, std::string_view done) mutable {
          sync::MutexLock lock(mutex_);
          noted_.emplace_back(done);
          return done == verb && left-- > 0;
        },
        kube::Fault::kRefuse);
  }
  std::vector<std::string> Noted() {
    sync::MutexLock lock(mutex_);
    return noted_;
  }
  // Creates a pod that waits for a Secret, and holds the node at reading it until ReleaseNode().
  void HoldNode(const std::string& pod) {
    faulty_->AskBeforeReads([this](const kube::ResourceKind& kind) {
      if (kind.kind != "Secret") return absl::OkStatus();
      held_ = true;
      Eventually([this] { return released_.load(); });
      return absl::OkStatus();
    });
    Create(WaitingPod(pod));
    ASSERT_TRUE(Eventually([this] { return held_.load(); }));
  }
  void ReleaseNode() { released_ = true; }

 private:
  int turns_ = 0;
  std::atomic<bool> held_ = false;
  std::atomic<bool> released_ = false;
  std::vector<std::string> noted_ ABSL_GUARDED_BY(mutex_);
};

// Stands still until it is told to move, and counts how often it is read.
class CountedClock final : public clock::Clock {
 public:
  absl::Time Now() const override {
    ++reads_;
    return clock_.Now();
  }
  absl::Time WallNow() const override { return clock_.WallNow(); }
  void Advance(absl::Duration by) { clock_.Advance(by); }
  int reads() const { return reads_; }

 private:
  clock::FakeClock clock_;
  mutable std::atomic<int> reads_ = 0;
};

// A kubelet for which only the test lets time pass.
class NodeClockTest : public NodeTest {
 protected:
  void TearDown() override {
    StopKubelet(StopMode::kLeavePods);
    NodeTest::TearDown();
  }
  const clock::Clock& KubeletClock() const override { return time_; }

  // The clock is read at most a few times for each of the few events that these turns are.
  void ExpectThatItRests() {
    const int before = time_.reads();
    PodTurns();
    PodTurns();
    EXPECT_LT(time_.reads() - before, 300);
  }

  // Stops the node while `then` happens, which is to make it stop.
  void StopWhile(const std::function<void()>& then) {
    std::atomic<bool> stopped = false;
    std::thread stopper([&] {
      kubelet_->Stop(StopMode::kTerminatePods);
      stopped = true;
    });
    then();
    const bool in_time = Eventually([&] { return stopped.load(); });
    EXPECT_TRUE(in_time);
    if (!in_time) {
      faulty_->Heal();
      KillStrays(home_, {});
      time_.Advance(absl::Hours(1));
      Nudge();
    }
    stopper.join();
  }
  // Somebody else ends the pod, and so does the node its process.
  void Evict(const Json& pod) {
    const Json status = {{"phase", "Failed"}, {"reason", "Evicted"}};
    ASSERT_TRUE(client_->PatchStatus(kube::kPod, kube::KeyOf(pod), {{"status", status}}).ok());
    ASSERT_TRUE(Eventually([&] { return !Runs(PidOf(pod)); }));
  }
  // The node looks at what is due now.
  void Nudge() { CreateIdle("nudge-" + std::to_string(++nudges_)); }

  CountedClock time_;

 private:
  int nudges_ = 0;
};

TEST_F(NodeTest, DestroyedKubeletLeavesItsPods) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  pods_->Stop();
  jobs_->Stop();
  for (std::thread& thread : informers_) thread.join();
  informers_.clear();

  kubelet_.reset();

  EXPECT_TRUE(Runs(PidOf(pod)));
}

TEST_F(NodeTest, DestroyedKubeletKeepsNoDescriptor) {
  StopKubelet(StopMode::kLeavePods);
  const auto before = Descriptors();
  StartKubelet();
  Create(Pod("worker", "true"));
  Await("worker", "Succeeded");
  StopKubelet(StopMode::kLeavePods);
  EXPECT_EQ(Descriptors(), before);
}

TEST_F(NodeTest, DoesNotStartBeforeItsPodsHaveSynced) {
  StopKubelet(StopMode::kLeavePods);
  MakeKubelet();
  informers_.emplace_back([this] { jobs_->Run(); });
  ASSERT_TRUE(Eventually([this] { return jobs_->HasSynced(); }));
  EXPECT_TRUE(absl::IsFailedPrecondition(kubelet_->Start()));
}

TEST_F(NodeTest, DoesNotStartWhereItsHomeCannotBeMade) {
  StopKubelet(StopMode::kLeavePods);
  std::ofstream(home_ + "/file") << "x";
  adjust_ = [this](KubeletOptions& options) { options.home = home_ + "/file/home"; };
  MakeKubelet();
  informers_.emplace_back([this] { pods_->Run(); });
  informers_.emplace_back([this] { jobs_->Run(); });
  ASSERT_TRUE(Eventually([this] { return pods_->HasSynced() && jobs_->HasSynced(); }));
  const absl::Status started = kubelet_->Start();
  EXPECT_FALSE(started.ok());
  EXPECT_THAT(std::string(started.message()), HasSubstr(home_ + "/file/home"));
}

TEST_F(NodeTest, FolderOfAPodThatVanishesFromTheStoreGoesOnceItHasEnded) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  Delete("worker", 0);
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(PodFolder(home_, pod)); }));
  EXPECT_FALSE(Runs(PidOf(pod)));
}

TEST_F(NodeTest, StoppingRightAfterTheStartEndsWhatAPredecessorLeft) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  StopKubelet(StopMode::kLeavePods);
  StartKubelet();
  StopKubelet(StopMode::kTerminatePods);
  EXPECT_FALSE(Runs(PidOf(pod)));
  EXPECT_EQ(kube::StringAt(Get("worker"), "/status/reason"), "NodeShutdown");
}

TEST_F(NodeTest, StopsOnceAllPodsHaveEndedAndTheStoreKnows) {
  Create(Pod("a", kForever));
  Create(Pod("b", kForever));
  Json stays = Await("a", "Running");
  Json ends = Await("b", "Running");
  // The node looks at them by their UIDs.
  if (kube::UidOf(ends) < kube::UidOf(stays)) std::swap(stays, ends);
  ASSERT_EQ(kill(PidOf(ends), SIGKILL), 0);
  Await(kube::NameOf(ends), "Failed");
  NoteWrites("patchStatus", 2);

  StopKubelet(StopMode::kTerminatePods);

  const Json after = Get(kube::NameOf(stays));
  EXPECT_FALSE(Runs(PidOf(stays)));
  EXPECT_EQ(kube::StringAt(after, "/status/phase"), "Failed");
  EXPECT_EQ(kube::StringAt(after, "/status/reason"), "NodeShutdown");
}

TEST_F(NodeTest, PodThatSomebodyEndedWhileNoKubeletRanIsKilledByTheNext) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  StopKubelet(StopMode::kLeavePods);
  ASSERT_TRUE(
      client_->PatchStatus(kube::kPod, kube::KeyOf(pod), {{"status", {{"phase", "Failed"}}}}).ok());
  StartKubelet();
  EXPECT_TRUE(Eventually([&] { return !Runs(PidOf(pod)); }));
}

TEST_F(NodeTest, SuccessorKillsWhatIsLeftOfAPodWhoseFirstProcessHasEnded) {
  Create(Pod("worker", "sleep 300 & echo $! > child.pid; echo up; wait"));
  AwaitUp("worker");
  const Json pod = Await("worker", "Running");
  const pid_t child = std::atoi(ReadFile(PodFolder(home_, pod) + "/child.pid")->c_str());
  StopKubelet(StopMode::kLeavePods);
  ASSERT_EQ(kill(PidOf(pod), SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] { return !Runs(PidOf(pod)); }));
  ASSERT_TRUE(Runs(child));
  StartKubelet();
  Await("worker", "Failed");
  EXPECT_FALSE(Runs(child));
}

TEST_F(NodeTest, PodWhoseStartTheStoreNeverHeardOfIsAdopted) {
  faulty_->FailWritesThat([](const kube::ResourceKind&, std::string_view) { return true; },
                          kube::Fault::kRefuse);
  Create(Pod("worker", "echo up; exec sleep 300"));
  const std::string folder = PodFolder(home_, AwaitUp("worker"));
  StopKubelet(StopMode::kLeavePods);
  const auto state = ReadPodState(folder);
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(kube::StringAt(Get("worker"), "/status/phase"), "Pending");
  faulty_->Heal();
  StartKubelet();
  EXPECT_EQ(PidOf(Await("worker", "Running")), state->process.pid);
}

TEST_F(NodeTest, PodThatWasAboutToStartStartsAtItsAddress) {
  StopKubelet(StopMode::kLeavePods);
  Create(Pod("worker", kForever));
  PodState state;
  state.uid = kube::UidOf(Get("worker"));
  state.ip = "127.77.3.9";
  const std::string folder = PodFolder(home_, Get("worker"));
  ASSERT_TRUE(MakeFolder(folder).ok());
  ASSERT_TRUE(WritePodState(folder, state).ok());
  StartKubelet();
  EXPECT_EQ(kube::StringAt(Await("worker", "Running"), "/status/podIP"), "127.77.3.9");
}

TEST_F(NodeTest, PodThatCannotBeWrittenDownWaits) {
  Create(WaitingPod("worker"));
  const Json pod = AwaitWaiting("worker");
  const std::string in_its_place = PodFolder(home_, pod) + "/state.json";
  ASSERT_TRUE(MakeFolder(in_its_place).ok());
  ASSERT_TRUE(client_->Create(kube::kSecret, Secret("keys")).ok());
  ASSERT_TRUE(Eventually([&] {
    return WaitingOf(Get("worker")).find("state.json") != std::string::npos;
  })) << Get("worker").dump(2);
  RemoveFolder(in_its_place);
  Await("worker", "Running");
}

TEST_F(NodeTest, PodThatNeverStartedIsGoneOnceItIsDeleted) {
  Json pod = WaitingPod("worker");
  pod["spec"]["nodeName"] = "local";
  Create(pod);
  AwaitWaiting("worker");
  Delete("worker", 30);
  AwaitGone("worker");
}

TEST_F(NodeTest, PodOfAnotherNodeLeavesNothingHere) {
  Json theirs = Pod("theirs", "true");
  theirs["spec"]["nodeName"] = "node-7";
  Create(theirs);
  PodTurns();
  EXPECT_FALSE(std::filesystem::exists(PodFolder(home_, Get("theirs"))));
}

TEST_F(NodeTest, PodIsNotGoneBeforeItsLastStatusIsWritten) {
  Create(Pod("worker", kForever));
  Await("worker", "Running");
  NoteWrites("patchStatus", 2);
  Delete("worker", 30);
  AwaitGone("worker");
  std::vector<std::string> first = Noted();
  ASSERT_GE(first.size(), 4U);
  first.resize(4);
  EXPECT_THAT(first, ElementsAre("patchStatus", "patchStatus", "patchStatus", "delete"));
}

TEST_F(NodeTest, PodThatSomebodyElseEndedIsNotGoneBeforeItsProcessHasEnded) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  const std::string volumes = PodFolder(home_, pod) + "/volumes";  // go once it has ended
  ASSERT_TRUE(MakeFolder(volumes).ok());
  std::atomic<bool> early = false;
  faulty_->FailWritesThat(
      [&](const kube::ResourceKind&, std::string_view verb) {
        if (verb == "delete" && std::filesystem::exists(volumes)) early = true;
        return false;
      },
      kube::Fault::kRefuse);
  HoldNode("busy");  // while all this happens:
  Delete("worker", 30);
  ASSERT_TRUE(
      client_->PatchStatus(kube::kPod, kube::KeyOf(pod), {{"status", {{"phase", "Failed"}}}}).ok());
  EXPECT_TRUE(Eventually(
      [&] { return kube::StringAt(*pods_->Get(KeyOf("worker")), "/status/phase") == "Failed"; }));
  ReleaseNode();
  AwaitGone("worker");
  EXPECT_FALSE(early);
  StopKubelet(StopMode::kTerminatePods);
}

TEST_F(NodeTest, VolumesOfAPodThatNeverRanGoWithItThoughItsJobStays) {
  ASSERT_TRUE(client_->Create(kube::kSecret, Secret("there")).ok());
  Json pod = WaitingPod("worker");
  pod["spec"]["containers"][0]["volumeMounts"] =
      Json::array({{{"name", "v"}, {"mountPath", "/etc/keys"}}});
  pod["spec"]["volumes"] = Json::array({{{"name", "v"}, {"secret", {{"secretName", "there"}}}}});
  CreateOf(CreateJob(Job("digits")), pod);
  const std::string folder = PodFolder(home_, AwaitWaiting("worker"));
  ASSERT_TRUE(std::filesystem::exists(folder + "/volumes"));
  Delete("worker", 0);
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folder + "/volumes"); }));
}

TEST_F(NodeTest, PodsSpecDoesNotMoveItsHome) {
  Json pod = Pod("worker", "echo $STARLING_HOME");
  pod["spec"]["containers"][0]["env"] =
      Json::array({{{"name", "STARLING_HOME"}, {"value", "/elsewhere"}}});
  Create(pod);
  EXPECT_EQ(Log(Await("worker", "Succeeded")), home_ + "\n");
}

TEST_F(NodeTest, PodOfNoJobMakesNoJobsFolder) {
  AwaitRecovery();
  EXPECT_FALSE(std::filesystem::exists(home_ + "/jobs"));
}

TEST_F(NodeTest, PodOfAKnownJobIsStartedWithoutAskingForTheJob) {
  const Json job = CreateJob(Job("digits"));
  ASSERT_TRUE(Eventually([&] { return IsHeld(job); }));
  std::atomic<int> asked = 0;
  faulty_->AskBeforeReads([&](const kube::ResourceKind& kind) {
    if (kind.kind == "TrainingJob") ++asked;
    return absl::OkStatus();
  });
  CreateOf(job, Pod("worker", "true"));
  Await("worker", "Succeeded");
  EXPECT_EQ(asked, 0);
  StopKubelet(StopMode::kTerminatePods);
}

TEST_F(NodeTest, PodThatIsHeardOfBeforeItsJobHoldsItsFifoAndLeavesNoFolder) {
  jobs_->Stop();
  const Json job = CreateJob(Job("digits"));
  CreateOf(job, Pod("worker", kForever));
  Await("worker", "Running");
  EXPECT_TRUE(IsHeld(job));
  ASSERT_TRUE(client_->Delete(kube::kTrainingJob, kube::KeyOf(job), {}).ok());
  Delete("worker", 30);
  const std::string folder = JobFolder(home_, ReferenceTo(job));
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folder); }));
}

TEST_F(NodeTest, FifoOfAJobThatFailedIsReleased) {
  const Json job = CreateJob(Job("digits"));
  ASSERT_TRUE(Eventually([&] { return IsHeld(job); }));
  Finish(job, "Failed");
  EXPECT_TRUE(Eventually([&] { return !IsHeld(job); }));
}

TEST_F(NodeTest, FifoOfAFinishedJobIsReleasedThoughAnothersPodsRun) {
  const Json job = CreateJob(Job("digits"));
  const Json other = CreateJob(Job("other"));
  CreateOf(other, Pod("worker", kForever));
  Await("worker", "Running");
  ASSERT_TRUE(Eventually([&] { return IsHeld(job); }));
  Finish(job);
  EXPECT_TRUE(Eventually([&] { return !IsHeld(job); }));
  EXPECT_TRUE(IsHeld(other));
}

TEST_F(NodeTest, FoldersOfAUsedNameGoEachWithItsJob) {
  MayRemove(false);
  const Json first = CreateJob(Job("digits"));
  ASSERT_TRUE(Eventually([&] { return IsHeld(first); }));
  ASSERT_TRUE(client_->Delete(kube::kTrainingJob, kube::KeyOf(first), {}).ok());
  const Json second = CreateJob(Job("digits"));
  ASSERT_TRUE(Eventually([&] { return IsHeld(second); }));
  const std::string folder = JobFolder(home_, ReferenceTo(first));
  ASSERT_TRUE(std::filesystem::exists(folder));

  MayRemove(true);
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folder); }));
  EXPECT_TRUE(IsHeld(second));
  ASSERT_TRUE(client_->Delete(kube::kTrainingJob, kube::KeyOf(second), {}).ok());
  EXPECT_TRUE(
      Eventually([&] { return !std::filesystem::exists(JobFolder(home_, ReferenceTo(second))); }));
}

TEST_F(NodeTest, FolderThatIsGoneIsAskedAboutNoMore) {
  std::atomic<int> asked = 0;
  StopKubelet(StopMode::kLeavePods);
  adjust_ = [&](KubeletOptions& options) {
    options.may_remove = [&](const JobReference&) { return ++asked > 0; };
  };
  StartKubelet();
  const Json first = CreateJob(Job("digits"));
  ASSERT_TRUE(Eventually([&] { return IsHeld(first); }));
  ASSERT_TRUE(client_->Delete(kube::kTrainingJob, kube::KeyOf(first), {}).ok());
  const std::string folder = JobFolder(home_, ReferenceTo(first));
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folder); }));
  EXPECT_EQ(asked, 1);
  CreateJob(Job("digits"));  // of which all that is known of that name is looked at
  JobTurns();
  EXPECT_EQ(asked, 1);
  StopKubelet(StopMode::kLeavePods);
}

TEST_F(NodeTest, LeftoverThatIsGoneIsAskedAboutNoMoreWhileAnotherWaits) {
  std::atomic<int> goes = 0;
  std::atomic<int> stays = 0;
  StopKubelet(StopMode::kLeavePods);
  adjust_ = [&](KubeletOptions& options) {
    options.may_remove = [&](const JobReference& job) {
      ++(job.name == "goes" ? goes : stays);
      return job.name == "goes";
    };
  };
  ASSERT_TRUE(MakeFolder(home_ + "/jobs/default/goes-01234567").ok());
  ASSERT_TRUE(MakeFolder(home_ + "/jobs/default/stays-01234567").ok());
  StartKubelet();
  EXPECT_TRUE(Eventually([&] { return stays >= 3; }));
  EXPECT_EQ(goes, 1);
  EXPECT_FALSE(std::filesystem::exists(home_ + "/jobs/default/goes-01234567"));
  EXPECT_TRUE(std::filesystem::exists(home_ + "/jobs/default/stays-01234567"));
  StopKubelet(StopMode::kLeavePods);
}

TEST_F(NodeTest, FolderOfNoJobIsRemovedUnasked) {
  MayRemove(false);
  StopKubelet(StopMode::kLeavePods);
  ASSERT_TRUE(MakeFolder(home_ + "/jobs/default/odd").ok());
  StartKubelet();
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(home_ + "/jobs/default/odd"); }));
  EXPECT_TRUE(Asked().empty());
}

TEST_F(NodeTest, WhereNobodyIsAskedFoldersGoWithTheirJobsAndPods) {
  StopKubelet(StopMode::kLeavePods);
  adjust_ = [](KubeletOptions& options) { options.may_remove = nullptr; };
  StartKubelet();
  const Json first = CreateJob(Job("digits"));
  CreateOf(first, Pod("ended", "echo up"));
  CreateOf(first, Pod("runs", kForever));  // so that the job's folder stays
  const Json ended = Await("ended", "Succeeded");
  Await("runs", "Running");
  ASSERT_TRUE(client_->Delete(kube::kTrainingJob, kube::KeyOf(first), {}).ok());
  const Json second = CreateJob(Job("digits"));
  ASSERT_TRUE(Eventually([&] { return IsHeld(second); }));
  Delete("ended", 0);
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(PodFolder(home_, ended)); }));
  EXPECT_TRUE(std::filesystem::exists(JobFolder(home_, ReferenceTo(first))));
  Delete("runs", 30);
  EXPECT_TRUE(
      Eventually([&] { return !std::filesystem::exists(JobFolder(home_, ReferenceTo(first))); }));
}

TEST_F(NodeTest, LogOfAJobThatIsGoneIsNotJudgedByTheNextOfItsName) {
  MayRemove(false);
  const Json first = CreateJob(Job("digits"));
  CreateOf(first, Pod("worker", "echo up"));
  const Json pod = Await("worker", "Succeeded");
  ASSERT_TRUE(client_->Delete(kube::kTrainingJob, kube::KeyOf(first), {}).ok());
  Json all = Job("digits");
  all["spec"]["runPolicy"]["cleanPodPolicy"] = "All";
  const Json second = CreateJob(all);
  ASSERT_TRUE(Eventually([&] { return IsHeld(second); }));
  Finish(second);
  ASSERT_TRUE(Eventually([&] { return !IsHeld(second); }));
  Delete("worker", 0);
  const std::string folder = PodFolder(home_, pod);
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folder + "/state.json"); }));
  PodTurns();
  EXPECT_EQ(Log(pod), "up\n");
}

TEST_F(NodeTest, LogThatWasKeptStaysThoughThePodsNameIsUsedAgain) {
  Json job = Job("digits");
  job["spec"]["runPolicy"]["cleanPodPolicy"] = "All";
  job = CreateJob(job);
  CreateOf(job, Pod("worker", "echo up"));
  const Json first = Await("worker", "Succeeded");
  Delete("worker", 0);
  CreateOf(job, Pod("worker", "echo up"));
  const Json second = Await("worker", "Succeeded");
  Finish(job);
  ASSERT_TRUE(Eventually([&] { return !IsHeld(job); }));
  Delete("worker", 0);
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(PodFolder(home_, second)); }));
  EXPECT_EQ(Log(first), "up\n");
}

// What a pod needs cannot be read now.
class NodeReadTest : public NodeTest, public ::testing::WithParamInterface<absl::StatusCode> {};

TEST_P(NodeReadTest, PodWaitsUntilWhatItNeedsCanBeRead) {
  ASSERT_TRUE(client_->Create(kube::kSecret, Secret("keys")).ok());
  faulty_->AskBeforeReads([](const kube::ResourceKind& kind) {
    return kind.kind == "Secret" ? absl::Status(GetParam(), "not now") : absl::OkStatus();
  });
  Create(WaitingPod("worker"));
  EXPECT_THAT(WaitingOf(AwaitWaiting("worker")), HasSubstr("not now"));
  faulty_->Heal();
  Await("worker", "Running");
}

INSTANTIATE_TEST_SUITE_P(Codes, NodeReadTest,
                         ::testing::Values(absl::StatusCode::kNotFound,
                                           absl::StatusCode::kUnavailable,
                                           absl::StatusCode::kAborted,
                                           absl::StatusCode::kResourceExhausted));

TEST_F(NodeTest, PodThatMayNotReadWhatItNeedsFails) {
  faulty_->AskBeforeReads([](const kube::ResourceKind& kind) {
    return kind.kind == "Secret" ? absl::PermissionDeniedError("never") : absl::OkStatus();
  });
  Create(WaitingPod("worker"));
  EXPECT_EQ(Terminated(Await("worker", "Failed"))["reason"], "StartError");
}

TEST_F(NodeClockTest, PodThatCannotStartHasEndedWhenItWasTried) {
  PodTurns();  // from now on the node looks at a pod only when it is told of it
  Json pod = Pod("worker", "");
  pod["spec"]["containers"][0]["command"] = {"no-such-program"};
  Create(pod);
  const Json terminated = Terminated(Await("worker", "Failed"));
  EXPECT_EQ(terminated["startedAt"], kube::FormatTimestamp(time_.WallNow()));
  EXPECT_EQ(terminated["finishedAt"], kube::FormatMicroTimestamp(time_.WallNow()));
}

TEST_F(NodeClockTest, GraceOfADeletionBeginsOnceAndEndsToTheInstant) {
  Create(Pod("worker", kIgnoring));
  AwaitUp("worker");
  const Json pod = Await("worker", "Running");
  Delete("worker", 5);
  PodTurns();
  time_.Advance(absl::Seconds(3));
  ASSERT_TRUE(
      client_->Patch(kube::kPod, KeyOf("worker"), {{"metadata", {{"labels", {{"a", "b"}}}}}}).ok());
  PodTurns();
  time_.Advance(absl::Seconds(2) - absl::Nanoseconds(1));
  PodTurns();
  EXPECT_TRUE(Runs(PidOf(pod)));

  time_.Advance(absl::Nanoseconds(1));

  PodTurns();
  AwaitGone("worker");
  EXPECT_FALSE(Runs(PidOf(pod)));
}

TEST_F(NodeClockTest, WaitingPodSaysSoAtOnceAndIsTriedAgainAfterAWhile) {
  Create(WaitingPod("worker"));
  AwaitWaiting("worker");
  PodTurns();
  ASSERT_TRUE(client_->Create(kube::kSecret, Secret("keys")).ok());
  time_.Advance(kRetry - absl::Nanoseconds(1));
  PodTurns();
  EXPECT_EQ(kube::StringAt(Get("worker"), "/status/phase"), "Pending");

  time_.Advance(absl::Nanoseconds(1));

  PodTurns();
  Await("worker", "Running");
  ExpectThatItRests();
}

TEST_F(NodeClockTest, PodThatABusyMachineCannotStartWaits) {
  Create(WaitingPod("worker"));
  AwaitWaiting("worker");
  PodTurns();  // nobody opens anything while its limit is set
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(lowest);
  // One file at a time may be open: the log is, and a process needs more.
  const rlimit one_more{.rlim_cur = static_cast<rlim_t>(lowest) + 1, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one_more), 0);
  EXPECT_TRUE(client_->Create(kube::kSecret, Secret("keys")).ok());
  time_.Advance(kRetry);
  const auto why = [&] { return WaitingOf(Get("worker")); };
  const bool waits =
      Eventually([&] { return why().find("Too many open files") != std::string::npos; });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(waits) << Get("worker").dump(2);
  EXPECT_THAT(why(), Not(HasSubstr(home_))) << "its own files could be written";
  time_.Advance(kRetry);
  Await("worker", "Running");
}

TEST_F(NodeClockTest, FolderThatMayNotGoIsAskedAboutAgainAfterAWhile) {
  MayRemove(false);
  StopKubelet(StopMode::kLeavePods);
  const std::string leftover = home_ + "/jobs/default/gone-01234567";
  ASSERT_TRUE(MakeFolder(leftover).ok());
  StartKubelet();
  PodTurns();
  MayRemove(true);
  time_.Advance(kRetry - absl::Nanoseconds(1));
  PodTurns();
  EXPECT_TRUE(std::filesystem::exists(leftover));

  time_.Advance(absl::Nanoseconds(1));

  PodTurns();
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(leftover); }));
  ExpectThatItRests();
}

TEST_F(NodeClockTest, PodThatHasEndedIsWaitedForNoMore) {
  Json pod = Pod("worker", kForever);
  pod["metadata"]["finalizers"] = {"example.com/look"};  // stays though it is deleted
  Create(pod);
  Await("worker", "Running");
  Delete("worker", 30);
  Await("worker", "Failed");
  time_.Advance(absl::Seconds(31));
  ExpectThatItRests();
}

TEST_F(NodeClockTest, FinishedDeletionIsNotAskedForAgain) {
  Json pod = Pod("worker", kForever);
  pod["metadata"]["finalizers"] = {"example.com/look"};
  Create(pod);
  Await("worker", "Running");
  NoteWrites();
  Delete("worker", 30);
  ASSERT_TRUE(Eventually(
      [&] { return kube::IntAt(Get("worker"), "/metadata/deletionGracePeriodSeconds") == 0; }));
  PodTurns();
  const auto before = Noted();
  EXPECT_THAT(before, Contains("delete"));
  for (int i = 0; i < 3; ++i) {
    time_.Advance(kRetry);
    JobTurns();
  }
  EXPECT_EQ(Noted(), before);
}

TEST_F(NodeClockTest, DeletionThatIsRefusedIsAskedForAgainAfterAWhile) {
  CreateIdle("worker");
  PodTurns();
  NoteWrites("delete", 1);
  Delete("worker", 30);
  ASSERT_TRUE(Eventually([&] { return !Noted().empty(); }));
  JobTurns();
  EXPECT_THAT(Noted(), ElementsAre("delete"));
  EXPECT_FALSE(IsGone("worker"));

  time_.Advance(kRetry);

  JobTurns();
  AwaitGone("worker");
}

TEST_F(NodeClockTest, PidOfAPodIsKnownBeforeItCountsAsRunning) {
  PodTurns();
  NoteWrites("patch", 1);
  Create(Pod("worker", kForever));
  ASSERT_TRUE(Eventually([&] { return !Noted().empty(); }));
  JobTurns();
  EXPECT_THAT(Noted(), ElementsAre("patch"));
  time_.Advance(kRetry);
  JobTurns();
  EXPECT_NE(PidOf(Await("worker", "Running")), 0);
  EXPECT_THAT(Noted(), ElementsAre("patch", "patch", "patchStatus"));
}

TEST_F(NodeClockTest, PodThatSomebodyElseEndedIsNotSaidToRunLater) {
  faulty_->FailWritesThat(
      [](const kube::ResourceKind&, std::string_view verb) { return verb == "patchStatus"; },
      kube::Fault::kRefuse);
  Create(Pod("worker", "echo up; exec sleep 300"));
  AwaitUp("worker");
  ASSERT_TRUE(Eventually([&] { return PidOf(Get("worker")) != 0; }));
  const Json pod = Get("worker");
  Evict(pod);
  JobTurns();
  faulty_->Heal();
  time_.Advance(kRetry);
  PodTurns();
  EXPECT_EQ(kube::StringAt(Get("worker"), "/status/phase"), "Failed");
  EXPECT_EQ(kube::StringAt(Get("worker"), "/status/reason"), "Evicted");
}

TEST_F(NodeClockTest, PodThatSomebodyElseEndedIsNotSaidToRunAgain) {
  NoteWrites("patchStatus", 1000);
  Create(Pod("worker", "echo up; exec sleep 300"));
  AwaitUp("worker");
  ASSERT_TRUE(Eventually([&] { return PidOf(Get("worker")) != 0; }));
  JobTurns();
  const std::size_t before = Noted().size();
  NoteWrites();
  const Json pod = Get("worker");
  Evict(pod);
  PodTurns();
  std::vector<std::string> since = Noted();
  since.erase(since.begin(), since.begin() + static_cast<std::ptrdiff_t>(before));
  EXPECT_THAT(since, ::testing::Not(Contains("patchStatus")));
}

// The store knows of a pod what the node does not know yet.
class NodeLateCopyTest : public NodeClockTest, public ::testing::WithParamInterface<bool> {
 protected:
  static bool IsReplaced() { return GetParam(); }

  // Removes the pod; another may get its name.
  void Replace() {
    pods_->Stop();
    informers_[0].join();
    informers_.erase(informers_.begin());
    kube::DeleteOptions now;
    now.grace_period_seconds = 0;
    ASSERT_TRUE(client_->Delete(kube::kPod, KeyOf("worker"), now).ok());
    if (IsReplaced()) Create(Pod("worker", kForever));
  }
};

TEST_P(NodeLateCopyTest, NobodyIsToldOfAPodThatIsGone) {
  Create(Pod("worker", kIgnoring));
  AwaitUp("worker");
  const Json pod = Await("worker", "Running");
  Delete("worker", 30);
  PodTurns();
  Replace();
  NoteWrites();
  ASSERT_EQ(kill(PidOf(pod), SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] { return Noted().size() >= 2; }));
  JobTurns();
  for (int i = 0; i < 2; ++i) {
    time_.Advance(kRetry);
    JobTurns();
  }
  EXPECT_THAT(Noted(), ElementsAre("patchStatus", "delete"));
  EXPECT_EQ(IsGone("worker"), !IsReplaced());
}

TEST_P(NodeLateCopyTest, PlaceOfAPodThatIsGoneIsWrittenOnce) {
  ASSERT_TRUE(client_->Create(kube::kSecret, Secret("keys")).ok());
  NoteWrites();
  HoldNode("worker");
  const std::string folder = PodFolder(home_, Get("worker"));
  Replace();
  ReleaseNode();
  ASSERT_TRUE(Eventually([&] { return !Noted().empty(); }));
  const auto state = ReadPodState(folder);
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(kill(state->process.pid, SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] { return Noted().size() >= 2; }));
  JobTurns();
  EXPECT_THAT(Noted(), ElementsAre("patch", "patchStatus"));
  StopKubelet(StopMode::kLeavePods);
}

INSTANTIATE_TEST_SUITE_P(ByReplaced, NodeLateCopyTest, ::testing::Bool());

TEST_F(NodeClockTest, StoppingNodeKillsWhatIgnoresItToTheInstantAndStartsNothing) {
  Create(Pod("worker", kIgnoring));
  AwaitUp("worker");
  Create(Pod("polite", kForever));
  const Json pod = Await("worker", "Running");
  Await("polite", "Running");
  StopWhile([&] {
    Await("polite", "Failed");
    Delete("worker", 30);  // its grace is the node's
    Create(Pod("late", "true"));
    PodTurns();
    time_.Advance(kStopGrace - absl::Nanoseconds(1));
    PodTurns();
    EXPECT_TRUE(Runs(PidOf(pod)));
    time_.Advance(absl::Nanoseconds(1));
    Nudge();
  });
  EXPECT_FALSE(Runs(PidOf(pod)));
  EXPECT_FALSE(std::filesystem::exists(PodFolder(home_, Get("late"))));
}

TEST_F(NodeClockTest, PodThatIsBeingDeletedEndsForThatThoughItsNodeStops) {
  Json pod = Pod("worker", kIgnoring);
  pod["metadata"]["finalizers"] = {"example.com/look"};
  Create(pod);
  AwaitUp("worker");
  Create(Pod("polite", kForever));
  Await("worker", "Running");
  Await("polite", "Running");
  Delete("worker", 30);
  PodTurns();
  StopWhile([&] {
    Await("polite", "Failed");
    time_.Advance(kStopGrace);
    Nudge();
  });
  EXPECT_EQ(kube::StringAt(Get("polite"), "/status/reason"), "NodeShutdown");
  EXPECT_EQ(Terminated(Get("worker"))["signal"], SIGKILL);
  EXPECT_EQ(kube::StringAt(Get("worker"), "/status/reason"), "");
}

TEST_F(NodeClockTest, StatusesThatNobodyTakesDoNotKeepTheNodeForever) {
  Create(Pod("worker", kForever));
  const Json pod = Await("worker", "Running");
  NoteWrites("patchStatus", 1'000'000);
  StopWhile([&] {
    ASSERT_TRUE(Eventually([&] { return !Noted().empty(); }));
    time_.Advance(kStopGrace + kLastWrites);
    Nudge();
  });
  EXPECT_FALSE(Runs(PidOf(pod)));
  EXPECT_EQ(kube::StringAt(Get("worker"), "/status/phase"), "Running");
}

}  // namespace
}  // namespace starling::local
