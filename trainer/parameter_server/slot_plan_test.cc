// SPDX-License-Identifier: Apache-2.0
// The rules one at a time; trainer/simulation plays them together, under faults.
#include "trainer/parameter_server/slot_plan.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/parameter_server/lease_book.h"

namespace starling::parameter_server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr std::size_t kSlots = 4;

// A job whose processes do at once what they are told.
class Job {
 public:
  explicit Job(int replication, std::uint64_t incarnation = 1, ViewNumber newest_view = 0,
               const Balance& balance = {})
      : plan_(OptionsOf(replication, incarnation, newest_view, balance)) {}

  MemberId Server(int index) {
    return Add({absl::StrCat("server-", index), 0}, index, /*server=*/true);
  }
  MemberId Worker(int index) {
    return Add({absl::StrCat("worker-", index), 0}, index, /*server=*/false);
  }
  Participant& At(const MemberId& id) {
    return *std::find_if(census_.participants.begin(), census_.participants.end(),
                         [&](const Participant& one) { return one.id == id; });
  }
  void End(const MemberId& id) {
    std::erase_if(census_.participants, [&](const Participant& one) { return one.id == id; });
  }
  Census& census() { return census_; }
  SlotPlan& plan() { return plan_; }

  std::optional<JobView> Plan() { return plan_.Plan(census_, now_); }
  void Pass(absl::Duration time) { now_ += time; }
  // Everybody installs the newest view, and every chain syncs.
  void Follow() {
    const JobView& view = plan_.newest();
    for (Participant& one : census_.participants) {
      if (one.presence != Presence::kReporting) continue;
      one.fence = view.number;
      one.broken = false;
      for (std::size_t slot = 0; slot < one.slots.size(); ++slot) {
        const auto& chain = view.slots[slot].chain;
        if (std::find(chain.begin(), chain.end(), one.id) == chain.end()) continue;
        one.slots[slot] = {StateId{view.number, 7}, false, false};
      }
    }
  }
  // Plans and follows until nothing is left to be done; caches are filled as asked for.
  int Settle() {
    for (int views = 0;; ++views) {
      if (!Plan()) {
        bool fetched = false;
        for (Participant& one : census_.participants) {
          for (const std::size_t slot : plan_.FetchAhead(one.id)) {
            one.slots[slot].cached = fetched = true;
          }
        }
        if (!fetched || !Plan()) return views;
      }
      Follow();
    }
  }

 private:
  static SlotPlan::Options OptionsOf(int replication, std::uint64_t incarnation,
                                     ViewNumber newest_view, const Balance& balance) {
    SlotPlan::Options options;
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      options.slots.push_back({static_cast<std::uint32_t>(slot), {0, 100}});
    }
    options.placement.replication = replication;
    options.incarnation = incarnation;
    options.newest_view = newest_view;
    options.balance = balance;
    return options;
  }
  MemberId Add(const MemberId& id, int index, bool server) {
    Participant one;
    one.id = id;
    one.pod = id.pod_uid;
    one.index = index;
    one.server = server;
    one.presence = Presence::kReporting;
    if (server) one.slots.resize(kSlots);
    census_.participants.push_back(one);
    ++(server ? census_.servers : census_.clients);
    return id;
  }

  Census census_;
  SlotPlan plan_;
  absl::Time now_ = absl::UnixEpoch();
};

bool In(const std::vector<MemberId>& chain, const MemberId& id) {
  return std::find(chain.begin(), chain.end(), id) != chain.end();
}

TEST(SlotPlanTest, TheFirstViewHasEveryoneAndLetsServersOfferSnapshots) {
  Job job(2);
  EXPECT_EQ(job.Plan(), std::nullopt);
  EXPECT_THAT(job.plan().waiting(), HasSubstr("waits for parameter servers"));
  job.Server(0);
  job.Server(1);
  EXPECT_TRUE(job.Plan());
  const JobView& view = job.plan().newest();
  EXPECT_EQ(view.number, membership::MakeViewNumber(1, 1));
  ASSERT_THAT(view.slots, SizeIs(kSlots));
  for (const SlotPart& part : view.slots) {
    EXPECT_THAT(part.chain, SizeIs(2));
    EXPECT_TRUE(part.restore);
  }
  EXPECT_EQ(job.Plan(), std::nullopt);  // one at a time
  job.Follow();
  EXPECT_EQ(job.Plan(), std::nullopt);  // and none without a reason
  EXPECT_TRUE(job.plan().running());
}

