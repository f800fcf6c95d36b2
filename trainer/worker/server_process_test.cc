// SPDX-License-Identifier: Apache-2.0
// Whole jobs whose servers are processes. They kill themselves, as kill -9 would, at every named
// place, at the head, in the middle and at the tail of a chain; and they come, go and die beside
// workers that do. Updates are whole numbers, one for each use of a sample, so the model itself
// says whether one was lost or applied twice.
#include "trainer/testing/server_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "nlohmann/json.hpp"
#include "trainer/server/snapshot_writer.h"
#include "trainer/testing/visit_job.h"

namespace starling::worker {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Links = ServerCluster::Links;

// What workers saw of a kill: whether anything was undone, and how long nothing went on.
class Watch {
 public:
  explicit Watch(ServerCluster& cluster) : cluster_(cluster) {}

  // As cluster.Await(), with a look at each turn.
  bool Await(const std::function<bool()>& condition) {
    return cluster_.Await([&] {
      Look();
      return condition();
    });
  }
  v1alpha1::Result AwaitResult() {
    (void)Await([&] { return cluster_.Training().has_result(); });
    return cluster_.Training().result();
  }
  absl::Duration longest() const { return longest_; }
  std::int64_t undone() const { return undone_; }

 private:
  void Look() {
    const std::int64_t settled = cluster_.coordinator().settled();
    const absl::Time now = clock_.Now();
    if (!cluster_.coordinator().AllDone() && settled > 0)
      longest_ = std::max(longest_, now - since_);
    if (settled == settled_) return;
    undone_ += std::max<std::int64_t>(0, settled_ - settled);
    settled_ = settled;
    since_ = now;
  }

  ServerCluster& cluster_;
  const clock::SystemClock clock_;
  std::int64_t settled_ = 0;
  absl::Time since_ = clock_.Now();
  absl::Duration longest_ = absl::ZeroDuration();
  std::int64_t undone_ = 0;
};

// What the incidents say: each that was not over yet says the same.
std::int64_t RepeatedSteps(ServerCluster& cluster) {
  std::int64_t most = 0;
  for (const membership::IncidentRecord& incident : cluster.Summary().incidents) {
    most = std::max(most, incident.repeated_steps);
  }
  return most;
}

std::string IncidentsOf(ServerCluster& cluster) {
  std::string text;
  for (const membership::IncidentRecord& incident : cluster.Summary().incidents) {
    absl::StrAppend(&text, incident.reason, ": ", incident.pod, ", ", incident.message, "\n");
  }
  return text;
}

constexpr std::int64_t kStaleness = 2;
// Of one, while another stands still: each may be so many clocks before the other, and begins one
// more.
constexpr std::int64_t kMostReads = 2 * kStaleness + 2;

constexpr int kHead = 0, kMiddle = 1, kTail = 2;

struct KillCase {
  const char* name;
  const char* place;
  int passes;
  int position;
  int servers = 3;
  Links links = Links::kMixed;
};
void PrintTo(const KillCase& one, std::ostream* out) { *out << one.name; }

class ServerProcessTest : public ClientWorkerTest {
 protected:
  static constexpr std::int64_t kEpochs = 20;

