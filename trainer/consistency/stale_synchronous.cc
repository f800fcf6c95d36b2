// SPDX-License-Identifier: Apache-2.0
// Models in which every push is an update by itself: stale synchronous parallel (Ho et al. 2013),
// and, without a bound, asynchronous SGD.
#include "trainer/consistency/consistency.h"

namespace starling::consistency {
namespace {

class StaleSynchronousModel final : public Consistency {
 public:
  StaleSynchronousModel(std::optional<std::int64_t> staleness, Rules rules)
      : Consistency(rules), staleness_(staleness) {}

  // Of the reader itself nothing is asked: its own pushes are in (the shard waits for them), and
  // where it was admitted late its clock here may be behind the one that it reads at.
  bool MayRead(const Client& client, Clock clock) const override {
    if (!staleness_ || !rules_.bound) return true;
    return clocks_.MinimumBut(client).value_or(clock) >= clock - *staleness_;
  }

 private:
  void Gather(std::vector<Batch>& ready) override {
    while (!held_.empty()) ready.push_back(Apply(1));
  }

  const std::optional<std::int64_t> staleness_;
};

}  // namespace

std::unique_ptr<Consistency> MakeStaleSynchronous(std::optional<std::int64_t> staleness,
                                                  Rules rules) {
  return std::make_unique<StaleSynchronousModel>(staleness, rules);
}

}  // namespace starling::consistency