TEST(SlotPlanTest, WorkersComeAndGoAndKeepTheViewTheyJoinedIn) {
  Job job(1);
  job.Server(0);
  const MemberId first = job.Worker(0);
  job.Settle();
  const ViewNumber joined = job.plan().newest().clients[0].joined;
  const MemberId second = job.Worker(1);
  EXPECT_EQ(job.Settle(), 1);
  EXPECT_EQ(job.plan().newest().clients[0].joined, joined);
  EXPECT_GT(job.plan().newest().clients[1].joined, joined);
  job.At(first).presence = Presence::kSilent;
  EXPECT_EQ(job.Settle(), 1);
  EXPECT_THAT(job.plan().newest().clients, SizeIs(1));
  job.At(first).presence = Presence::kReporting;  // it missed a view: another client
  EXPECT_EQ(job.Settle(), 1);
  EXPECT_GT(job.plan().newest().clients[0].joined, joined);
  EXPECT_FALSE(job.plan().newest().HasClient({first, joined}));
}

TEST(SlotPlanTest, AServersDeathLeavesTheRestOfTheChainAndADeadViewIsForgotten) {
  Job job(2);
  const MemberId a = job.Server(0), b = job.Server(1);
  job.Settle();
  job.End(a);
  ASSERT_TRUE(job.Plan());
  for (const SlotPart& part : job.plan().newest().slots) {
    EXPECT_THAT(part.chain, ElementsAre(b));
    EXPECT_THAT(part.since, SizeIs(1));
    EXPECT_THAT(part.waived, IsEmpty());
    EXPECT_FALSE(part.restore);
  }
  job.Follow();
  EXPECT_EQ(job.Plan(), std::nullopt);
  job.Worker(0);
  ASSERT_TRUE(job.Plan());
  const auto& since = job.plan().newest().slots[0].since;
  ASSERT_THAT(since, SizeIs(1));  // the view of both is overtaken
  EXPECT_EQ(since[0].number, membership::MakeViewNumber(1, 2));
}

TEST(SlotPlanTest, AServerThatIsOnlySilentIsWaitedForWhereItAloneKnows) {
  Job job(1);
  const MemberId a = job.Server(0), b = job.Server(1);
  job.Settle();
  job.At(a).presence = Presence::kSilent;
  EXPECT_EQ(job.Plan(), std::nullopt);
  EXPECT_THAT(job.plan().waiting(), HasSubstr("servers that do not answer"));
  job.End(a);  // now it is certain
  ASSERT_TRUE(job.Plan());
  int restored = 0;
  for (const SlotPart& part : job.plan().newest().slots) {
    EXPECT_THAT(part.chain, ElementsAre(b));
    restored += part.restore ? 1 : 0;
    EXPECT_EQ(part.restore, !part.waived.empty());
  }
  EXPECT_GT(restored, 0);
  EXPECT_LT(restored, static_cast<int>(kSlots));
}

TEST(SlotPlanTest, WhereASlotIsRestoredAllClientsStartOver) {
  Job job(1);
  const MemberId a = job.Server(0);
  const MemberId worker = job.Worker(0);
  job.Settle();
  const ViewNumber joined = job.plan().newest().clients[0].joined;
  job.End(a);
  job.census().servers = 1;
  EXPECT_EQ(job.Plan(), std::nullopt);  // nobody serves
  job.Server(1);
  job.census().servers = 2;
  ASSERT_TRUE(job.Plan());
  EXPECT_FALSE(job.plan().newest().HasClient({worker, joined}));
  EXPECT_THAT(job.plan().newest().clients, SizeIs(1));
}

