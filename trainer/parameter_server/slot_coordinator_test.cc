// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/slot_coordinator.h"

#include <algorithm>
#include <array>
#include <memory>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/parameter_server/convert.h"

namespace starling::parameter_server {
namespace {

namespace pb = v1alpha1;
using membership::MakeViewNumber;
using membership::Pod;
using membership::PodState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::int64_t kSamples = 40;  // 10 batches of 4 an epoch

pb::TrainingJobSpec Spec() {
  pb::TrainingJobSpec spec;
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  spec.mutable_stop()->set_epochs(2);
  spec.mutable_validation()->set_every_epochs(1);
  spec.mutable_dataset()->mutable_validation();
  pb::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.set_samples_per_push(4);
  server.set_replication(2);
  server.set_slots(2);
  server.mutable_consistency()->mutable_asynchronous();
  return spec;
}

// A process of a pod: what it was told, and what it reports. Servers are perfect: what one has, all
// of its chain have, at once.
struct Process {
  MemberId id;
  bool server = false;
  std::optional<membership::LastExit> last_exit;
  bool connected = false;
  bool leaving = false;
  bool broken = false;
  std::vector<MemberId> unreachable;
  std::uint64_t incarnation = 0;
  std::optional<JobView> installed;
  std::map<std::size_t, ViewNumber> synced;  // slots that it holds, and since which view
  pb::ParameterServerDirective told;
  std::set<Lease> held;
  std::set<Lease> done;
  std::int64_t samples = kSamples;
  std::int64_t checkpoint_turn = 0;
  std::int64_t turn = 0;
  bool ends_training = false;
  membership::Training training;
  bool released = false;

  ViewNumber joined() const {
    if (!installed) return 0;
    for (const auto& client : installed->clients) {
      if (client.id == id) return client.joined;
    }
    return 0;
  }
};

class Fleet {
 public:
  Fleet(int workers, int servers, pb::TrainingJobSpec spec = Spec()) : spec_(std::move(spec)) {
    desired_.workers = workers;
    desired_.servers = servers;
    for (int i = 0; i < workers; ++i) AddPod("w", kWorkerRole, i);
    for (int i = 0; i < servers; ++i) AddPod("s", kServerRole, i);
    NewCoordinator();
  }
  // All processes run.
  static Fleet Running(int workers, int servers, pb::TrainingJobSpec spec = Spec()) {
    Fleet fleet(workers, servers, std::move(spec));
    for (const Pod& pod : fleet.pods_) fleet.Start(pod.name);
    fleet.Settle();
    return fleet;
  }

  void AddPod(const std::string& prefix, const char* role, int index) {
    const std::string name = absl::StrCat(prefix, index);
    pods_.push_back({"uid-" + name, name, role, index, "127.0.0.9", PodState::kLive});
  }
  Pod& PodOf(const std::string& name) {
    return *std::find_if(pods_.begin(), pods_.end(),
                         [&](const Pod& pod) { return pod.name == name; });
  }
  void NewCoordinator() {
    SlotCoordinator::Options options;
    options.common.boot_id = absl::StrCat("boot", ++incarnation_);
    const ViewNumber seen = coordinator_ == nullptr ? 0 : Look().newest_view;
    coordinator_ = std::make_unique<SlotCoordinator>(options, spec_);
    for (auto& [name, process] : processes_) process.connected = false;
    coordinator_->OnGrant({incarnation_, options.common.boot_id, pods_, seen}, now_);
    Want();
  }
  void Want() {
    desired_.pods = pods_;
    ++desired_.sequence;
    coordinator_->OnDesired(desired_, now_);
  }
  Process& Start(const std::string& name, std::optional<membership::LastExit> last_exit = {}) {
    Process process;
    process.id = {"uid-" + name, starts_[name]++};
    process.server = PodOf(name).role == kServerRole;
    process.last_exit = last_exit;
    processes_[name] = process;
    Connect(name);
    return processes_.at(name);
  }
  void Connect(const std::string& name) {
    processes_.at(name).connected = true;
    coordinator_->OnConnected("uid-" + name, now_);
    Report(name);
  }
  void Kill(const std::string& name) {
    processes_.erase(name);
    coordinator_->OnDisconnected("uid-" + name, now_);
    coordinator_->OnRefused("uid-" + name, now_);
  }