  static v1alpha1::TrainingJobSpec Job(std::int64_t epochs, int replication, int shards) {
    v1alpha1::TrainingJobSpec spec = VisitJob(epochs);
    ModelOf(spec).mutable_stale_synchronous()->set_staleness(kStaleness);
    spec.mutable_exchange()->mutable_parameter_server()->set_replication(replication);
    spec.mutable_exchange()->mutable_parameter_server()->set_shards(shards);
    return spec;
  }
  // The whole chain of the first shard, which is the model's, once it is that long and has worked.
  static std::vector<std::string> ChainOf(ServerCluster& cluster, std::size_t length) {
    std::vector<std::string> chain;
    EXPECT_TRUE(cluster.Await([&] {
      const membership::View* view = cluster.coordinator().view();
      return view != nullptr && view->groups[0].members.size() == length;
    }));
    EXPECT_TRUE(cluster.AwaitSettled(cluster.coordinator().settled() + 20));
    for (const auto& id : cluster.coordinator().view()->groups[0].members)
      chain.push_back(id.pod_uid);
    return chain;
  }
};

class KilledAtAPlace : public ServerProcessTest, public ::testing::WithParamInterface<KillCase> {};

TEST_P(KilledAtAPlace, EveryPushCountsOnceAndNobodyWaitsForASecond) {
  const KillCase& one = GetParam();
  v1alpha1::TrainingJobSpec spec = Job(kEpochs, one.servers, 1);
  spec.mutable_checkpoint()->mutable_interval()->set_nanos(50'000'000);
  ServerCluster cluster(spec, VisitData(), NewVisitEngine, NewJobDir(), one.links);
  cluster.AddServers(one.servers);
  cluster.AddWorkers(2);
  const std::vector<std::string> chain = ChainOf(cluster, static_cast<std::size_t>(one.servers));
  const std::string victim = chain[static_cast<std::size_t>(one.position)];
  Watch watch(cluster);

  cluster.Arm(victim, absl::StrCat(one.place, ":", one.passes));
  if (std::string_view(one.place) == parameter_server::kFailRebalance) {
    const std::string other = chain[one.position == kHead ? kMiddle : kHead];
    cluster.Kill(other);
    cluster.Restart(other);
  }
  ASSERT_TRUE(watch.Await([&] { return cluster.Dead(victim); })) << victim << " never came there";
  EXPECT_LT(cluster.coordinator().settled(), kEpochs * kPerEpoch) << "in the midst of training";
  cluster.Restart(victim);

  EXPECT_THAT(VisitsOf(watch.AwaitResult()), Each(static_cast<float>(kEpochs)));
  EXPECT_LT(watch.longest(), absl::Seconds(1));
  EXPECT_EQ(watch.undone(), 0);
  EXPECT_EQ(RepeatedSteps(cluster), 0);
}

// Who takes pushes is the head, who answers and saves is the tail; copies are the tail's to hand
// out, too.
INSTANTIATE_TEST_SUITE_P(
    Places, KilledAtAPlace,
    ::testing::Values(
        KillCase{"HeadAtPush", parameter_server::kFailPush, 1, kHead},
        KillCase{"HeadAtALaterPush", parameter_server::kFailPush, 70, kHead},
        KillCase{"HeadAtApply", parameter_server::kFailApply, 30, kHead},
        KillCase{"MiddleAtApply", parameter_server::kFailApply, 30, kMiddle},
        KillCase{"TailAtApply", parameter_server::kFailApply, 30, kTail},
        KillCase{"HeadAtReplicate", parameter_server::kFailReplicate, 30, kHead},
        KillCase{"MiddleAtReplicate", parameter_server::kFailReplicate, 30, kMiddle},
        KillCase{"TailAtAcknowledge", parameter_server::kFailAcknowledge, 1, kTail},
        KillCase{"TailAtALaterAcknowledge", parameter_server::kFailAcknowledge, 70, kTail},
        KillCase{"TailAtRebalance", parameter_server::kFailRebalance, 1, kTail},
        KillCase{"TailAtCheckpoint", server::kFailCheckpoint, 2, kTail},
        KillCase{"OfTwoAtPush", parameter_server::kFailPush, 30, 0, 2, Links::kTcp},
        KillCase{"OfTwoHeadAtApply", parameter_server::kFailApply, 30, 0, 2, Links::kTcp},
        KillCase{"OfTwoTailAtApply", parameter_server::kFailApply, 30, 1, 2, Links::kTcp},
        KillCase{"OfTwoAtReplicate", parameter_server::kFailReplicate, 30, 0, 2, Links::kTcp},
        KillCase{"OfTwoAtAcknowledge", parameter_server::kFailAcknowledge, 30, 1, 2, Links::kTcp},
        KillCase{"OfTwoAtCheckpoint", server::kFailCheckpoint, 2, 1, 2, Links::kTcp}),
    [](const auto& one) { return std::string(one.param.name); });

// The negative control: with one copy the same kill undoes steps, and what was above sees it: no
// more than since the checkpoint, and as many as the incident says. They are redone, so the sums
// are still exact. (Of one worker, who does leases in their order.)
TEST_F(ServerProcessTest, WithOneCopyTheSameKillUndoesStepsAndTheSumsAreStillExact) {
  constexpr std::int64_t kMany = 4 * kEpochs;  // a checkpoint comes long before the end
  v1alpha1::TrainingJobSpec spec = Job(kMany, 1, 1);
  spec.mutable_checkpoint()->mutable_interval()->set_nanos(400'000'000);
  ServerCluster cluster(spec, VisitData(), NewVisitEngine, NewJobDir(), Links::kMixed);
  cluster.AddServers(1);
  cluster.AddWorkers(1);
  const std::string victim = ChainOf(cluster, 1)[0];
  ASSERT_TRUE(cluster.Await([&] { return cluster.Training().checkpoint().step() > 0; }));
  const std::int64_t saved = cluster.Training().checkpoint().step();
  Watch watch(cluster);
  cluster.Arm(victim, "apply:40");
  ASSERT_TRUE(watch.Await([&] { return cluster.Dead(victim); }));
  const std::int64_t reached = cluster.coordinator().settled();
  cluster.Restart(victim);

  EXPECT_THAT(VisitsOf(watch.AwaitResult()), Each(static_cast<float>(kMany)));
  EXPECT_GT(watch.undone(), 0);
  EXPECT_LE(watch.undone(), reached - saved);
  const std::int64_t redone = RepeatedSteps(cluster);
  EXPECT_NEAR(static_cast<double>(redone), static_cast<double>(watch.undone()), 2);
  // What was computed more than once; one lease may have been on its way.
  const auto computed = static_cast<double>(cluster.EngineOf<VisitEngine>(0).calls().size());
  EXPECT_NEAR(computed - kMany * kPerEpoch, static_cast<double>(redone), 2);
  EXPECT_THAT(IncidentsOf(cluster), HasSubstr(absl::StrCat(redone, " batches are done again")));
}

// Holds some reads for a while and counts how many the others make meanwhile. Thread-safe.
class Pace {
 public:
  explicit Pace(unsigned seed) : random_(seed) {}