TEST(SlotPlanTest, AJoinerFirstFillsItsCacheAndThenTakesItsShare) {
  Job job(1);
  const MemberId a = job.Server(0);
  job.Settle();
  const MemberId b = job.Server(1);
  ASSERT_TRUE(job.Plan());
  EXPECT_TRUE(job.plan().newest().HasServer(b));
  for (const SlotPart& part : job.plan().newest().slots) EXPECT_THAT(part.chain, ElementsAre(a));
  job.Follow();
  EXPECT_EQ(job.Plan(), std::nullopt);
  const std::vector<std::size_t> ahead = job.plan().FetchAhead(b);
  ASSERT_THAT(ahead, Not(IsEmpty()));
  for (const std::size_t slot : ahead) job.At(b).slots[slot].cached = true;
  // A cache is no witness: where the chain moves as a whole, who holds the slot hands it over.
  ASSERT_TRUE(job.Plan());
  for (const std::size_t slot : ahead) {
    EXPECT_THAT(job.plan().newest().slots[slot].chain, ElementsAre(a, b));
  }
  job.Follow();
  job.Settle();
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    const bool moved = std::find(ahead.begin(), ahead.end(), slot) != ahead.end();
    EXPECT_THAT(job.plan().newest().slots[slot].chain, ElementsAre(moved ? b : a));
    EXPECT_FALSE(job.plan().newest().slots[slot].restore);
  }
}

TEST(SlotPlanTest, ASlowCacheDoesNotHoldUpTheOthersForEver) {
  Job job(2);
  const MemberId a = job.Server(0);
  job.Settle();
  const MemberId b = job.Server(1);
  ASSERT_TRUE(job.Plan());
  job.Follow();
  EXPECT_EQ(job.Plan(), std::nullopt);
  job.At(b).slots[2].cached = true;
  EXPECT_EQ(job.Plan(), std::nullopt);
  job.Pass(absl::Seconds(11));
  ASSERT_TRUE(job.Plan());
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    EXPECT_EQ(In(job.plan().newest().slots[slot].chain, b), slot == 2);
    EXPECT_TRUE(In(job.plan().newest().slots[slot].chain, a));
  }
}

TEST(SlotPlanTest, ALeavingServerGoesWhenOthersHoldAllOfItsSlots) {
  Job job(2);
  const MemberId a = job.Server(0), b = job.Server(1);
  job.Server(2);
  job.Settle();
  job.At(b).leaving = true;
  EXPECT_FALSE(job.plan().Released(b));
  EXPECT_GT(job.Settle(), 0);
  EXPECT_FALSE(job.plan().newest().HasServer(b));
  for (const SlotPart& part : job.plan().newest().slots) EXPECT_THAT(part.chain, SizeIs(2));
  EXPECT_TRUE(job.plan().Released(b));
  EXPECT_FALSE(job.plan().Released(a));
}

TEST(SlotPlanTest, TheLastServerStaysUntilSomebodyElseHoldsItsSlots) {
  Job job(1);
  const MemberId a = job.Server(0);
  job.Settle();
  job.At(a).leaving = true;
  EXPECT_EQ(job.Settle(), 0);
  EXPECT_TRUE(job.plan().newest().HasServer(a));
  EXPECT_FALSE(job.plan().Released(a));
}

TEST(SlotPlanTest, FewerServersAreWantedAndTheHighestIndicesGo) {
  Job job(1);
  const MemberId a = job.Server(0), b = job.Server(1);
  job.Settle();
  job.census().servers = 1;
  EXPECT_GT(job.Settle(), 0);
  for (const SlotPart& part : job.plan().newest().slots) EXPECT_THAT(part.chain, ElementsAre(a));
  EXPECT_FALSE(job.plan().newest().HasServer(b));
}

