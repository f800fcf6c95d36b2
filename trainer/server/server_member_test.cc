// SPDX-License-Identifier: Apache-2.0
// A server as its coordinator sees it, alone and with one client, in one process.
#include "trainer/server/server_member.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/control/options.h"
#include "trainer/membership/convert.h"
#include "trainer/parameter_server/convert.h"
#include "trainer/testing/client_loop.h"
#include "trainer/testing/transports.h"

namespace starling::server {
namespace {

using membership::MemberId;
using parameter_server::Layout;
using ::testing::HasSubstr;
using transport::testing::Soon;

const Layout kLayout{10'000, 100, "model and data"};
const MemberId kServer{"server", 1}, kWorker{"worker", 1};

v1alpha1::TrainingJobSpec Spec() {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_exchange()
      ->mutable_parameter_server()
      ->mutable_consistency()
      ->mutable_asynchronous();
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
  return spec;
}

// A coordinator's words, and the process that hears them.
class Scene {
 public:
  explicit Scene(const v1alpha1::TrainingJobSpec& spec = Spec())
      : folder_(absl::StrCat(testing::TempDir(), "/server_member_test.", getpid())),
        storage_(*storage::Open(checkpoint::JobPlace(spec.checkpoint().uri(), "uid", folder_))),
        failpoints_({}, [] {}) {
    std::filesystem::remove_all(folder_);
    server_transport_ = Open(kServer);
    worker_transport_ = Open(kWorker);
    member_ = std::make_unique<ServerMember>(ServerConfig{.spec = spec,
                                                          .job_uid = "uid",
                                                          .job_dir = folder_,
                                                          .self = kServer,
                                                          .last_exit = std::nullopt,
                                                          .progress_file = folder_ + ".progress"},
                                             ServerParts{.transport = *server_transport_,
                                                         .storage = *storage_,
                                                         .clock = clock_,
                                                         .registry = registry_,
                                                         .failpoints = failpoints_,
                                                         .notify = [this] { ++notified_; }});
    thread_ = std::thread([this] {
      ended_with_ = member_->Run();
      ended_ = true;
    });
  }
  ~Scene() {
    member_->GraceOver();
    thread_.join();
    member_.reset();
    std::filesystem::remove_all(folder_);
    std::filesystem::remove(folder_ + ".progress");
  }

  ServerMember& member() { return *member_; }
  metrics::Registry& registry() { return registry_; }
  const std::string& folder() const { return folder_; }
  bool ended() const { return ended_; }
  int notifications() const { return notified_; }
  const absl::Status& ended_with() const { return ended_with_; }

  membership::View MakeView(std::uint64_t epoch = 1) {
    membership::View view;
    view.number = membership::MakeViewNumber(1, epoch);
    view.members = {{kServer, server_transport_->address(), view.number, "job-parameter-server-0",
                     "", membership::Role::kServer},
                    {kWorker, worker_transport_->address(), view.number, "job-worker-0"}};
    view.groups.resize(parameter_server::TablesOf(Spec(), kLayout)->shards.size());
    for (membership::ReplicaGroup& chain : view.groups) {
      chain.epoch = view.number;
      chain.members = {kServer};
    }
    return view;
  }
  membership::Directive Directive(const std::optional<membership::View>& view,
                                  std::int64_t turn = 0) {
    v1alpha1::ParameterServerDirective more;
    Put(kLayout, *more.mutable_layout());
    membership::Directive directive;
    directive.view = view;
    directive.incarnation = 1;
    directive.checkpoint_turn = turn;
    directive.parameter_server = more.SerializeAsString();
    return directive;
  }
  int Failures() {
    constexpr std::string_view kName = "\nstarling_server_snapshots_total{result=\"failed\"} ";
    const std::string text = registry_.Serialize();
    const std::size_t at = text.find(kName);
    return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + kName.size());
  }
  v1alpha1::ParameterServerReport Report() {
    v1alpha1::ParameterServerReport report;
    EXPECT_TRUE(report.ParseFromString(member_->MakeReport().parameter_server));
    return report;
  }
  bool Until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      const sync::MutexLock lock(mutex_);
      pause_.WaitFor(mutex_, absl::Milliseconds(2));
    }
    return true;
  }