  // A process of `worker` has begun; the number that Read() is told.
  int Enter(int worker) {
    const sync::MutexLock lock(mutex_);
    const int process = processes_++;
    of_[worker] = process;
    return process;
  }
  // The worker's process is about to be killed: nobody waits for it any more.
  void Forget(int worker) {
    const sync::MutexLock lock(mutex_);
    if (const auto found = held_.find(of_[worker]); found != held_.end()) {
      found->second.forgotten = true;
    }
    changed_.NotifyAll();
  }
  void OnView() {
    const sync::MutexLock lock(mutex_);
    ++views_;
  }
  // A process has read the parameters and begins to compute.
  void Read(int process) {
    const sync::MutexLock lock(mutex_);
    ++reads_;
    for (auto& [other, held] : held_) ++held.reads[process];
    changed_.NotifyAll();
    if (random_() % 15 != 0) return;
    Held& mine = held_[process] = {.views = views_};
    const net::Deadline deadline = net::Deadline::After(absl::Milliseconds(40));
    while (!deadline.Expired() && !mine.forgotten && Most(mine) <= 3 * kMany) {
      changed_.WaitFor(mutex_, absl::Milliseconds(5));
    }
    // In a new view what was under way is read once more.
    const std::int64_t ahead = Most(mine) - 2 * (views_ - mine.views);
    if (!mine.forgotten) {
      ++checked_;
      furthest_ = std::max(furthest_, ahead);
    }
    held_.erase(process);
  }

  static constexpr std::int64_t kMany = 10;
  // Reads that anybody made while another stood still, and how often one did.
  std::int64_t furthest() {
    const sync::MutexLock lock(mutex_);
    return furthest_;
  }
  std::int64_t checked() {
    const sync::MutexLock lock(mutex_);
    return checked_;
  }
  std::int64_t reads() {
    const sync::MutexLock lock(mutex_);
    return reads_;
  }