TEST(SlotPlanTest, ABrokenMeshIsReplacedWhenAllSaySoOrAfterAMoment) {
  Job job(1);
  const MemberId a = job.Server(0), worker = job.Worker(0);
  job.Settle();
  job.At(a).broken = true;
  EXPECT_EQ(job.Plan(), std::nullopt);
  job.Pass(absl::Milliseconds(260));
  EXPECT_TRUE(job.Plan());
  job.Follow();
  job.At(a).broken = true;
  job.At(worker).broken = true;
  EXPECT_TRUE(job.Plan());
}

TEST(SlotPlanTest, ASuccessorHearsEveryoneAndAdoptsTheViewThatRuns) {
  Job before(1);
  const MemberId a = before.Server(0), worker = before.Worker(0);
  before.Settle();
  const JobView running = before.plan().newest();
  Job after(1, 2, running.number);
  after.Server(0);
  after.Worker(0);
  after.At(a) = before.At(a);
  after.At(worker).presence = Presence::kUnclear;
  after.plan().Learn(running);
  EXPECT_EQ(after.Plan(), std::nullopt);
  EXPECT_THAT(after.plan().waiting(), HasSubstr("waits for worker-0"));
  after.At(worker) = before.At(worker);
  EXPECT_EQ(after.Plan(), std::nullopt);
  EXPECT_TRUE(after.plan().running());
  EXPECT_EQ(after.plan().newest(), running);
}

TEST(SlotPlanTest, ASuccessorReplacesAViewThatNotEveryoneHas) {
  Job before(1);
  const MemberId a = before.Server(0), worker = before.Worker(0);
  before.Settle();
  const JobView running = before.plan().newest();
  Job after(1, 2, running.number);
  after.Server(0);
  after.Worker(0);
  after.At(a) = before.At(a);
  after.At(worker).fence = 0;  // it will refuse the old coordinator's view from now on
  after.plan().Learn(running);
  ASSERT_TRUE(after.Plan());
  EXPECT_EQ(after.plan().newest().number, membership::MakeViewNumber(2, 1));
  EXPECT_FALSE(after.plan().newest().slots[0].restore);
}

TEST(SlotPlanTest, AViewOfWhichNobodyIsLeftToTellMeansARestore) {
  Job job(1, 3, membership::MakeViewNumber(2, 9));
  job.Server(0);
  ASSERT_TRUE(job.Plan());
  EXPECT_TRUE(job.plan().newest().slots[0].restore);
}

TEST(SlotPlanTest, AServerWithoutAWitnessIsNotSentThereAgain) {
  Job job(1);
  const MemberId a = job.Server(0);
  job.Settle();
  job.At(a).slots[0].lost = true;
  EXPECT_EQ(job.Plan(), std::nullopt);
  EXPECT_THAT(job.plan().waiting(), HasSubstr("waits for a server that knows the last updates"));
}

TEST(SlotPlanTest, MachinesAndMeshSeeTheSameView) {
  Job job(2);
  const MemberId a = job.Server(0), b = job.Server(1), worker = job.Worker(0);
  job.Settle();
  const JobView& view = job.plan().newest();
  const SlotView slot = SlotViewOf(view, 0);
  EXPECT_EQ(slot.group.number, view.number);
  EXPECT_THAT(slot.group.members, SizeIs(2));
  EXPECT_EQ(slot.clients, (std::vector<Client>{{worker, view.number}}));
  const ClientView client = ClientViewOf(view, worker);
  EXPECT_EQ(client.joined, view.number);
  EXPECT_EQ(client.slots[0].head, view.slots[0].chain.front());
  EXPECT_EQ(client.slots[0].tail, view.slots[0].chain.back());
  EXPECT_EQ(ClientViewOf(view, a).joined, 0U);
  EXPECT_THAT(RanksOf(view), ElementsAre(a, b, worker));
}

JobView ViewOf(ViewNumber number, const std::vector<Client>& clients, bool restore = false) {
  JobView view;
  view.number = number;
  for (const Client& client : clients) view.clients.push_back({client.id, "", client.joined, ""});
  view.slots.resize(2);
  view.slots[1].restore = restore;
  return view;
}

LeaseLedger LedgerOf(const std::vector<Lease>& leases) {
  LeaseLedger ledger;
  for (const Lease lease : leases) ledger.Add(lease);
  return ledger;
}