  void Report(const std::string& name) {
    const Process& process = processes_.at(name);
    if (!process.connected || muted_.contains(name)) return;
    coordinator_->OnReport(process.id.pod_uid, ReportOf(process), now_);
  }
  membership::Report ReportOf(const Process& process) const {
    membership::Report report;
    report.id = process.id;
    report.highest_incarnation = process.incarnation;
    report.last_exit = process.last_exit;
    report.leaving = process.leaving;
    report.unreachable = process.unreachable;
    report.checkpoint_turn = process.checkpoint_turn;
    report.training = process.training;
    pb::ParameterServerReport said;
    if (process.installed) Put(*process.installed, *said.mutable_installed());
    said.set_broken(process.broken);
    if (!process.server || process.installed) {
      Put(Layout{2 * kSmallestSlot, process.samples, "f"}, *said.mutable_layout());
    }
    for (std::size_t slot = 0; process.server && slot < 3; ++slot) {
      SlotReport one;
      const auto synced = process.synced.find(slot);
      if (synced != process.synced.end()) one.state = StateId{synced->second, 1};
      one.cached = cached_;
      Put(one, *said.add_slots());
      const bool tail = process.installed && !process.broken &&
                        process.installed->slots[slot].chain.back() == process.id;
      if (!tail || slot == 2) continue;
      pb::SlotLedger& ledger = *said.add_ledgers();
      ledger.set_slot(static_cast<std::int64_t>(slot));
      Put(ledgers_[slot], ledger);
    }
    for (const Lease lease : process.done) said.add_done(lease);
    for (const Lease lease : process.held) said.add_held(lease);
    said.mutable_evaluation()->set_turn(process.turn);
    said.mutable_evaluation()->set_ends_training(process.ends_training);
    report.parameter_server = said.SerializeAsString();
    return report;
  }

  void Obey(Process& process) {
    const membership::Directive directive = coordinator_->DirectiveFor(process.id.pod_uid);
    if (directive.incarnation < process.incarnation) return;
    process.incarnation = directive.incarnation;
    process.released = directive.released;
    ASSERT_TRUE(process.told.ParseFromString(directive.parameter_server));
    if (process.server)
      process.checkpoint_turn = std::max(process.checkpoint_turn, directive.checkpoint_turn);
    const JobView view = FromProto(process.told.view());
    const ViewNumber had = process.installed ? process.installed->number : 0;
    const bool newer =
        view.number > had && membership::IncarnationOf(view.number) == directive.incarnation;
    if (newer) Install(process, view);
    if (!process.installed || process.installed->number != view.number) return;
    std::set<Lease> listed(process.told.leases().begin(), process.told.leases().end());
    std::erase_if(process.done, [&](Lease lease) { return !listed.contains(lease); });
    process.held.clear();
    for (const Lease lease : listed) {
      if (!process.done.contains(lease)) process.held.insert(lease);
    }
  }
  void Install(Process& process, const JobView& view) {
    const ViewNumber joined = process.joined();
    process.installed = view;
    process.broken = false;
    process.unreachable.clear();
    if (!process.server) {
      if (process.joined() != joined) process.held.clear(), process.done.clear();
      return;
    }
    for (std::size_t slot = 0; slot < view.slots.size(); ++slot) {
      const SlotPart& part = view.slots[slot];
      if (std::find(part.chain.begin(), part.chain.end(), process.id) == part.chain.end()) continue;
      if (part.restore && restored_.insert({view.number, slot}).second) ledgers_[slot] = saved_;
      process.synced[slot] = view.number;
    }
  }
  // This worker does so many of the batches that it was given; answers how many it had.
  std::size_t Work(const std::string& name, std::size_t most = 1000) {
    Process& process = processes_.at(name);
    std::size_t count = 0;
    while (!process.held.empty() && count < most) {
      const Lease lease = *process.held.begin();
      process.held.erase(process.held.begin());
      process.done.insert(lease);
      for (LeaseLedger& ledger : ledgers_) {
        if (ledger.Has(lease)) ++repeated_;
        ledger.Add(lease);
      }
      order_.push_back(lease);
      ++count;
    }
    return count;
  }
  // Directives and reports flow until nothing changes.
  void Settle() {
    for (int round = 0; round < 8; ++round) {
      for (auto& [name, process] : processes_) {
        if (process.connected && !muted_.contains(name)) Obey(process);
      }
      for (auto& [name, process] : processes_) Report(name);
    }
  }
  void Advance(absl::Duration by) {
    for (absl::Duration gone; gone < by; gone += absl::Milliseconds(50)) {
      now_ += absl::Milliseconds(50);
      for (auto& [name, process] : processes_) Report(name);
      coordinator_->OnTick(now_);
    }
    Settle();
  }
  void Validate(const std::string& name, bool ends_training = false) {
    Process& process = processes_.at(name);
    ASSERT_NE(process.told.evaluate(), 0);
    process.turn = process.told.evaluate();
    process.ends_training = ends_training;
    Settle();
  }
  // Everybody works until nobody has anything.
  void WorkAll() {
    for (bool any = true; any;) {
      any = false;
      for (auto& [name, process] : processes_) any = (!process.server && Work(name, 1) > 0) || any;
      Settle();
    }
  }
  membership::Summary Look() const { return coordinator_->MakeSummary(now_); }
  const membership::MemberState& MemberOf(const std::string& name) {
    summary_ = Look();
    return *std::find_if(summary_.members.begin(), summary_.members.end(),
                         [&](const auto& member) { return member.pod == name; });
  }
  Process& operator[](const std::string& name) { return processes_.at(name); }

