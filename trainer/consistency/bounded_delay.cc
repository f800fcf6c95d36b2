// SPDX-License-Identifier: Apache-2.0
// Bounded delay (Li et al. 2013): tasks are numbered over all clients, and task t waits for all
// tasks below t - delay. 0 is sequential consistency, a large delay eventual consistency.
//
// A client's next task gets its number when the one before is finished, so numbers follow the
// shard's order and every replica gives the same ones.
#include <algorithm>
#include <limits>

#include "trainer/consistency/consistency.h"

namespace starling::consistency {
namespace {

class BoundedDelayModel final : public Consistency {
 public:
  BoundedDelayModel(std::int64_t delay, Rules rules) : Consistency(rules), delay_(delay) {}

  bool MayRead(const Client& client, Clock /*clock*/) const override {
    if (!rules_.bound) return true;
    const auto own = tasks_.find(client);
    if (own == tasks_.end()) return clocks_.Rests(client);  // it reads for no task
    std::int64_t oldest = std::numeric_limits<std::int64_t>::max();
    for (const auto& [other, task] : tasks_) oldest = std::min(oldest, task);
    return own->second - oldest <= delay_;
  }

 private:
  void ViewChanged() override {
    std::erase_if(tasks_, [this](const auto& one) { return !clocks_.Of(one.first); });
    for (const auto& [client, clock] : clocks_.all()) {
      if (!clocks_.Rests(client) && tasks_.emplace(client, next_).second) ++next_;
    }
  }
  void Rested(const Client& client) override { tasks_.erase(client); }
  void Woken(const Client& client) override { tasks_.emplace(client, next_++); }
  void Completed(const Client& client) override {
    const auto task = tasks_.find(client);
    if (task != tasks_.end()) task->second = next_++;
  }
  void Gather(std::vector<Batch>& ready) override {
    while (!held_.empty()) ready.push_back(Apply(1));
  }

  void SaveMore(bytes::Writer& out) const override {
    out.Put(next_);
    out.Put(static_cast<std::uint64_t>(tasks_.size()));
    for (const auto& [client, task] : tasks_) {
      Encode(client, out);
      out.Put(task);
    }
  }
  void LoadMore(bytes::Reader& in) override {
    next_ = in.Get<std::int64_t>();
    tasks_.clear();
    for (std::uint64_t left = in.GetCount(32); left > 0; --left) {
      const Client client = DecodeClient(in);
      tasks_[client] = in.Get<std::int64_t>();
    }
  }

  const std::int64_t delay_;
  std::map<Client, std::int64_t> tasks_;  // the one that each is to do or does
  std::int64_t next_ = 0;
};

}  // namespace

std::unique_ptr<Consistency> MakeBoundedDelay(const BoundedDelay& options, Rules rules) {
  return std::make_unique<BoundedDelayModel>(options.delay, rules);
}

}  // namespace starling::consistency
