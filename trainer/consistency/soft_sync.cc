// SPDX-License-Identifier: Apache-2.0
// n-softsync (Gupta, Zhang, Wang 2015, "Rudra"): of l clients the server takes max(1, l / n)
// gradients for one update, whosever they are; nobody waits. n = l is asynchronous, n = 1 a soft
// barrier. The learning rate may be divided by the mean staleness of what is applied. An aggregate
// counts as many gradients as it stands for, and is not divided.
#include <algorithm>

#include "trainer/consistency/consistency.h"

namespace starling::consistency {
namespace {

class SoftSyncModel final : public Consistency {
 public:
  SoftSyncModel(const SoftSync& options, Rules rules) : Consistency(rules), options_(options) {}

  bool MayRead(const Client& /*client*/, Clock /*clock*/) const override { return true; }

 private:
  void Gather(std::vector<Batch>& ready) override {
    const auto clients = static_cast<std::int64_t>(clocks_.awake());
    // Nobody is left, or awake, to complete the last update: what is here is it.
    const std::int64_t needed =
        clients == 0 ? Gradients(held_.size())
                     : std::max<std::int64_t>(1, clients / std::max<std::int64_t>(1, options_.n));
    while (!held_.empty() && Gradients(held_.size()) >= needed) {
      std::size_t count = 1;
      while (Gradients(count) < needed) ++count;
      Batch batch = Apply(count);
      if (options_.staleness_aware) batch.rate_factor = 1 / std::max(1.0, Mean(batch.staleness));
      ready.push_back(std::move(batch));
    }
  }

  // In the first `count` of what is held.
  std::int64_t Gradients(std::size_t count) const {
    std::int64_t gradients = 0;
    for (std::size_t i = 0; i < count; ++i) gradients += held_[i].gradients();
    return gradients;
  }

  static double Mean(const std::vector<Version>& staleness) {
    double sum = 0;
    for (const Version one : staleness) sum += static_cast<double>(one);
    return sum / static_cast<double>(staleness.size());
  }

  const SoftSync options_;
};

}  // namespace

std::unique_ptr<Consistency> MakeSoftSync(const SoftSync& options, Rules rules) {
  return std::make_unique<SoftSyncModel>(options, rules);
}

}  // namespace starling::consistency
