// SPDX-License-Identifier: Apache-2.0
// Bulk-synchronous steps: a fixed number of portions each, whoever pushes them.
#include <algorithm>
#include <deque>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/consistency/consistency.h"

namespace starling::consistency {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Client C(int number, membership::ViewNumber joined = 1) {
  return {{absl::StrCat("worker-", number), 0}, joined};
}

Contribution Portions(const Client& client, Lease lease, Lease leases = 1, double weight = 1) {
  Contribution push;
  push.client = client;
  push.lease = lease;
  push.leases = leases;
  push.weight = weight;
  return push;
}

std::vector<Lease> LeasesOf(const Batch& batch) {
  std::vector<Lease> leases;
  for (const Contribution& member : batch.members) {
    for (Lease lease = member.lease; lease < member.lease + member.leases; ++lease) {
      leases.push_back(lease);
    }
  }
  return leases;
}

double WeightOf(const Batch& batch) {
  double weight = 0;
  for (const Contribution& member : batch.members) weight += member.weight;
  return weight;
}

TEST(BulkSynchronous, AStepIsAllItsPortionsInTheirOrderWhoeverCameFirst) {
  auto model = MakeConsistency(BulkSynchronous{3});
  model->OnView({C(1), C(2)});
  EXPECT_THAT(model->OnPush(Portions(C(2), 4, 1, 4)).ready, IsEmpty());
  EXPECT_THAT(model->OnPush(Portions(C(1), 2, 1, 7)).ready, IsEmpty());
  EXPECT_TRUE(model->MayRead(C(1), 0));
  EXPECT_FALSE(model->MayRead(C(1), 1));

  const std::vector<Batch> ready = model->OnPush(Portions(C(2), 3, 1, 5)).ready;

  ASSERT_THAT(ready, SizeIs(1));
  EXPECT_THAT(LeasesOf(ready[0]), ElementsAre(2, 3, 4));
  EXPECT_EQ(WeightOf(ready[0]), 16);
  EXPECT_TRUE(model->MayRead(C(2), 1));
  EXPECT_FALSE(model->MayRead(C(2), 2));
  EXPECT_EQ(model->StartOf(C(2)), 1);
  EXPECT_EQ(model->staleness().Maximum(), 0);
}

TEST(BulkSynchronous, ClientsThatComeLeaveOrRestMakeNoStepAndHoldNoneUp) {
  auto model = MakeConsistency(BulkSynchronous{2});
  model->OnView({C(1), C(2)});
  model->OnPush(Portions(C(1), 2));
  EXPECT_THAT(model->OnRest(C(2)), IsEmpty());
  EXPECT_THAT(model->OnRest(C(1)), IsEmpty());
  EXPECT_THAT(model->OnView({C(3)}), IsEmpty());
  EXPECT_THAT(model->OnView({}), IsEmpty());
  model->OnView({C(4), C(5), C(6)});
  EXPECT_FALSE(model->MayRead(C(4), 1));
  EXPECT_THAT(model->OnPush(Portions(C(4), 3)).ready, SizeIs(1)) << "what was pushed counts";
  EXPECT_THAT(model->OnPush(Portions(C(4), 4, 2)).ready, SizeIs(1)) << "one does a whole step";
  EXPECT_TRUE(model->MayRead(C(6), 2));
}

TEST(BulkSynchronous, AnAggregateIsPortionsOfOneStep) {
  auto model = MakeConsistency(BulkSynchronous{4});
  model->OnView({C(1), C(2)});
  const std::vector<Contribution> two = {Portions(C(1), 5), Portions(C(2), 2, 2)};
  EXPECT_TRUE(model->Combines(two));
  EXPECT_FALSE(model->Combines(std::vector{Portions(C(1), 5), Portions(C(2), 6)}));
  EXPECT_FALSE(model->Combines(std::vector{Portions(C(1), 4), Portions(C(2), 5, 2)}))
      << "a part that is of two steps";
  EXPECT_THAT(model->OnAggregate(two).ready, IsEmpty());
  const std::vector<Batch> ready = model->OnPush(Portions(C(1), 4)).ready;
  ASSERT_THAT(ready, SizeIs(1));
  EXPECT_EQ(ready[0].members[0].lease, 2u);
  EXPECT_EQ(ready[0].members[0].leases, 2u) << "the lowest part's";
  EXPECT_EQ(WeightOf(ready[0]), 3);
  EXPECT_THAT(ready[0].staleness, SizeIs(3)) << "each gradient is counted";
}

TEST(BulkSynchronous, WhatIsNoPortionOrOfTwoStepsIsRefused) {
  auto model = MakeConsistency(BulkSynchronous{2});
  model->OnView({C(1)});
  for (const auto& [lease, count] :
       {std::pair<Lease, Lease>{0, 1}, {1, 1}, {3, 2}, {2, 0}, {3, 0}}) {
    EXPECT_FALSE(model->OnPush(Portions(C(1), lease, count)).accepted) << lease << " " << count;
  }
  EXPECT_FALSE(model->OnAggregate(std::vector{Portions(C(1), 1), Portions(C(1), 2)}).accepted)
      << "one part is enough";
  EXPECT_THAT(model->held(), IsEmpty());
}

// Random workers, who come, leave, rest and die at work, and an oracle that knows which leases were
// pushed.
class Steps {
 public:
  Steps(std::int64_t portions, Rules rules, std::uint64_t seed)
      : portions_(static_cast<Lease>(portions)),
        rules_(rules),
        model_(MakeConsistency(BulkSynchronous{portions}, rules)),
        random_(seed) {}

