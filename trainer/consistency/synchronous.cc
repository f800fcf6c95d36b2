// SPDX-License-Identifier: Apache-2.0
// Models in which several contributions become one update: bulk-synchronous SGD, whose steps are
// batches of a fixed number of portions, and backup workers (Chen et al. 2016: of one push of each
// client the first n - b count, the rest is late).
#include <algorithm>

#include "trainer/consistency/consistency.h"

namespace starling::consistency {
namespace {

// Nothing is counted but which portions are in, and that is what the shard's ledger says, too:
// after a restore the two agree on which steps are complete.
class BulkSynchronousModel final : public Consistency {
 public:
  BulkSynchronousModel(std::int64_t portions, Rules rules)
      : Consistency(rules), portions_(static_cast<Lease>(std::max<std::int64_t>(1, portions))) {}

  bool MayRead(const Client& /*client*/, Clock clock) const override {
    return !rules_.bound || Complete() >= clock;
  }
  Clock StartOf(const Client& /*client*/) const override { return Complete(); }
  bool Combines(std::span<const Contribution> parts) const override {
    return std::all_of(parts.begin(), parts.end(), [&](const Contribution& part) {
      return Accepts(part) && StepOf(part.lease) == StepOf(parts.front().lease);
    });
  }

 private:
  Clock StepOf(Lease lease) const {
    return static_cast<Clock>((lease - kFirstPortion) / portions_);
  }
  // Steps whose portions are all in, and those of the steps before.
  Clock Complete() const { return StepOf(in_.NotIn(kFirstPortion)); }

  bool Accepts(const Contribution& contribution) const override {
    if (contribution.lease < kFirstPortion || contribution.leases == 0) return false;
    return StepOf(contribution.lease) == StepOf(contribution.lease + contribution.leases - 1);
  }
  void Taken(const Contribution& part) override { in_.Add(part.lease, part.lease + part.leases); }

  void Gather(std::vector<Batch>& ready) override {
    std::ranges::stable_sort(held_, {}, &Contribution::lease);
    while (!held_.empty() && StepOf(held_.front().lease) < Complete()) {
      const Clock step = StepOf(held_.front().lease);
      const auto end = std::find_if(held_.begin(), held_.end(), [&](const Contribution& one) {
        return StepOf(one.lease) != step;
      });
      ready.push_back(Apply(static_cast<std::size_t>(end - held_.begin())));
    }
  }

  void SaveMore(bytes::Writer& out) const override { in_.Save(out); }
  void LoadMore(bytes::Reader& in) override { in_.Load(in); }

  const Lease portions_;
  LeaseLedger in_;
};

class BackupWorkersModel final : public Consistency {
 public:
  BackupWorkersModel(std::int64_t backups, Rules rules) : Consistency(rules), backups_(backups) {}

  bool MayRead(const Client& /*client*/, Clock clock) const override {
    return !rules_.bound || step_ >= clock;
  }
  bool Combines(std::span<const Contribution> /*parts*/) const override { return false; }
  // Whoever comes, late or new, takes part in the running step.
  Clock StartOf(const Client& /*client*/) const override { return step_; }

 private:
  // By its step, never by when it arrives.
  bool Accepts(const Contribution& contribution) const override {
    return contribution.clock == step_;
  }

  // After a restore shards may stand at different steps: they go on together from the highest.
  void Started(Clock clock) override { step_ = std::max(step_, clock); }

  // What it held had been taken before: its client makes no other push for this step, so it counts
  // as one.
  void Skipped(Clock clock) override {
    if (clock == step_) ++skipped_;
  }

  // What was accepted was acknowledged: if the view shrank meanwhile, more than needed may be here,
  // and all of it counts. By client, so that the sum's bits do not depend on who arrived first. A
  // view of nobody ends no step: whoever comes next takes part in it.
  void Gather(std::vector<Batch>& ready) override {
    const auto here = held_.size() + static_cast<std::size_t>(skipped_);
    if (clocks_.size() == 0) return;
    const auto clients = static_cast<std::int64_t>(clocks_.awake());  // none: nobody will add to it
    const auto needed = static_cast<std::size_t>(std::max<std::int64_t>(1, clients - backups_));
    if (here < needed) return;
    skipped_ = 0;
    ++step_;
    if (held_.empty()) return;
    std::ranges::stable_sort(held_, {}, &Contribution::client);
    ready.push_back(Apply(held_.size()));
  }

  void SaveMore(bytes::Writer& out) const override {
    out.Put(step_);
    out.Put(skipped_);
  }
  void LoadMore(bytes::Reader& in) override {
    step_ = in.Get<Clock>();
    skipped_ = in.Get<std::int64_t>();
  }

  const std::int64_t backups_;
  Clock step_ = 0;
  std::int64_t skipped_ = 0;  // pushes of this step
};

}  // namespace

std::unique_ptr<Consistency> MakeBulkSynchronous(const BulkSynchronous& options, Rules rules) {
  return std::make_unique<BulkSynchronousModel>(options.portions, rules);
}

std::unique_ptr<Consistency> MakeBackupWorkers(const BackupWorkers& options, Rules rules) {
  return std::make_unique<BackupWorkersModel>(options.backups, rules);
}

}  // namespace starling::consistency