  pb::TrainingJobSpec spec_;
  std::vector<Pod> pods_;
  std::map<std::string, Process> processes_;
  std::map<std::string, std::int64_t> starts_;
  std::set<std::string> muted_;
  std::unique_ptr<SlotCoordinator> coordinator_;
  membership::Desired desired_;
  membership::Summary summary_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::uint64_t incarnation_ = 0;
  bool cached_ = true;  // whoever is asked to fetch ahead has done so
  std::array<LeaseLedger, 2> ledgers_;
  LeaseLedger saved_;
  std::set<std::pair<ViewNumber, std::size_t>> restored_;
  std::vector<Lease> order_;  // as they were done
  int repeated_ = 0;
};

TEST(SlotCoordinator, NothingIsPublishedBeforeAWorkerKnowsTheModel) {
  Fleet fleet(1, 1);
  fleet.Start("s0");
  fleet.Settle();
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("a worker that has read model and data"));
  EXPECT_EQ(fleet.Look().newest_view, 0U);
  fleet.Start("w0");
  fleet.Settle();
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_EQ(fleet.Look().waiting, "");
  EXPECT_EQ(fleet["s0"].told.layout().samples(), kSamples);
}

TEST(SlotCoordinator, TheFirstViewWaitsAMomentForThoseWhoAreExpected) {
  Fleet fleet(2, 2);
  fleet.Start("s0");
  fleet.Start("w1");
  fleet.Settle();
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("1 of 2 are there"));
  fleet.Advance(absl::Seconds(0.8));
  EXPECT_EQ(fleet.Look().newest_view, 0U);
  fleet.Advance(absl::Seconds(0.4));
  EXPECT_NE(fleet.Look().newest_view, 0U);
}

TEST(SlotCoordinator, FewerThanTheMinimumAreNamed) {
  Fleet fleet(2, 1);
  fleet.desired_.min_workers = 2;
  fleet.Want();
  fleet.Start("s0");
  fleet.Start("w0");
  fleet.Settle();
  fleet.Advance(absl::Seconds(2));
  EXPECT_EQ(fleet.Look().newest_view, 0U);
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("waits for workers: 1 of at least 2"));
}

TEST(SlotCoordinator, TheFirstValuesAreOneClientsAlone) {
  Fleet fleet = Fleet::Running(3, 2);
  EXPECT_THAT(fleet["w0"].held, ElementsAre(kFirstValues));
  EXPECT_THAT(fleet["w1"].held, IsEmpty());
  EXPECT_THAT(fleet["w2"].held, IsEmpty());
  EXPECT_EQ(fleet.Look().settled_step, 0);
  fleet.Work("w0");
  fleet.Settle();
  for (const char* name : {"w0", "w1", "w2"}) {
    EXPECT_THAT(fleet[name].held, Not(IsEmpty())) << name;
  }
}

TEST(SlotCoordinator, EveryBatchIsDoneOnceEveryTurnIsMadeAndOneClientConcludes) {
  Fleet fleet = Fleet::Running(3, 2);
  std::vector<std::int64_t> turns;
  for (int round = 0; round < 10 && !fleet["w0"].told.conclude(); ++round) {
    fleet.WorkAll();
    if (fleet["w0"].told.evaluate() == 0) {
      fleet.Advance(absl::Seconds(0.1));
      continue;
    }
    turns.push_back(fleet["w0"].told.evaluate());
    EXPECT_EQ(fleet["w1"].told.evaluate(), 0);
    fleet.Validate("w0");
  }
  EXPECT_THAT(turns, ElementsAre(1, 2));
  EXPECT_EQ(fleet.order_.size(), 21U);
  EXPECT_EQ(fleet.repeated_, 0);
  EXPECT_EQ(fleet.Look().settled_step, 20);
  EXPECT_TRUE(fleet["w0"].told.conclude());
  EXPECT_FALSE(fleet["w1"].told.conclude());
  fleet["w0"].training = {"", true, ""};
  fleet.Settle();
  EXPECT_TRUE(fleet.Look().training.has_result || fleet["w0"].training.bytes.empty());
}