 private:
  struct Held {
    std::int64_t views = 0;
    bool forgotten = false;
    std::map<int, std::int64_t> reads{};  // by others, since
  };
  static std::int64_t Most(const Held& held) {
    std::int64_t most = 0;
    for (const auto& [process, count] : held.reads) most = std::max(most, count);
    return most;
  }

  sync::Mutex mutex_;
  sync::Condition changed_;
  std::mt19937 random_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Held> held_ ABSL_GUARDED_BY(mutex_);
  std::map<int, int> of_ ABSL_GUARDED_BY(mutex_);
  int processes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t views_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t reads_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t furthest_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t checked_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A job that is resized and hurt at random. Confined to the test's thread.
class Elastic {
 public:
  Elastic(const v1alpha1::TrainingJobSpec& spec, const std::string& folder, unsigned seed)
      : random_(seed),
        pace_(seed),
        cluster_(
            spec, VisitData(),
            [this](int worker) {
              return std::make_unique<VisitEngine>(
                  kSamples,
                  [this, process = pace_.Enter(worker)](std::size_t) { pace_.Read(process); });
            },
            folder, Links::kMixed),
        watch_(cluster_) {}

  bool Await(const std::function<bool()>& condition) {
    return watch_.Await([&] {
      const auto* view = cluster_.coordinator().view();
      if (view != nullptr && std::exchange(view_, view->number) != view->number) pace_.OnView();
      return condition();
    });
  }
  void Add(int servers, int workers) {
    for (int i = 0; i < servers; ++i) servers_.push_back(added_servers_++);
    for (int i = 0; i < workers; ++i) workers_.push_back(added_workers_++);
    if (servers > 0) cluster_.AddServers(servers);
    if (workers > 0) cluster_.AddWorkers(workers);
  }
  // Somebody goes, in an orderly way.
  void DrainServer() { cluster_.Drain(ServerCluster::ServerUid(Draw(servers_))); }
  void DrainWorker() { cluster_.Drain(ServerCluster::WorkerUid(Draw(workers_))); }
  // All there are work in one view, each shard has its copies, and 20 leases were done in it: so
  // another one may be killed and nothing be lost.
  bool AwaitSizes() {
    std::uint64_t view = 0;
    std::int64_t settled = 0;
    return Await([&] {
      const auto* now = cluster_.coordinator().view();
      bool whole = now != nullptr && now->servers().size() == servers_.size() &&
                   now->workers().size() == workers_.size();
      for (std::size_t shard = 0; whole && shard < now->groups.size(); ++shard) {
        whole = now->groups[shard].members.size() == std::min<std::size_t>(2, servers_.size());
      }
      if (!whole) return false;
      if (std::exchange(view, now->number) != now->number) {
        settled = cluster_.coordinator().settled();
      }
      return cluster_.coordinator().settled() >= settled + 20;
    });
  }
  // A server's process, or a worker, is killed and replaced.
  void KillOne() {
    const bool server = random_() % 2 == 0;
    std::vector<int>& among = server ? servers_ : workers_;
    const int victim = among[random_() % among.size()];
    const std::string uid =
        server ? ServerCluster::ServerUid(victim) : ServerCluster::WorkerUid(victim);
    if (!server) pace_.Forget(victim);
    cluster_.Kill(uid);
    const net::Deadline away = net::Deadline::After(absl::Milliseconds(random_() % 100));
    (void)Await([&] { return away.Expired(); });
    cluster_.Restart(uid);
  }
  void KillSome(int times) {
    for (int i = 0; i < times; ++i) {
      KillOne();
      ASSERT_TRUE(AwaitSizes()) << "after kill " << i;
    }
  }
  v1alpha1::Result AwaitResult() {
    (void)Await([&] { return cluster_.Training().has_result(); });
    return cluster_.Training().result();
  }

  ServerCluster& cluster() { return cluster_; }
  const Watch& watch() const { return watch_; }
  Pace& pace() { return pace_; }