  std::string Run(std::int64_t steps) {
    const Lease end = kFirstPortion + static_cast<Lease>(steps) * portions_;
    for (Lease lease = kFirstPortion; lease < end; ++lease) free_.insert(lease);
    ChangeView();
    for (int left = 200'000; broken_.empty() && version_ < steps; --left) {
      if (left == 0) return "some do not get on";
      const std::uint64_t kind = random_() % 40;
      if (kind == 0) ChangeView();
      if (kind == 1) RestOrWake();
      if (kind == 2) GoOnFromWhatIsSaved();
      if (kind > 2) Act(workers_[random_() % workers_.size()]);
    }
    return broken_;
  }
  // Of every update, in order.
  const std::vector<std::vector<Lease>>& updates() const { return updates_; }

 private:
  struct Worker {
    Client client;
    std::vector<Lease> leases;
    bool computes = false;
  };
  Clock StepOf(Lease lease) const {
    return static_cast<Clock>((lease - kFirstPortion) / portions_);
  }
  void Break(const std::string& what) {
    if (broken_.empty()) broken_ = what;
  }

  void ChangeView() {
    ++view_;
    if (!workers_.empty() && random_() % 2 == 0) {
      const auto gone = workers_.begin() + static_cast<std::ptrdiff_t>(random_() % workers_.size());
      free_.insert(gone->leases.begin(), gone->leases.end());
      workers_.erase(gone);
    }
    if (workers_.empty() || (workers_.size() < 5 && random_() % 2 == 0)) {
      workers_.push_back({C(next_++, view_), {}, false});
    }
    std::vector<Client> clients;
    for (const Worker& worker : workers_) clients.push_back(worker.client);
    Count(model_->OnView(clients));
  }
  void RestOrWake() {
    const Client& client = workers_[random_() % workers_.size()].client;
    Count(random_() % 2 == 0 ? model_->OnRest(client) : model_->OnWake(client));
  }
  void GoOnFromWhatIsSaved() {
    bytes::Writer saved;
    model_->Save(saved);
    model_ = MakeConsistency(BulkSynchronous{static_cast<std::int64_t>(portions_)}, rules_);
    bytes::Reader in(saved.bytes());
    model_->Load(in);
    if (!in.done()) Break("a part of what was saved was not read");
  }