class LeaseBookTest : public testing::Test {
 protected:
  // The first view, and what the slots say in it.
  void Begin(const std::vector<Lease>& first, const std::vector<Lease>& second) {
    book_.OnView(ViewOf(1, {a_, b_}));
    book_.OnLedger(1, 0, LedgerOf(first));
    book_.OnLedger(1, 1, LedgerOf(second));
  }
  const Client a_{{"a", 0}, 1}, b_{{"b", 0}, 1};
  LeaseBook book_{4, 2};
};

TEST_F(LeaseBookTest, NothingIsGivenOutBeforeTheLedgersAreKnown) {
  book_.OnView(ViewOf(1, {a_}));
  book_.OnLedger(1, 0, {});
  EXPECT_THAT(book_.Take(a_, 2), IsEmpty());
  book_.OnLedger(1, 1, {});
  EXPECT_THAT(book_.Take(a_, 2), ElementsAre(1, 2));
  EXPECT_THAT(book_.Take(a_, 9), ElementsAre(3, 4));
}

TEST_F(LeaseBookTest, DoneMeansInEverySlot) {
  Begin({1, 2}, {2, 3});
  EXPECT_FALSE(book_.Done(1));
  EXPECT_TRUE(book_.Done(2));
  EXPECT_FALSE(book_.Done(3));
  EXPECT_THAT(book_.Take(a_, 9), ElementsAre(1, 3, 4));
  EXPECT_FALSE(book_.AllDone());
  for (const Lease lease : {1, 3, 4}) book_.OnDone(lease, a_);
  EXPECT_TRUE(book_.AllDone());
}

TEST_F(LeaseBookTest, WhatSomebodyHeldIsAnothersOnceItIsOutOfTheView) {
  Begin({}, {});
  EXPECT_THAT(book_.Take(a_, 4), SizeIs(4));
  EXPECT_THAT(book_.Take(b_, 4), IsEmpty());
  book_.OnDone(2, a_);
  book_.OnView(ViewOf(2, {b_}));
  EXPECT_THAT(book_.Take(a_, 4), IsEmpty());
  EXPECT_THAT(book_.Take(b_, 4), ElementsAre(1, 3, 4));
}

TEST_F(LeaseBookTest, OnlyClientsOfTheNewestViewAreBelieved) {
  Begin({}, {});
  book_.OnDone(1, {{"a", 0}, 7});
  EXPECT_FALSE(book_.Done(1));
  book_.OnDone(1, a_);
  EXPECT_TRUE(book_.Done(1));
}

TEST_F(LeaseBookTest, ARestoreForgetsWhatIsInNoLedger) {
  Begin({}, {});
  book_.Take(a_, 2);
  book_.OnDone(1, a_);
  book_.OnDone(2, a_);
  const Client again{{"a", 0}, 2};
  book_.OnView(ViewOf(2, {again}, /*restore=*/true));
  book_.OnLedger(1, 0, LedgerOf({1, 2, 3, 4}));  // of before: not to be believed
  EXPECT_THAT(book_.Take(again, 4), IsEmpty());
  book_.OnLedger(2, 0, LedgerOf({1, 2}));
  book_.OnLedger(2, 1, LedgerOf({1}));
  EXPECT_THAT(book_.Take(again, 4), ElementsAre(2, 3, 4));
}

TEST_F(LeaseBookTest, ASuccessorLearnsWhoHoldsWhat) {
  Begin({}, {});
  book_.OnHeld(1, a_);
  book_.OnHeld(2, {{"gone", 0}, 1});
  EXPECT_THAT(book_.Take(b_, 2), ElementsAre(2, 3));
}