TEST(SlotCoordinator, WorkersAreToldWhatIsSettled) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.Work("w0");
  fleet.Settle();
  fleet.Work("w0", 2);
  fleet.Advance(absl::Seconds(0.1));
  EXPECT_EQ(fleet["w0"].told.settled(), 2);
}

TEST(SlotCoordinator, InStepTheNextEpochBeginsAfterTheValidation) {
  for (const bool in_step : {true, false}) {
    pb::TrainingJobSpec spec = Spec();
    if (in_step) {
      spec.mutable_exchange()
          ->mutable_parameter_server()
          ->mutable_consistency()
          ->mutable_bulk_synchronous();
    }
    Fleet fleet = Fleet::Running(2, 1, spec);
    fleet.WorkAll();
    EXPECT_EQ(fleet["w0"].told.evaluate(), 1);
    EXPECT_EQ(fleet.order_.size(), in_step ? 11U : 21U);
    fleet.Validate("w0");
    fleet.WorkAll();
    EXPECT_EQ(fleet.order_.size(), 21U);
    EXPECT_EQ(fleet["w0"].told.evaluate(), 2);
  }
}

TEST(SlotCoordinator, AValidationWhoseMakerDiesIsAskedOfAnother) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.WorkAll();
  EXPECT_EQ(fleet["w0"].told.evaluate(), 1);
  fleet.Kill("w0");
  fleet.Settle();
  EXPECT_EQ(fleet["w1"].told.evaluate(), 1);
}

TEST(SlotCoordinator, ATurnThatEndsTrainingTakesTheWorkAwayAndConcludes) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.WorkAll();
  fleet.Validate("w0");
  EXPECT_FALSE(fleet["w0"].told.conclude());
  EXPECT_EQ(fleet["w0"].told.evaluate(), 2);
  fleet.Validate("w0", /*ends_training=*/true);
  EXPECT_TRUE(fleet["w0"].told.conclude());
}

TEST(SlotCoordinator, NearTheEndNobodyHoldsMoreThanHalfOfItsShare) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  std::size_t left = 20;
  while (left > 0) {
    const std::size_t most = std::max<std::size_t>(1, (left + 3) / 4);
    for (const char* name : {"w0", "w1"}) {
      EXPECT_LE(fleet[name].held.size(), std::max<std::size_t>(2, most));
      if (left <= 4) {
        EXPECT_LE(fleet[name].held.size(), 1U);
      }
    }
    left -= fleet.Work("w0", 1) + fleet.Work("w1", 1);
    fleet.Settle();
    if (fleet["w0"].told.evaluate() == 1) fleet.Validate("w0");
  }
}

TEST(SlotCoordinator, AFastClientIsGivenMoreAhead) {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_stop()->set_epochs(1000);
  Fleet fleet = Fleet::Running(2, 1, spec);
  fleet.Work("w0");
  fleet.Settle();
  fleet["w0"].turn = 999;
  for (int i = 0; i < 50; ++i) {
    fleet.now_ += absl::Milliseconds(10);
    fleet.Work("w0");
    if (i % 20 == 0) fleet.Work("w1", 1);
    fleet.Settle();
  }
  EXPECT_GT(fleet["w0"].held.size(), 10U);
  EXPECT_LE(fleet["w1"].held.size(), 3U);
}

TEST(SlotCoordinator, AWorkerWithOtherDataIsLeftOutAndTheReasonIsTold) {
  Fleet fleet(2, 1);
  fleet.Start("s0");
  fleet.Start("w0");
  fleet.Start("w1").samples = 39;
  fleet.Settle();
  fleet.Advance(absl::Seconds(1.2));
  EXPECT_THAT(fleet.coordinator_->view()->clients, SizeIs(1));
  EXPECT_THAT(fleet.MemberOf("w1").refused, HasSubstr("39 samples here"));
  EXPECT_EQ(fleet.MemberOf("w0").refused, "");
}