  // In `view`: assigns ones, pushes a gradient of a half, reads what came of it; stays in the view
  // until `done`.
  void Work(const membership::View& view, const std::function<bool()>& done) {
    const parameter_server::Ranks ranks = parameter_server::RanksOf(view);
    auto mesh = worker_transport_->Open(view.number,
                                        {{control::NameOf(kServer), server_transport_->address()},
                                         {control::NameOf(kWorker), worker_transport_->address()}},
                                        1, Soon(), nullptr);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    parameter_server::ClientLoop client(kWorker, view.groups.size());
    ASSERT_TRUE(client.Enter(parameter_server::ClientViewOf(view, kWorker), ranks, **mesh).ok());
    ASSERT_TRUE(client.WaitUntilReady(Soon()).ok());
    const auto tables = *parameter_server::TablesOf(Spec(), kLayout);
    for (std::size_t shard = 0; shard < tables.parameter_shards; ++shard) {
      const parameter_server::RowRange range = tables.shards[shard].range;
      for (const parameter_server::Lease lease : {1, 2}) {
        const std::vector<float> values(range.size(), lease == 1 ? 1.0F : 0.5F);
        parameter_server::Entry entry;
        entry.kind =
            lease == 1 ? parameter_server::EntryKind::kAssign : parameter_server::EntryKind::kPush;
        entry.lease = lease;
        entry.update = parameter_server::Encode(
            {parameter_server::UpdateKind::kRange, 0, range.begin, range.size(), {}, values, {}});
        client.Push(shard, entry);
      }
      parameter_server::Read read;
      read.first = range.begin;
      read.rows = range.size();
      const auto answer = client.Pull(shard, read, Soon());
      ASSERT_TRUE(answer.ok()) << answer.status();
      float last = 0;
      std::memcpy(&last, answer->values->data() + (range.size() - 1) * sizeof(float), sizeof last);
      EXPECT_EQ(last, 0.5F);
    }
    EXPECT_TRUE(client.Drain(Soon()).ok());
    EXPECT_TRUE(Until(done));
  }

 private:
  std::unique_ptr<transport::Transport> Open(const MemberId& id) {
    transport::Options options;
    options.member = control::NameOf(id);
    options.job = "uid";
    options.secret = "secret of the tests";
    return *network_.OpenTransport(options);
  }

  const std::string folder_;
  transport::InprocNetwork network_;
  const std::unique_ptr<storage::BlobStore> storage_;
  const clock::SystemClock clock_;
  metrics::Registry registry_;
  control::Failpoints failpoints_;
  std::unique_ptr<transport::Transport> server_transport_, worker_transport_;
  std::unique_ptr<ServerMember> member_;
  std::atomic<bool> ended_ = false;
  std::atomic<int> notified_ = 0;
  absl::Status ended_with_ = absl::UnknownError("it runs");
  sync::Mutex mutex_;
  sync::Condition pause_;
  std::thread thread_;
};

TEST(ServerMember, HoldsNothingUntilItIsToldTheLayoutAndReportsItThen) {
  Scene scene;
  EXPECT_FALSE(scene.Report().has_layout());
  EXPECT_EQ(scene.member().MakeReport().id, kServer);
  EXPECT_EQ(scene.member().MakeReport().phase, membership::Phase::kOut);
  scene.member().OnDirective(scene.Directive(std::nullopt));
  ASSERT_TRUE(scene.Until([&] { return scene.Report().has_layout(); }));
  EXPECT_EQ(parameter_server::FromProto(scene.Report().layout()), kLayout);
  EXPECT_EQ(scene.Report().shards_size(), 3);
  EXPECT_GT(scene.notifications(), 0) << "the coordinator should hear at once";
}

TEST(ServerMember, ServesAViewSavesATurnAndTellsBoth) {
  Scene scene;
  const membership::View view = scene.MakeView();
  scene.member().OnDirective(scene.Directive(view));
  scene.Work(view, [&] {
    const v1alpha1::ParameterServerReport report = scene.Report();
    return scene.member().MakeReport().phase == membership::Phase::kRun &&
           report.ledgers_size() == 3 && report.ledgers(0).done_size() == 1 &&
           parameter_server::FromProto(report.ledgers(0)).Has(2);
  });
  EXPECT_EQ(scene.member().MakeReport().fence, view.number);
  EXPECT_EQ(scene.member().MakeReport().checkpoint_turn, 0);
  EXPECT_FALSE(std::filesystem::exists(scene.folder() + "/shards")) << "no turn, no snapshot";
}

TEST(ServerMember, ATurnIsReportedWhenEveryShardIsOnTheStorage) {
  Scene scene;
  const membership::View view = scene.MakeView();
  scene.member().OnDirective(scene.Directive(view, 7));
  scene.Work(view, [&] { return scene.member().MakeReport().checkpoint_turn == 7; });
  for (const char* shard : {"shard-0", "shard-1", "shard-2"}) {
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(scene.folder(), "/shards/", shard)));
  }
  v1alpha1::TrainingReport training;
  ASSERT_TRUE(training.ParseFromString(scene.member().MakeReport().training.bytes));
  EXPECT_THAT(training.checkpoint().uri(), HasSubstr("/shards"));
  const std::string text = scene.registry().Serialize();
  EXPECT_THAT(text, HasSubstr("starling_server_pushes_total 4"));
  EXPECT_THAT(text, HasSubstr("starling_server_answering_shards 3"));
  EXPECT_TRUE(std::filesystem::exists(scene.folder() + ".progress"));
}

