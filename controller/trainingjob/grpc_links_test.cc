// SPDX-License-Identifier: Apache-2.0
// The controller's streams against a server of the coordinator's service.
#include "controller/trainingjob/grpc_links.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <utility>
#include <vector>

#include "common/clock/clock.h"
#include "common/net/socket.h"
#include "common/rpc/credentials.h"
#include "controller/resources/credentials.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/membership.grpc.pb.h"

namespace starling::trainingjob {
namespace {

const runtime::Key kJob{.ns = "default", .name = "digits"};
constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr char kSeed[] = "the seed of these tests: 32 bytes";
constexpr char kUid[] = "uid-of-the-job";

tls::Identity LeafOf(resources::Role role, const std::string& job_uid) {
  return resources::MakeJobCredentials(kSeed, job_uid, absl::Now())->leaves.at(role);
}

const tls::Identity& CoordinatorsLeaf() {
  static const tls::Identity* const kLeaf =
      new tls::Identity(LeafOf(resources::Role::kCoordinator, kUid));
  return *kLeaf;
}

// Reports its boot id at once and then whatever it is told to; remembers what it hears.
class FakeCoordinator final : public v1alpha1::CoordinatorControl::Service {
 public:
  // Port 0: any free one.
  explicit FakeCoordinator(std::string boot_id, int port = 0, bool mute = false,
                           const tls::Identity& identity = CoordinatorsLeaf(),
                           const std::string& host = "127.0.0.1")
      : boot_id_(std::move(boot_id)), mute_(mute) {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(host + ":" + std::to_string(port), rpc::ServerCredentials(identity),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeCoordinator() override {
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  }

  int port() const { return port_; }

  grpc::Status Supervise(grpc::ServerContext* context,
                         grpc::ServerReaderWriter<v1alpha1::CoordinatorReport,
                                                  v1alpha1::ControllerMessage>* stream) override {
    {
      sync::MutexLock lock(mutex_);
      ++calls_;
      allowed_ = rpc::RequirePeer(*context->auth_context(), tls::PeerName("controller", kUid));
      changed_.NotifyAll();
    }
    v1alpha1::CoordinatorReport report;
    report.set_boot_id(boot_id_);
    if (!mute_) stream->Write(report);
    v1alpha1::ControllerMessage message;
    while (stream->Read(&message)) {
      sync::MutexLock lock(mutex_);
      heard_.push_back(message);
      if (message.has_grant()) {
        report.set_incarnation(message.grant().incarnation());
        stream->Write(report);
      }
      changed_.NotifyAll();
    }
    return grpc::Status::OK;
  }

  // Until `what` is true of what was heard; false: it never was.
  bool Await(const std::function<bool(const std::vector<v1alpha1::ControllerMessage>&)>& what) {
    const absl::Time limit = absl::Now() + kTimeout;
    sync::MutexLock lock(mutex_);
    while (!what(heard_)) {
      if (absl::Now() >= limit) return false;
      changed_.WaitFor(mutex_, absl::Milliseconds(100));
    }
    return true;
  }
  bool AwaitCalls(int calls) {
    const absl::Time limit = absl::Now() + kTimeout;
    sync::MutexLock lock(mutex_);
    while (calls_ < calls) {
      if (absl::Now() >= limit) return false;
      changed_.WaitFor(mutex_, absl::Milliseconds(100));
    }
    return true;
  }
  // Whether the last caller was this job's controller.
  bool allowed() {
    sync::MutexLock lock(mutex_);
    return allowed_.ok();
  }

 private:
  const std::string boot_id_;
  const bool mute_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  sync::Mutex mutex_;
  sync::Condition changed_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::Status allowed_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1alpha1::ControllerMessage> heard_ ABSL_GUARDED_BY(mutex_);
};

// The links, and a count of how often the job was to be looked at.
struct Subject {
  explicit Subject(GrpcLinkOptions options)
      : links(clock, std::move(options), [this](const runtime::Key&) {
          sync::MutexLock lock(mutex);
          ++looks;
          changed.NotifyAll();
        }) {}

  // Until what is seen of the job satisfies `what`.
  bool Await(const std::function<bool(const ObservedLink&)>& what) {
    const absl::Time limit = absl::Now() + kTimeout;
    while (true) {
      const auto seen = links.Look(kJob);
      if (!seen.empty() && what(seen.front())) return true;
      if (absl::Now() >= limit) return false;
      sync::MutexLock lock(mutex);
      changed.WaitFor(mutex, absl::Milliseconds(10));
    }
  }

  clock::SystemClock clock;
  sync::Mutex mutex;
  sync::Condition changed;
  int looks ABSL_GUARDED_BY(mutex) = 0;
  GrpcCoordinatorLinks links;
};

GrpcLinkOptions Quick(int port) {
  GrpcLinkOptions options;
  options.port = port;
  options.lease_transition = 5;
  options.seed = kSeed;
  options.tick = absl::Milliseconds(2);
  options.redial = absl::Milliseconds(2);
  options.repeat = absl::Milliseconds(50);
  return options;
}

Supervision Target() {
  Supervision target;
  target.pod_uid = "uid-0";
  target.address = "127.0.0.1";
  return target;
}

Supervision Wishes(const std::string& boot_id) {
  Supervision wishes = Target();
  wishes.boot_id = boot_id;
  wishes.grant.emplace();
  wishes.grant->set_incarnation(3);
  wishes.grant->set_boot_id(boot_id);
  wishes.desired.emplace();
  wishes.desired->set_workers(2);
  return wishes;
}

TEST(GrpcLinks, FirstReportBringsTheBootId) {
  FakeCoordinator coordinator("boot-a");
  Subject subject(Quick(coordinator.port()));
  subject.links.Supervise(kJob, {Target()}, kUid);

  EXPECT_TRUE(subject.Await([](const ObservedLink& link) {
    return link.heard && link.report.boot_id() == "boot-a" && link.pod_uid == "uid-0";
  }));
  EXPECT_TRUE(coordinator.allowed());
}

TEST(GrpcLinks, ACoordinatorThatHasAnAddressOfIPv6IsReached) {
  if (!net::Listen({"::1", 0}).ok()) GTEST_SKIP() << "this machine has no address ::1";
  FakeCoordinator coordinator("boot-a", 0, false, CoordinatorsLeaf(), "[::1]");
  Subject subject(Quick(coordinator.port()));
  Supervision target = Target();
  target.address = "::1";
  subject.links.Supervise(kJob, {target}, kUid);

  EXPECT_TRUE(subject.Await([](const ObservedLink& link) { return link.heard; }));
  EXPECT_TRUE(coordinator.allowed());
}

TEST(GrpcLinks, GrantComesFirstAndWishesAreRepeatedWithRisingNumbers) {
  FakeCoordinator coordinator("boot-a");
  Subject subject(Quick(coordinator.port()));
  subject.links.Supervise(kJob, {Wishes("boot-a")}, kUid);

  ASSERT_TRUE(coordinator.Await([](const auto& heard) { return heard.size() >= 4; }));
  EXPECT_TRUE(coordinator.Await([](const auto& heard) {
    return heard[0].grant().incarnation() == 3 && heard[1].desired().workers() == 2 &&
           heard[1].desired().lease_transition() == 5 &&
           heard[2].desired().sequence() > heard[1].desired().sequence() &&
           heard[3].desired().sequence() > heard[2].desired().sequence();
  }));
}

TEST(GrpcLinks, ChangedWishesAreSaidAtOnce) {
  FakeCoordinator coordinator("boot-a");
  GrpcLinkOptions options = Quick(coordinator.port());
  options.repeat = absl::Hours(1);
  Subject subject(options);
  Supervision wishes = Wishes("boot-a");
  subject.links.Supervise(kJob, {wishes}, kUid);
  ASSERT_TRUE(coordinator.Await([](const auto& heard) { return heard.size() >= 2; }));
  wishes.desired->set_workers(4);
  subject.links.Supervise(kJob, {wishes}, kUid);

  EXPECT_TRUE(coordinator.Await(
      [](const auto& heard) { return heard.size() == 3 && heard[2].desired().workers() == 4; }));
}

TEST(GrpcLinks, AHigherGrantIsSaidBeforeWhatIsWantedUnderIt) {
  FakeCoordinator coordinator("boot-a");
  Subject subject(Quick(coordinator.port()));
  Supervision wishes = Wishes("boot-a");
  subject.links.Supervise(kJob, {wishes}, kUid);
  ASSERT_TRUE(coordinator.Await([](const auto& heard) { return heard.size() >= 2; }));
  wishes.grant->set_incarnation(7);
  wishes.desired->set_workers(9);
  subject.links.Supervise(kJob, {wishes}, kUid);

  EXPECT_TRUE(coordinator.Await([](const auto& heard) {
    const auto grant = std::ranges::find_if(
        heard, [](const auto& said) { return said.grant().incarnation() == 7; });
    const auto desired =
        std::ranges::find_if(heard, [](const auto& said) { return said.desired().workers() == 9; });
    return desired != heard.end() && grant < desired;
  }));
}

TEST(GrpcLinks, EachOfTwoCoordinatorsHasAStreamUntilItIsDropped) {
  FakeCoordinator leads("boot-a");
  FakeCoordinator waits("boot-s", leads.port(), false, CoordinatorsLeaf(), "127.0.0.2");
  Subject subject(Quick(leads.port()));
  Supervision other = Target();
  other.pod_uid = "the other";
  other.address = "127.0.0.2";
  const auto boots = [&] {
    std::set<std::string> heard;
    for (const ObservedLink& link : subject.links.Look(kJob)) heard.insert(link.report.boot_id());
    return heard;
  };
  const absl::Time limit = absl::Now() + kTimeout;
  const auto await = [&](const std::set<std::string>& wanted) {
    while (boots() != wanted && absl::Now() < limit) {
      sync::MutexLock lock(subject.mutex);
      subject.changed.WaitFor(subject.mutex, absl::Milliseconds(20));
    }
    return boots() == wanted;
  };
  subject.links.Supervise(kJob, {Target(), other}, kUid);
  EXPECT_TRUE(await({"boot-a", "boot-s"}));
  EXPECT_EQ(subject.links.Count().reporting, 2);
  subject.links.Supervise(kJob, {other, Target()}, kUid);
  EXPECT_TRUE(leads.AwaitCalls(1) && waits.AwaitCalls(1));
  subject.links.Supervise(kJob, {other}, kUid);
  EXPECT_TRUE(await({"boot-s"}));
}

TEST(GrpcLinks, WishesForAnotherProcessAreNotSaid) {
  FakeCoordinator coordinator("boot-b");
  Subject subject(Quick(coordinator.port()));
  subject.links.Supervise(kJob, {Wishes("boot-a")}, kUid);
  ASSERT_TRUE(subject.Await([](const ObservedLink& link) { return link.heard; }));
  subject.links.Supervise(kJob, {Wishes("boot-b")}, kUid);

  // Nothing comes before the grant that is meant for this process.
  ASSERT_TRUE(coordinator.Await([](const auto& heard) { return !heard.empty(); }));
  EXPECT_TRUE(
      coordinator.Await([](const auto& heard) { return heard[0].grant().boot_id() == "boot-b"; }));
}

TEST(GrpcLinks, CoordinatorThatSaysNothingIsDialledAnew) {
  FakeCoordinator coordinator("boot-a", 0, /*mute=*/true);
  GrpcLinkOptions options = Quick(coordinator.port());
  options.answer = absl::Milliseconds(50);
  Subject subject(options);
  subject.links.Supervise(kJob, {Target()}, kUid);

  EXPECT_TRUE(coordinator.AwaitCalls(3));
  EXPECT_FALSE(subject.links.Look(kJob).at(0).heard);
}

TEST(GrpcLinks, ProcessThatStartsLaterIsFound) {
  int port = 0;
  { port = FakeCoordinator("boot-a").port(); }
  Subject subject(Quick(port));
  subject.links.Supervise(kJob, {Target()}, kUid);
  // Until some dials were refused.
  EXPECT_TRUE(subject.Await(
      [](const ObservedLink& link) { return link.silent > absl::Milliseconds(100); }));
  FakeCoordinator coordinator("boot-b", port);

  EXPECT_TRUE(
      subject.Await([](const ObservedLink& link) { return link.report.boot_id() == "boot-b"; }));
}

// Whether the links ever hear a coordinator that shows this leaf.
bool IsHeard(const tls::Identity& leaf) {
  FakeCoordinator stranger("boot-x", 0, /*mute=*/false, leaf);
  Subject subject(Quick(stranger.port()));
  subject.links.Supervise(kJob, {Target()}, kUid);
  return subject.Await([](const ObservedLink& link) {
    return link.heard || link.silent > absl::Milliseconds(300);
  }) && subject.links.Look(kJob).at(0).heard;
}

TEST(GrpcLinks, OnlyTheCoordinatorOfThisJobIsListenedTo) {
  EXPECT_TRUE(IsHeard(CoordinatorsLeaf()));
  EXPECT_FALSE(IsHeard(LeafOf(resources::Role::kWorker, kUid)));
  EXPECT_FALSE(IsHeard(LeafOf(resources::Role::kCoordinator, "uid-of-another-job")));
  const auto forged = resources::MakeJobCredentials(std::string(32, 'x'), kUid, absl::Now());
  EXPECT_FALSE(IsHeard(forged->leaves.at(resources::Role::kCoordinator)));
}

TEST(GrpcLinks, AnotherControllerOfTheSameSeedIsAccepted) {
  // The leaf was made by one process, the stream's other end by another one.
  FakeCoordinator coordinator(
      "boot-a", 0, false,
      resources::MakeJobCredentials(kSeed, kUid, absl::Now() - absl::Hours(5))
          ->leaves.at(resources::Role::kCoordinator));
  Subject subject(Quick(coordinator.port()));
  subject.links.Supervise(kJob, {Target()}, kUid);
  EXPECT_TRUE(subject.Await([](const ObservedLink& link) { return link.heard; }));
  EXPECT_TRUE(coordinator.allowed());
}

TEST(GrpcLinks, ReleasedJobIsForgotten) {
  FakeCoordinator coordinator("boot-a");
  Subject subject(Quick(coordinator.port()));
  subject.links.Supervise(kJob, {Target()}, kUid);
  ASSERT_TRUE(subject.Await([](const ObservedLink& link) { return link.heard; }));

  subject.links.Release(kJob);

  EXPECT_TRUE(subject.links.Look(kJob).empty());
}

// Many links at once, each refused every few milliseconds, come and go.
TEST(GrpcLinks, ThousandsOfRefusedCallsDoNoHarm) {
  int port = 0;
  { port = FakeCoordinator("boot-a").port(); }
  Subject subject(Quick(port));
  const absl::Time end = absl::Now() + absl::Seconds(3);
  for (int round = 0; absl::Now() < end; ++round) {
    for (int i = 0; i < 16; ++i) {
      subject.links.Supervise({.ns = "default", .name = std::to_string(i)}, {Target()}, kUid);
    }
    sync::MutexLock lock(subject.mutex);
    subject.changed.WaitFor(subject.mutex, absl::Milliseconds(30));
    if (round % 4 == 3) {
      for (int i = 0; i < 16; i += 2) {
        subject.links.Release({.ns = "default", .name = std::to_string(i)});
      }
    }
  }
}

}  // namespace
}  // namespace starling::trainingjob