 private:
  int Draw(std::vector<int>& from) {
    const auto at = from.begin() + static_cast<std::ptrdiff_t>(random_() % from.size());
    const int drawn = *at;
    from.erase(at);
    return drawn;
  }

  std::mt19937 random_;
  Pace pace_;
  ServerCluster cluster_;
  Watch watch_;
  std::uint64_t view_ = 0;
  std::vector<int> servers_, workers_;
  int added_servers_ = 0, added_workers_ = 0;
};

// As the audit says: the samples of each epoch, each once.
void ExpectAuditExact(const std::vector<std::string>& lines, std::int64_t epochs) {
  std::map<std::int64_t, std::multiset<std::int64_t>> used;
  std::set<std::int64_t> steps;
  for (const std::string& line : lines) {
    const nlohmann::json step = nlohmann::json::parse(line);
    EXPECT_TRUE(steps.insert(step["step"].get<std::int64_t>()).second) << line;
    for (const auto& sample : step["samples"]) {
      used[step["epoch"].get<std::int64_t>()].insert(sample.get<std::int64_t>());
    }
  }
  EXPECT_EQ(used.size(), static_cast<std::size_t>(epochs));
  for (const auto& [epoch, samples] : used) {
    EXPECT_EQ(samples.size(), static_cast<std::size_t>(kSamples)) << epoch;
    EXPECT_EQ(std::set<std::int64_t>(samples.begin(), samples.end()).size(),
              static_cast<std::size_t>(kSamples))
        << epoch;
  }
}

// STARLING_CHAOS_SEED sets who dies and stands still when.
TEST_F(ServerProcessTest, ServersOneThreeTwoWorkersOneFourTwoWithKillsBetweenAllIsExact) {
  const char* wanted = std::getenv("STARLING_CHAOS_SEED");
  const auto seed = wanted == nullptr ? 1U : static_cast<unsigned>(std::atoi(wanted));
  constexpr std::int64_t kLong = 30;
  v1alpha1::TrainingJobSpec spec = Job(kLong, 2, 16);
  spec.mutable_checkpoint()->mutable_interval()->set_nanos(100'000'000);
  const std::string folder = NewJobDir();
  Elastic job(spec, folder, seed);
  job.Add(1, 1);
  ASSERT_TRUE(job.AwaitSizes());
  job.Add(2, 3);
  ASSERT_TRUE(job.AwaitSizes());
  ASSERT_NO_FATAL_FAILURE(job.KillSome(4));
  job.DrainServer();
  job.DrainWorker();
  job.DrainWorker();
  ASSERT_TRUE(job.AwaitSizes());
  ASSERT_NO_FATAL_FAILURE(job.KillSome(2));
  EXPECT_LT(job.cluster().coordinator().settled(), kLong * kPerEpoch) << "in the midst of training";

  EXPECT_THAT(VisitsOf(job.AwaitResult()), Each(static_cast<float>(kLong)));
  ExpectAuditExact(LinesOf(folder + "/audit/steps.jsonl"), kLong);
  EXPECT_EQ(job.watch().undone(), 0);
  EXPECT_EQ(RepeatedSteps(job.cluster()), 0);
  EXPECT_LE(job.pace().furthest(), kMostReads);
  EXPECT_GE(job.pace().checked(), 50) << "of " << job.pace().reads() << " reads";
}

// The negative control: without a bound the others go on while one stands still.
TEST_F(ServerProcessTest, WithoutABoundTheSameCountIsHigher) {
  v1alpha1::TrainingJobSpec spec = Job(10, 2, 16);
  ModelOf(spec).mutable_asynchronous();
  Elastic job(spec, NewJobDir(), 1);
  job.Add(2, 3);
  EXPECT_THAT(VisitsOf(job.AwaitResult()), Each(10.0F));
  EXPECT_GT(job.pace().furthest(), kMostReads);
}

}  // namespace
}  // namespace starling::worker

int main(int argc, char** argv) {
  if (starling::worker::IsServer(argc, argv)) return starling::worker::ServeAsProcess(argc, argv);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