// Loads that follow the slots, whoever serves them.
class BusyJob : public Job {
 public:
  BusyJob(int replication, int servers, const Balance& balance = {})
      : Job(replication, 1, 0, balance) {
    for (int i = 0; i < servers; ++i) ids_.push_back(Server(i));
    Settle();
  }
  // Looks for `time`, every 50 ms; the views that were made.
  int Look(absl::Duration time, const std::vector<std::int64_t>& loads) {
    int views = 0;
    for (absl::Duration passed; passed < time; passed += absl::Milliseconds(50)) {
      for (const MemberId& id : ids_) {
        for (std::size_t slot = 0; slot < loads.size(); ++slot) {
          At(id).slots[slot].load = loads[slot];
        }
      }
      views += Settle();
      Pass(absl::Milliseconds(50));
    }
    return views;
  }
  std::vector<std::int64_t> Burdens(const std::vector<std::int64_t>& loads) {
    std::vector<std::int64_t> burdens(ids_.size());
    for (std::size_t slot = 0; slot < loads.size(); ++slot) {
      for (std::size_t i = 0; i < ids_.size(); ++i) {
        if (In(plan().newest().slots[slot].chain, ids_[i])) burdens[i] += loads[slot];
      }
    }
    return burdens;
  }
  // All slots of the first server are hot.
  std::vector<std::int64_t> HotOnes() {
    std::vector<std::int64_t> loads;
    for (const SlotPart& part : plan().newest().slots) {
      loads.push_back(In(part.chain, ids_[0]) ? 50'000'000 : 1'000'000);
    }
    return loads;
  }
  const std::vector<MemberId>& ids() const { return ids_; }

 private:
  std::vector<MemberId> ids_;
};

TEST(SlotPlanTest, HotSlotsMoveOneByOneFromAServerThatIsTooBusyAndThenStay) {
  BusyJob job(1, 2);
  const std::vector<std::int64_t> loads = job.HotOnes();
  const auto before = job.plan().newest();
  EXPECT_EQ(job.Look(absl::Seconds(4), loads), 0) << "it may pass";
  EXPECT_EQ(job.Look(absl::Seconds(2), loads), 2) << "out of one chain by way of both servers";
  int moved = 0;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    const SlotPart& part = job.plan().newest().slots[slot];
    EXPECT_EQ(part.by_load, part.chain != before.slots[slot].chain);
    EXPECT_FALSE(part.restore);
    moved += part.by_load ? 1 : 0;
  }
  EXPECT_EQ(moved, 1);
  job.Look(absl::Seconds(60), loads);
  const auto burdens = job.Burdens(loads);
  EXPECT_LT(static_cast<double>(*std::max_element(burdens.begin(), burdens.end())),
            1.5 * static_cast<double>(burdens[0] + burdens[1]) / 2);
  EXPECT_EQ(job.Look(absl::Seconds(60), loads), 0) << "what is even is left alone";
  EXPECT_EQ(job.Look(absl::Seconds(60), std::vector<std::int64_t>(kSlots)), 0)
      << "and nothing goes back when the load has gone";
}

// The negative control: sizes alone are even already.
TEST(SlotPlanTest, WithoutLoadsAHotServerStaysHot) {
  BusyJob job(1, 2, {.by_load = false});
  const std::vector<std::int64_t> loads = job.HotOnes();
  EXPECT_EQ(job.Look(absl::Seconds(60), loads), 0);
  const auto burdens = job.Burdens(loads);
  EXPECT_GT(static_cast<double>(burdens[0]),
            1.5 * static_cast<double>(burdens[0] + burdens[1]) / 2);
}

TEST(SlotPlanTest, WhoKnowsOnlyTheNewestViewLeavesSlotsWhereLoadHasPutThem) {
  BusyJob job(1, 2);
  job.Look(absl::Seconds(6), job.HotOnes());
  const JobView view = job.plan().newest();
  BusyJob successor(1, 2);
  successor.plan().Learn(view);
  successor.Follow();
  EXPECT_EQ(successor.Settle(), 0);
  EXPECT_EQ(successor.plan().newest(), view);
  // Until a server there has gone.
  for (const SlotPart& part : view.slots) {
    if (part.by_load) successor.End(part.chain.back());
  }
  successor.Settle();
  for (const SlotPart& part : successor.plan().newest().slots) EXPECT_FALSE(part.by_load);
}