TEST(SlotCoordinator, ADeadWorkersBatchesAreGivenToAnother) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  const Lease lost = *fleet["w1"].held.begin();
  fleet.Kill("w1");
  fleet.Settle();
  EXPECT_EQ(fleet.Look().incidents[0].reason, "WorkerLost");
  EXPECT_FALSE(fleet.Look().incidents[0].recovery);
  fleet.Work("w0");
  fleet.Settle();
  fleet.WorkAll();
  EXPECT_THAT(fleet.order_, testing::Contains(lost));
  EXPECT_TRUE(fleet.Look().incidents[0].recovery);
  EXPECT_THAT(fleet.Look().incidents[0].message,
              HasSubstr("1 worker and 1 parameter server go on"));
}

TEST(SlotCoordinator, AServersDeathCostsNothingWhereAnotherHasItsSlots) {
  Fleet fleet = Fleet::Running(2, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.WorkAll();
  const std::size_t done = fleet.order_.size();
  fleet.Kill("s1");
  fleet.Settle();
  EXPECT_EQ(fleet.Look().incidents[0].reason, "ParameterServerLost");
  EXPECT_EQ(fleet.coordinator_->view()->servers.size(), 1U);
  EXPECT_EQ(fleet.Look().settled_step, static_cast<std::int64_t>(done) - 1);
  fleet.Start("s1", membership::LastExit{0, 9, "", 5});
  fleet.Settle();
  fleet.Advance(absl::Seconds(0.2));
  EXPECT_EQ(fleet.coordinator_->view()->slots[0].chain.size(), 2U);
  EXPECT_EQ(fleet.Look().incidents[0].exit->signal, 9);
  EXPECT_EQ(fleet.repeated_, 0);
}

TEST(SlotCoordinator, WhatARestoreLosesIsDoneAgainAndTold) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  for (Lease lease = 1; lease <= 4; ++lease) fleet.saved_.Add(lease);
  for (int i = 0; i < 4; ++i) {
    fleet.Work("w0", 1);
    fleet.Work("w1", 1);
    fleet.Settle();
  }
  EXPECT_EQ(fleet.Look().settled_step, 8);
  const ViewNumber joined = fleet["w0"].joined();
  fleet.Kill("s0");
  fleet.Settle();
  fleet.Start("s0");
  fleet.Settle();
  EXPECT_TRUE(fleet.coordinator_->view()->slots[0].restore);
  EXPECT_GT(fleet["w0"].joined(), joined);
  EXPECT_EQ(fleet.Look().settled_step, 3);
  EXPECT_EQ(fleet.Look().incidents[0].repeated_steps, 5);
  EXPECT_THAT(fleet.Look().incidents[0].message, HasSubstr("5 batches are done again"));
  fleet.WorkAll();
  EXPECT_EQ(fleet.Look().settled_step, 20);
}

TEST(SlotCoordinator, ARestoreFromNothingBeginsWithTheFirstValues) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  fleet.Work("w1");
  fleet.Settle();
  fleet.Kill("s0");
  fleet.Start("s0");
  fleet.Settle();
  EXPECT_THAT(fleet["w0"].held, ElementsAre(kFirstValues));
  EXPECT_THAT(fleet["w1"].held, IsEmpty());
}

TEST(SlotCoordinator, WithoutProofThatTheLastHolderEndedItWaitsForIt) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.Work("w0");
  fleet.Settle();
  fleet.AddPod("s", kServerRole, 1);
  fleet.Want();
  fleet.Start("s1");
  fleet.cached_ = false;  // it has had no time to fetch anything
  fleet.Settle();
  fleet.Kill("s0");
  fleet.Advance(absl::Seconds(3));
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("may be known only to servers that do not answer"));
  const ViewNumber before = fleet.Look().newest_view;
  fleet.Advance(absl::Seconds(31));
  EXPECT_GT(fleet.Look().newest_view, before);
  EXPECT_EQ(fleet.Look().incidents.back().reason, "StepsAtRisk");
  EXPECT_TRUE(fleet.coordinator_->view()->slots[0].restore);
}

