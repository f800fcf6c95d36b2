// SPDX-License-Identifier: Apache-2.0
// Of row PS-1: the filters that stand at both ends of a job's links.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "common/status/check.h"
#include "tests/techniques/cluster.h"
#include "tests/techniques/rows.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/filters.h"
#include "trainer/parameter_server/wire.h"
#include "trainer/testing/random_samples.h"
#include "trainer/workload/sparse_logistic_regression.h"

namespace starling::techniques {
namespace {

// L1-regularised logistic regression by block proximal gradient (Li et al. 2014): each push is the
// gradient of all samples in some of the weights, through both ends of a link.
class BlockDescent {
 public:
  static constexpr double kPenalty = 0.005, kRate = 10;
  static constexpr std::uint64_t kFeatures = 200;
  static constexpr std::size_t kSamples = 400, kBlocks = 4;

  // Gradients up to `threshold` of weights that are 0 are left out; with none nothing is.
  explicit BlockDescent(std::optional<double> threshold)
      : threshold_(threshold),
        model_(samples_, nullptr, 0),
        shard_({Table(), {0, parameter_server::kHashEnd}, consistency::Asynchronous{}, {}}),
        sender_(/*key_cache=*/true, 1) {
    shard_.OnView({ClientOf(0)});
    std::iota(all_.begin(), all_.end(), 0);
  }

  // Every pass takes the blocks in another order.
  void Run(std::uint64_t seed, int passes) {
    std::mt19937_64 random(seed);
    std::vector<std::size_t> blocks(kBlocks);
    for (std::size_t block = 0; block < kBlocks; ++block) blocks[block] = block;
    for (int pass = 0; pass < passes; ++pass) {
      std::shuffle(blocks.begin(), blocks.end(), random);
      for (const std::size_t block : blocks) Push(block);
    }
  }
  // The largest distance from the conditions of Karush, Kuhn and Tucker.
  double Violation() {
    const std::vector<float> gradient = Gradient();
    double worst = 0;
    for (std::size_t row = 0; row < gradient.size(); ++row) {
      const double weight = weights()[row], g = gradient[row];
      worst = std::max(worst, weight == 0 ? std::abs(g) - kPenalty
                                          : std::abs(g + std::copysign(kPenalty, weight)));
    }
    return worst;
  }
  std::span<const float> weights() { return model_.parameters(); }
  double bytes() const { return bytes_; }

 private:
  static std::shared_ptr<const parameter_server::TableSpec> Table() {
    auto table = std::make_shared<parameter_server::TableSpec>();
    table->name = "weights";
    table->kind = parameter_server::TableKind::kSparse;
    table->rule = optimizer::MakeProximalGradient(kPenalty);
    table->learning_rate = [](std::int64_t) { return kRate; };
    return table;
  }
  std::vector<float> Gradient() {
    (void)model_.Compute(all_, {});
    std::vector<float> gradient(model_.gradients().begin(), model_.gradients().end());
    for (float& value : gradient) value /= static_cast<float>(kSamples);
    return gradient;
  }
  void Push(std::size_t block) {
    const std::vector<float> gradient = Gradient();
    std::vector<std::uint64_t> rows;
    std::vector<float> values;
    for (std::uint64_t row = block; row < kFeatures; row += kBlocks) {
      const bool fixed =
          threshold_ && optimizer::StaysZero(weights()[row], gradient[row], *threshold_);
      rows.push_back(row);
      values.push_back(fixed ? 0 : gradient[row]);
    }
    parameter_server::Push push;
    push.entry.client = ClientOf(0);
    push.entry.sequence = ++sequence_;
    push.entry.update = parameter_server::Encode(
        {parameter_server::UpdateKind::kRows, 0, 0, 0, rows, values, {}}, compression::kIdentity,
        /*leave_out_zeros=*/threshold_.has_value());
    const parameter_server::Message sent =
        sender_.Pack(0, {"server", 0}, push).value_or(parameter_server::Message(push));
    const parameter_server::Packet packet = parameter_server::EncodePacket(0, sent);
    bytes_ += static_cast<double>(packet.head.size() + (packet.body ? packet.body->size() : 0));
    const parameter_server::RowReceiver::Unpacked unpacked = receiver_.Unpack(sent);
    STARLING_CHECK(!unpacked.answer.has_value(), "the receiver knows the rows");
    (void)shard_.Append(std::get<parameter_server::Push>(unpacked.whole.value_or(sent)).entry);
    const std::string read = shard_.Read({0, 0, rows}).value_or("");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(&model_.parameters()[rows[i]], read.data() + i * sizeof(float), sizeof(float));
    }
  }