// In a job that is being suspended there may be no worker any more.
TEST(ServerMember, KeepsAsManySnapshotsAsTheSettingsSayAndNeedsNoWorkerForThat) {
  Scene scene;
  v1alpha1::Settings settings;
  settings.mutable_checkpoint()->set_keep(2);
  for (int turn = 1; turn <= 5; ++turn) {
    membership::View view = scene.MakeView(static_cast<std::uint64_t>(turn));
    view.members.pop_back();
    membership::Directive directive = scene.Directive(view, turn);
    directive.settings.generation = 4;
    directive.settings.values = settings.SerializeAsString();
    scene.member().OnDirective(directive);
    ASSERT_TRUE(scene.Until([&] { return scene.member().MakeReport().checkpoint_turn == turn; }));
  }
  EXPECT_EQ(scene.member().MakeReport().settings_generation, 4);
  int kept = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(scene.folder() + "/shards/shard-0")) {
    kept += entry.is_directory() ? 1 : 0;
  }
  EXPECT_EQ(kept, 2);
}

TEST(ServerMember, ASnapshotThatCannotBeWrittenIsTriedAgainUntilItCan) {
  const std::string place = absl::StrCat(testing::TempDir(), "/server_member_place.", getpid());
  std::ofstream(place) << "a file where a folder should be";
  v1alpha1::TrainingJobSpec spec = Spec();
  spec.mutable_checkpoint()->set_uri("file://" + place);
  {
    Scene scene(spec);
    membership::View view = scene.MakeView();
    view.members.pop_back();
    scene.member().OnDirective(scene.Directive(view, 1));
    ASSERT_TRUE(scene.Until([&] { return scene.Failures() > 0; }));
    EXPECT_EQ(scene.member().MakeReport().checkpoint_turn, 0);
    std::filesystem::remove(place);
    EXPECT_TRUE(scene.Until([&] { return scene.member().MakeReport().checkpoint_turn == 1; }));
    EXPECT_TRUE(std::filesystem::exists(place + "/uid/shards/shard-0"));
  }
  std::filesystem::remove_all(place);
}

TEST(ServerMember, RefusesViewsOfACoordinatorThatWasReplacedAndOfOtherTables) {
  Scene scene;
  membership::Directive directive = scene.Directive(std::nullopt);
  directive.incarnation = 3;
  scene.member().OnDirective(directive);
  scene.member().OnDirective(scene.Directive(scene.MakeView()));
  EXPECT_EQ(scene.member().MakeReport().highest_incarnation, 3u);
  ASSERT_TRUE(scene.Until([&] { return scene.Report().has_layout(); }));
  EXPECT_FALSE(scene.member().MakeReport().installed.has_value());

  membership::View view = scene.MakeView();
  view.number = membership::MakeViewNumber(3, 1);
  for (membership::ReplicaGroup& chain : view.groups) chain.epoch = view.number;
  v1alpha1::ParameterServerDirective more;
  Put(Layout{20'000, 100, "another"}, *more.mutable_layout());
  directive.view = view;
  directive.parameter_server = more.SerializeAsString();
  scene.member().OnDirective(directive);
  EXPECT_FALSE(scene.member().MakeReport().installed.has_value());
  directive.parameter_server = scene.Directive(view).parameter_server;
  scene.member().OnDirective(directive);
  EXPECT_TRUE(scene.Until([&] { return scene.member().MakeReport().installed.has_value(); }));
}

TEST(ServerMember, EndsWhenItIsReleasedOrTheJobHasFinishedOrAnotherHasCome) {
  for (const auto field : {&membership::Directive::released, &membership::Directive::finished,
                           &membership::Directive::superseded}) {
    for (const bool serving : {false, true}) {
      Scene scene;
      scene.member().OnDirective(
          scene.Directive(serving ? std::optional(scene.MakeView()) : std::nullopt));
      if (serving) {
        ASSERT_TRUE(scene.Until([&] { return scene.member().MakeReport().installed.has_value(); }));
      }
      membership::Directive last = scene.Directive(std::nullopt);
      last.*field = true;
      scene.member().OnDirective(last);
      EXPECT_TRUE(scene.Until([&] { return scene.ended(); }));
    }
  }
}

TEST(ServerMember, LeavesInAnOrderlyWayIfItHoldsSomethingAndAtOnceIfNot) {
  Scene empty;
  empty.member().Terminate();
  EXPECT_TRUE(empty.Until([&] { return empty.ended(); }));

  Scene scene;
  scene.member().OnDirective(scene.Directive(scene.MakeView()));
  ASSERT_TRUE(scene.Until([&] { return scene.member().MakeReport().installed.has_value(); }));
  scene.member().Terminate();
  EXPECT_TRUE(scene.member().MakeReport().leaving);
  EXPECT_FALSE(scene.ended()) << "others may have to copy from it";
  scene.member().GraceOver();
  EXPECT_TRUE(scene.Until([&] { return scene.ended(); }));
}

TEST(ServerMember, SaysWhyItCannotMakeItsTables) {
  v1alpha1::TrainingJobSpec spec = Spec();
  spec.mutable_optimizer()->mutable_sgd()->set_nesterov(true);
  Scene scene(spec);
  scene.member().OnDirective(scene.Directive(std::nullopt));
  ASSERT_TRUE(scene.Until([&] { return scene.ended(); }));
  EXPECT_EQ(scene.ended_with().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(scene.member().MakeReport().training.failure, HasSubstr("nesterov"));
}

}  // namespace
}  // namespace starling::server