TEST(SlotCoordinator, ASuccessorAdoptsTheViewTheTurnsAndWhatIsHeld) {
  Fleet fleet = Fleet::Running(2, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.WorkAll();
  fleet.Validate("w0");
  const ViewNumber number = fleet.Look().newest_view;
  Fleet other = Fleet::Running(2, 2);
  other.Work("w0");
  other.Settle();
  const std::set<Lease> held = other["w1"].held;
  ASSERT_THAT(held, Not(IsEmpty()));
  for (Fleet* one : {&fleet, &other}) {
    one->NewCoordinator();
    for (const Pod& pod : one->pods_) {
      EXPECT_THAT(one->Look().waiting, HasSubstr("it waits for"));
      one->Connect(pod.name);
      one->Obey(one->processes_.at(pod.name));
      one->Report(pod.name);
    }
    one->Settle();
  }
  EXPECT_EQ(fleet.Look().newest_view, number);
  EXPECT_EQ(fleet["w0"].told.evaluate(), 2);
  EXPECT_EQ(fleet.Look().settled_step, 20);
  EXPECT_EQ(other["w1"].held, held);
  for (const Lease lease : held) EXPECT_FALSE(other["w0"].held.contains(lease));
}

TEST(SlotCoordinator, ASuccessorLearnsTheTablesFromServersWhereNoWorkerIsLeft) {
  Fleet fleet = Fleet::Running(1, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.Kill("w0");
  fleet.Settle();
  fleet.PodOf("w0").state = PodState::kTerminated;
  fleet.NewCoordinator();
  for (const char* name : {"s0", "s1"}) {
    fleet.Connect(name);
    fleet.Obey(fleet[name]);
    fleet.Report(name);
  }
  fleet.Settle();
  EXPECT_NE(fleet.coordinator_->view(), nullptr);
  EXPECT_EQ(fleet.Look().settled_step, 0);
}

TEST(SlotCoordinator, AfterTheTakeoverTimeoutTheSilentCountAsEnded) {
  Fleet fleet = Fleet::Running(2, 2);
  fleet.processes_.erase("s1");
  fleet.NewCoordinator();
  for (const char* name : {"s0", "w0", "w1"}) {
    fleet.Connect(name);
    fleet.Obey(fleet[name]);
    fleet.Report(name);
  }
  fleet.Advance(absl::Seconds(1.5));
  EXPECT_EQ(fleet.coordinator_->view(), nullptr);
  fleet.Advance(absl::Seconds(1));
  ASSERT_NE(fleet.coordinator_->view(), nullptr);
  EXPECT_EQ(fleet.coordinator_->view()->servers.size(), 1U);
  EXPECT_EQ(fleet.Look().incidents[0].reason, "StepsAtRisk");
}

TEST(SlotCoordinator, WhoHearsOfAHigherIncarnationPublishesNoMore) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet["w0"].incarnation = 7;
  fleet.Report("w0");
  EXPECT_TRUE(fleet.Look().superseded);
  EXPECT_TRUE(fleet.coordinator_->PodsToDial().empty());
}

TEST(SlotCoordinator, BothRolesAreDialledByTheirNames) {
  Fleet fleet(1, 1);
  const auto dial = fleet.coordinator_->PodsToDial();
  EXPECT_EQ(dial.at("uid-w0").role, "worker");
  EXPECT_EQ(dial.at("uid-s0").role, "parameter-server");
}

TEST(SlotCoordinator, AHaltIsReportedOnceWorkIsDoneAndEveryServerHasSaved) {
  Fleet fleet = Fleet::Running(2, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.desired_.settings.generation = 2;
  fleet.desired_.settings.halt = true;
  fleet.Want();
  fleet.muted_ = {"s1"};  // it is slow to save
  fleet.Settle();
  EXPECT_FALSE(fleet.Look().stopped) << "leases are outstanding";
  fleet.Work("w0");
  fleet.Work("w1");
  fleet.Settle();
  EXPECT_THAT(fleet["w0"].held, IsEmpty());
  EXPECT_FALSE(fleet.Look().stopped) << "s1 has not saved";
  fleet.muted_.clear();
  fleet.Settle();
  EXPECT_TRUE(fleet.Look().stopped);
  fleet.Kill("s0");
  fleet.Settle();
  EXPECT_TRUE(fleet.Look().stopped) << "its pods are being taken away";

  fleet.Start("s0");
  fleet.desired_.settings.halt = false;
  fleet.desired_.settings.generation = 3;
  fleet.Want();
  fleet.Settle();
  EXPECT_FALSE(fleet.Look().stopped);
  EXPECT_THAT(fleet["w0"].held, Not(IsEmpty()));
}

TEST(SlotCoordinator, CheckpointTurnsComeWithTheIntervalWhileBatchesAreDone) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.Work("w0");
  fleet.Settle();
  fleet.desired_.checkpoint_interval_ms = 1000;
  fleet.Want();
  fleet.Work("w0");
  fleet.Advance(absl::Seconds(0.5));
  EXPECT_EQ(fleet["s0"].checkpoint_turn, 0);
  fleet.Advance(absl::Seconds(1));
  const std::int64_t turn = fleet["s0"].checkpoint_turn;
  EXPECT_GT(turn, 0);
  fleet.Advance(absl::Seconds(5));
  EXPECT_EQ(fleet["s0"].checkpoint_turn, turn) << "no batch was done since";
  pb::TrainingReport saved;
  saved.mutable_checkpoint()->set_uri("file:///x");
  fleet["s0"].training.bytes = saved.SerializeAsString();
  fleet.Settle();
  pb::TrainingReport shown;
  ASSERT_TRUE(shown.ParseFromString(fleet.Look().training.bytes));
  EXPECT_EQ(shown.checkpoint().uri(), "file:///x");
  EXPECT_EQ(shown.checkpoint().step(), 2);
}

TEST(SlotCoordinator, ADrainingServerIsReleasedOnceTheOthersHoldItsSlots) {
  Fleet fleet = Fleet::Running(1, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.PodOf("s1").state = PodState::kDraining;
  fleet.desired_.servers = 1;
  fleet.Want();
  fleet.Settle();
  fleet.Advance(absl::Seconds(0.2));
  EXPECT_TRUE(fleet["s1"].released);
  EXPECT_TRUE(fleet.MemberOf("s1").drained);
  EXPECT_EQ(fleet.coordinator_->view()->servers.size(), 1U);
  EXPECT_THAT(fleet.Look().incidents, IsEmpty());
  EXPECT_FALSE(fleet["s0"].released);
}

TEST(SlotCoordinator, ALeavingWorkerFinishesWhatItHolds) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  ASSERT_THAT(fleet["w1"].held, Not(IsEmpty()));
  fleet["w1"].leaving = true;
  fleet.Settle();
  EXPECT_EQ(fleet.coordinator_->view()->clients.size(), 2U);
  EXPECT_FALSE(fleet["w1"].released);
  fleet.Work("w1");
  fleet.Settle();
  fleet.Advance(absl::Seconds(0.1));
  EXPECT_EQ(fleet.coordinator_->view()->clients.size(), 1U);
  EXPECT_TRUE(fleet["w1"].released);
  EXPECT_THAT(fleet["w1"].held, IsEmpty());
}

TEST(SlotCoordinator, ALeavingWorkerThatHangsIsWaitedForAWhileOnly) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  fleet["w1"].leaving = true;
  fleet.Settle();
  fleet.Advance(absl::Seconds(4));
  EXPECT_FALSE(fleet["w1"].released);
  fleet.Advance(absl::Seconds(2));
  EXPECT_TRUE(fleet["w1"].released);
}