  const std::shared_ptr<const data::SparseDataset> samples_ =
      workload::RandomSamples(kSamples, kFeatures, 10);
  const std::optional<double> threshold_;
  workload::SparseLogisticRegression model_;
  parameter_server::ShardState shard_;
  parameter_server::RowSender sender_;
  parameter_server::RowReceiver receiver_;
  std::vector<std::int64_t> all_ = std::vector<std::int64_t>(kSamples);
  std::int64_t sequence_ = 0;
  double bytes_ = 0;
};

double Differing(BlockDescent& a, BlockDescent& b) {
  double differing = 0;
  for (std::size_t row = 0; row < BlockDescent::kFeatures; ++row) {
    differing += a.weights()[row] != b.weights()[row] ? 1 : 0;
  }
  return differing;
}

}  // namespace

// The rows of a read, and then of a push of the same: the filters that stand at both ends of a
// job's links.
void NameRows(const Setting& setting, Report& report) {
  parameter_server::RowSender sender(/*key_cache=*/true, 1);
  parameter_server::RowReceiver receiver;
  std::vector<std::uint64_t> keys(1000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i * 7919 + setting.seed;
  const auto listed = [](const parameter_server::Message& push) {
    const auto& update = *std::get<parameter_server::Push>(push).entry.update;
    return update.keys ? *update.keys : parameter_server::Keys();
  };
  const auto sent = [&](const parameter_server::Message& message) {
    return sender.Pack(0, {"server", 0}, message).value_or(message);
  };
  parameter_server::Read read;
  read.client = ClientOf(0);
  read.keys = keys;
  (void)receiver.Unpack(sent(read));
  const auto push_of = [&] {
    const std::vector<float> values(keys.size(), 1);
    parameter_server::Push push;
    push.entry.client = ClientOf(0);
    push.entry.update =
        parameter_server::Encode({parameter_server::UpdateKind::kRows, 0, 0, 0, keys, values, {}});
    return parameter_server::Message(push);
  };
  const parameter_server::Message named = sent(push_of());
  report.Each("the same 1,000 keys pushed again: keys on the wire",
              static_cast<double>(listed(named).size()), Rule::kEqual, 0);
  const auto unpacked = receiver.Unpack(named);
  const bool known = unpacked.whole && listed(*unpacked.whole) == keys;
  report.Each("of them known to the receiver", known ? 1000 : 0, Rule::kEqual, 1000);
  keys[0] += 1;
  report.Control("one key is another: keys on the wire",
                 static_cast<double>(listed(sent(push_of())).size()), Rule::kEqual, 1000);
}

// The KKT filter: what cannot change its weight does not travel.
void LeaveOutWhatCannotChange(const Setting& setting, Report& report) {
  const int passes = setting.thorough ? 4000 : 2000;
  BlockDescent all(std::nullopt), filtered(BlockDescent::kPenalty),
      too_high(2 * BlockDescent::kPenalty);
  for (BlockDescent* descent : {&all, &filtered, &too_high}) descent->Run(setting.seed, passes);
  const auto zeros = std::ranges::count(filtered.weights(), 0.0F);
  report.Tell("L1-regularised logistic regression: of 200 weights 0 at the end",
              static_cast<double>(zeros));
  report.Each("its KKT conditions, gradients that cannot change a weight left out: violated by",
              filtered.Violation(), Rule::kAtMost, 1e-4);
  report.Each("weights that differ from those without the filter", Differing(filtered, all),
              Rule::kEqual, 0);
  report.Each("bytes of its pushes beside those without the filter", filtered.bytes() / all.bytes(),
              Rule::kAtMost, 0.8);
  report.Control("gradients up to twice the penalty left out: conditions violated by",
                 too_high.Violation(), Rule::kAbove, 1e-3);
  report.Control("the same: weights that differ", Differing(too_high, all), Rule::kAbove, 0);
}

}  // namespace starling::techniques