  // The lowest, and some more of its step.
  void Take(Worker& worker) {
    while (!free_.empty()) {
      const Lease next = *free_.begin();
      const bool follows =
          worker.leases.empty() || (next == worker.leases.back() + 1 &&
                                    StepOf(next) == StepOf(worker.leases[0]) && random_() % 2 == 0);
      if (!follows) return;
      worker.leases.push_back(next);
      free_.erase(free_.begin());
    }
  }
  void Act(Worker& worker) {
    if (worker.computes) return Push(worker);
    if (worker.leases.empty()) return Take(worker);
    const Clock step = StepOf(worker.leases[0]);
    if (model_->MayRead(worker.client, step)) {
      for (Lease lease = kFirstPortion; StepOf(lease) < step; ++lease) {
        if (!pushed_.contains(lease)) Break("a read came before all of an earlier step");
      }
      worker.computes = true;
    } else if (!free_.empty() && *free_.begin() < worker.leases[0]) {
      free_.insert(worker.leases.begin(), worker.leases.end());
      worker.leases.clear();
    }
  }
  void Push(Worker& worker) {
    Contribution push = Portions(worker.client, worker.leases[0], worker.leases.size());
    push.clock = StepOf(worker.leases[0]);
    push.read = model_->version();
    pushed_.insert(worker.leases.begin(), worker.leases.end());
    const Verdict verdict = model_->OnPush(push);
    if (!verdict.accepted) Break("a portion was refused");
    Count(verdict.ready);
    worker = {worker.client, {}, false};
  }
  void Count(const std::vector<Batch>& ready) {
    for (const Batch& batch : ready) {
      std::vector<Lease> wanted;
      for (Lease j = 0; j < portions_; ++j) {
        wanted.push_back(kFirstPortion + static_cast<Lease>(version_) * portions_ + j);
      }
      updates_.push_back(LeasesOf(batch));
      if (updates_.back() != wanted) Break("an update is not the next step's portions in order");
      ++version_;
    }
    if (model_->version() != version_) Break("an update was not told");
  }

  const Lease portions_;
  const Rules rules_;
  std::unique_ptr<Consistency> model_;
  std::mt19937_64 random_;
  std::vector<Worker> workers_;
  std::set<Lease> free_, pushed_;
  std::vector<std::vector<Lease>> updates_;
  membership::ViewNumber view_ = 0;
  int next_ = 0;
  Version version_ = 0;
  std::string broken_;
};

TEST(BulkSynchronous, EveryUpdateIsTheNextStepWhoeverComesLeavesRestsOrDiesAtWork) {
  for (const std::int64_t portions : {1, 2, 3, 7}) {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      Steps steps(portions, {}, seed);
      ASSERT_EQ(steps.Run(40), "") << portions << " portions, seed " << seed;
      ASSERT_THAT(steps.updates(), SizeIs(40));
    }
  }
}

TEST(BulkSynchronous, WithoutTheBoundSomeReadComesTooEarly) {
  Rules rules;
  rules.bound = false;
  std::string harm;
  for (std::uint64_t seed = 1; seed <= 100 && harm.empty(); ++seed) {
    harm = Steps(3, rules, seed).Run(40);
  }
  EXPECT_EQ(harm, "a read came before all of an earlier step");
}

// The trap that portions avoid: where one push of each client is an update, the number of updates
// follows from the number of clients.
TEST(BulkSynchronous, TheNumberOfUpdatesDoesNotDependOnTheNumberOfClientsAsItDoesPerClient) {
  const auto updates = [](const Options& options, int workers) {
    auto model = MakeConsistency(options);
    std::vector<Client> clients;
    for (int i = 0; i < workers; ++i) clients.push_back(C(i));
    model->OnView(clients);
    for (Lease lease = 0; lease < 48; ++lease) {
      Contribution push = Portions(clients[lease % clients.size()], kFirstPortion + lease);
      push.clock = static_cast<Clock>(lease / clients.size());
      model->OnPush(push);
    }
    return model->version();
  };
  for (const int workers : {1, 2, 3, 4}) {
    EXPECT_EQ(updates(BulkSynchronous{4}, workers), 12) << workers;
    EXPECT_EQ(updates(BackupWorkers{0}, workers), 48 / workers) << workers;
  }
}

}  // namespace
}  // namespace starling::consistency