TEST(SlotCoordinator, WhenAllServersAreAskedToGoTheySaveFirst) {
  Fleet fleet = Fleet::Running(1, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.muted_ = {"s1"};
  for (const char* name : {"s0", "s1"}) fleet.PodOf(name).state = PodState::kDraining;
  fleet.Want();
  fleet.Settle();
  EXPECT_FALSE(fleet["s0"].released);
  fleet.muted_.clear();
  fleet.Settle();
  EXPECT_TRUE(fleet["s0"].released);
  EXPECT_TRUE(fleet["s1"].released);
  EXPECT_GT(fleet["s1"].checkpoint_turn, 0);
}

TEST(SlotCoordinator, AtTheSecondFailureByBlameAloneTheMostBlamedStaysOutForAWhile) {
  Fleet fleet = Fleet::Running(3, 2);
  const auto fail = [&] {
    const MemberId bad = fleet["w2"].id;
    for (auto& [name, process] : fleet.processes_) {
      process.broken = true;
      if (process.server) process.unreachable = {bad};
    }
    for (auto& [name, process] : fleet.processes_) fleet.Report(name);
    fleet.Settle();
  };
  fail();
  EXPECT_EQ(fleet.coordinator_->view()->clients.size(), 3U);
  fail();
  EXPECT_EQ(fleet.coordinator_->view()->clients.size(), 2U);
  EXPECT_EQ(fleet.Look().incidents.back().reason, "WorkerUnreachable");
  EXPECT_EQ(fleet.Look().incidents.back().pod, "w2");
  fleet.Advance(absl::Seconds(6));
  EXPECT_EQ(fleet.coordinator_->view()->clients.size(), 3U);
}

TEST(SlotCoordinator, NobodyIsEvictedWithoutWhomASlotWouldBeLost) {
  Fleet fleet = Fleet::Running(1, 1);
  for (int i = 0; i < 3; ++i) {
    const MemberId bad = fleet["s0"].id;
    for (auto& [name, process] : fleet.processes_) process.broken = true;
    fleet["w0"].unreachable = {bad};
    for (auto& [name, process] : fleet.processes_) fleet.Report(name);
    fleet.Settle();
  }
  EXPECT_THAT(fleet.coordinator_->view()->servers, SizeIs(1));
  EXPECT_THAT(fleet.coordinator_->view()->clients, SizeIs(1));
}

TEST(SlotCoordinator, ALayoutThatFitsNoTablesFailsTheJobWithTheReason) {
  Fleet fleet = Fleet::Running(1, 1);
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_exchange()->mutable_parameter_server()->set_slots(5000);
  SlotCoordinator coordinator({}, spec);
  coordinator.OnGrant({1, "", fleet.pods_, 0}, fleet.now_);
  coordinator.OnDesired(fleet.desired_, fleet.now_);
  coordinator.OnConnected("uid-w0", fleet.now_);
  Process worker;
  worker.id = {"uid-w0", 0};
  worker.incarnation = 1;
  membership::Report report = fleet.ReportOf(worker);
  pb::ParameterServerReport said;
  Put(Layout{1LL << 40, kSamples, "f"}, *said.mutable_layout());
  report.parameter_server = said.SerializeAsString();
  coordinator.OnReport("uid-w0", report, fleet.now_);
  EXPECT_THAT(coordinator.MakeSummary(fleet.now_).training.failure, HasSubstr("slots: 5000"));
}

TEST(SlotCoordinator, AFailureOfAnyMemberIsTheJobs) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet["w1"].training = {"", false, "the loss is not a number"};
  fleet.Settle();
  EXPECT_EQ(fleet.Look().training.failure, "the loss is not a number");
}