TEST(SlotPlanTest, AMoveThatCannotBeMadeAnyMoreIsForgotten) {
  BusyJob job(1, 2);
  const std::vector<std::int64_t> loads = job.HotOnes();
  job.Look(absl::Seconds(5) - absl::Milliseconds(50), loads);
  for (int i = 0; i < 3 && job.plan().FetchAhead(job.ids()[1]).empty(); ++i) {
    job.Pass(absl::Milliseconds(50));
    EXPECT_EQ(job.Plan(), std::nullopt);
  }
  EXPECT_THAT(job.plan().FetchAhead(job.ids()[1]), SizeIs(1));  // one at a time
  job.At(job.ids()[1]).leaving = true;
  job.Settle();
  for (const SlotPart& part : job.plan().newest().slots) {
    EXPECT_THAT(part.chain, ElementsAre(job.ids()[0]));
    EXPECT_FALSE(part.by_load);
  }
}

struct Relief {
  const char* name;
  std::vector<BusySlot> slots;
  int servers;
  std::optional<std::pair<std::size_t, std::vector<int>>> move;  // slot, its new chain
};

std::vector<MemberId> Named(const std::vector<int>& servers) {
  std::vector<MemberId> ids;
  for (const int server : servers) ids.push_back({absl::StrCat("server-", server), 0});
  return ids;
}
BusySlot Busy(const std::vector<int>& chain, std::vector<double> loads, double weight = 1) {
  return {Named(chain), std::move(loads), weight};
}

TEST(BalanceTest, TheMoveThatEvensOutMostIsMadeAndNoneThatDoesNotHelp) {
  const double m = 1e6;
  const Relief table[] = {
      {"even", {Busy({0}, {9 * m}), Busy({1}, {8 * m})}, 2, {}},
      {"half of the hot", {Busy({0}, {9 * m}), Busy({0}, {9 * m}), Busy({1}, {m})}, 2, {{0, {1}}}},
      {"to whoever has least",
       {Busy({0}, {9 * m}), Busy({0}, {8 * m}), Busy({1}, {2 * m}), Busy({2}, {m})},
       3,
       {{1, {2}}}},
      {"alone is all that the hottest can be", {Busy({0}, {30 * m}), Busy({1}, {m})}, 2, {}},
      {"the cold leave the hot",
       {Busy({0}, {30 * m}), Busy({0}, {6 * m}), Busy({1}, {m})},
       2,
       {{1, {1}}}},
      {"a little is not worth it",
       {Busy({0}, {30 * m}), Busy({0}, {2 * m}), Busy({1}, {m})},
       2,
       {}},
      {"in its place in the chain",
       {Busy({1, 0}, {m, 20 * m}), Busy({2, 0}, {m, 20 * m}), Busy({1, 2}, {m, m})},
       3,
       {{0, {1, 2}}}},
      {"not where it is held already", {Busy({0, 1}, {9 * m, m}), Busy({0, 1}, {9 * m, m})}, 2, {}},
      {"not where there is no room",
       {Busy({0}, {9 * m}, 3), Busy({0}, {8 * m}, 3), Busy({1}, {m}, 7)},
       2,
       {}},
      {"not where nobody does much", {Busy({0}, {9}), Busy({0}, {9}), Busy({1}, {1})}, 2, {}},
  };
  for (const Relief& one : table) {
    std::vector<int> servers(static_cast<std::size_t>(one.servers));
    for (int i = 0; i < one.servers; ++i) servers[static_cast<std::size_t>(i)] = i;
    const auto move = RelieveBusiest(one.slots, Named(servers), {});
    ASSERT_EQ(move.has_value(), one.move.has_value()) << one.name;
    if (!move) continue;
    EXPECT_EQ(move->slot, one.move->first) << one.name;
    EXPECT_EQ(move->chain, Named(one.move->second)) << one.name;
    EXPECT_TRUE(Uneven(one.slots, Named(servers), {})) << one.name;
  }
}

}  // namespace
}  // namespace starling::parameter_server