TEST(SlotCoordinator, WhenTheControllerHasTheResultEverybodyIsTold) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.desired_.finished = true;
  fleet.Want();
  EXPECT_TRUE(fleet.coordinator_->finished());
  EXPECT_TRUE(fleet.coordinator_->DirectiveFor("uid-s0").finished);
  EXPECT_FALSE(fleet.coordinator_->AllGone());
  fleet.Kill("s0");
  fleet.Kill("w0");
  EXPECT_TRUE(fleet.coordinator_->AllGone());
}

TEST(SlotCoordinator, StoppingEarlierActsWhileItRuns) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.Work("w0");
  fleet.Settle();
  pb::Settings settings;
  settings.set_generation(2);
  settings.mutable_stop()->set_steps(7);
  fleet.desired_.settings.generation = 2;
  fleet.desired_.settings.values = settings.SerializeAsString();
  fleet.Want();
  fleet.Settle();
  fleet.WorkAll();
  EXPECT_EQ(fleet.Look().settled_step, 7);
  EXPECT_EQ(fleet["w0"].told.evaluate(), 1);
  fleet.Validate("w0");
  EXPECT_TRUE(fleet["w0"].told.conclude());
}

TEST(WorkPlan, TurnsFollowEpochsAndTheEnd) {
  WorkPlan plan{.per_epoch = 10, .total = 35, .every = 2, .ahead = 1, .warm_start = 0};
  EXPECT_EQ(plan.TurnAfter(0), 2);
  EXPECT_EQ(plan.TurnAfter(2), 4);
  EXPECT_EQ(plan.TurnAfter(4), 0);
  EXPECT_EQ(plan.BatchesBefore(4), 35);
  EXPECT_EQ(plan.TurnDue(0, 19), 0);
  EXPECT_EQ(plan.TurnDue(0, 20), 2);
  EXPECT_EQ(plan.TurnDue(2, 35), 4);
  EXPECT_EQ(plan.Limit(0), 35);
  plan.ahead = 0;
  EXPECT_EQ(plan.Limit(0), 20);
  EXPECT_FALSE(plan.Over(2, 35));
  EXPECT_TRUE(plan.Over(4, 35));
  plan.every = 0;
  EXPECT_EQ(plan.TurnDue(0, 35), 0);
  EXPECT_EQ(plan.Limit(0), 35);
  EXPECT_TRUE(plan.Over(0, 35));
}

TEST(WorkPlan, WithoutAnEndNothingOverflows) {
  pb::TrainingJobSpec spec = Spec();
  spec.clear_stop();
  const WorkPlan plan = WorkOf(spec, spec.stop(), kSamples);
  EXPECT_EQ(plan.per_epoch, 10);
  EXPECT_EQ(plan.Limit(1'000'000), 10'000'020);
  EXPECT_FALSE(plan.Over(1'000'000, 1'000'000'000));
}

}  // namespace
}  // namespace starling::parameter_server
