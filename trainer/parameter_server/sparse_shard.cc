// SPDX-License-Identifier: Apache-2.0
// Sparse tables: rows come to life when they are first pushed. Living rows lie one after another in
// the order of their births, which is the same at every replica.
#include <algorithm>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "trainer/kernels/span_math.h"
#include "trainer/parameter_server/table.h"

namespace starling::parameter_server {
namespace {

class SparseShard final : public Shard {
 public:
  SparseShard(std::shared_ptr<const TableSpec> spec, RowRange range)
      : spec_(std::move(spec)),
        range_(range),
        width_(spec_->width),
        state_(optimizer::NewState(*spec_->rule, 0)) {}

  absl::Status Check(const Update& update) const override {
    if (update.kind != UpdateKind::kRows) return Refuse("a sparse table takes named rows");
    if (update.values.size() != update.keys.size() * width_) {
      return Refuse("the values do not fit the rows");
    }
    return Check(Selection{0, 0, update.keys});
  }
  absl::Status Check(const Selection& selection) const override {
    if (selection.rows != 0) return Refuse("a sparse table takes named rows");
    for (const std::uint64_t key : selection.keys) {
      if (!range_.Holds(HashOfKey(key))) {
        return Refuse(absl::StrCat("row ", key, " belongs to another range"));
      }
    }
    return absl::OkStatus();
  }

  void Apply(const optimizer::Update& update, std::span<const Part> parts) override {
    if (parts.size() == 1) {
      const Update& from = *parts[0].update;
      for (std::size_t i = 0; i < from.keys.size(); ++i) {
        Step(update, from.keys[i], from.values.subspan(i * width_, width_), parts[0].client);
      }
      return;
    }
    double total = 0;
    for (const Part& part : parts) total += part.weight;
    std::map<std::uint64_t, std::vector<float>> sums;
    for (const Part& part : parts) {
      const auto weight =
          static_cast<float>(spec_->combine == Combine::kSum ? 1.0 : part.weight / total);
      for (std::size_t i = 0; i < part.update->keys.size(); ++i) {
        std::vector<float>& sum = sums[part.update->keys[i]];
        sum.resize(width_);
        kernels::Axpy(weight, part.update->values.subspan(i * width_, width_), sum);
      }
    }
    for (const auto& [key, sum] : sums) Step(update, key, sum, nullptr);
  }

  void Assign(const optimizer::Update& first, const Update& values) override {
    for (std::size_t i = 0; i < values.keys.size(); ++i) {
      const std::size_t offset = Birth(values.keys[i]) * width_;
      const std::span<const float> row = values.values.subspan(i * width_, width_);
      kernels::Copy(row, std::span(values_).subspan(offset, width_));
      std::vector<std::span<float>> slots;
      for (optimizer::StateSlot& slot : state_) {
        slots.push_back(std::span(slot.values).subspan(offset, width_));
      }
      spec_->rule->Begin(first, row, slots);
    }
  }

  std::string Read(const Selection& selection) const override {
    std::vector<float> rows(selection.keys.size() * width_);
    for (std::size_t i = 0; i < selection.keys.size(); ++i) {
      const std::span<float> row = std::span(rows).subspan(i * width_, width_);
      const auto living = index_.find(selection.keys[i]);
      if (living == index_.end()) {
        FillInitial(*spec_, selection.keys[i], row);
      } else {
        kernels::Copy(std::span(values_).subspan(living->second * width_, width_), row);
      }
    }
    return {reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(float)};
  }

  // Corrections for delay need a copy of every row for every reader: dense tables only.
  void Remember(const Client& /*client*/, const Selection& /*selection*/) override {}
  absl::StatusOr<std::string> ReadRemembered(const Client& /*client*/,
                                             const Selection& selection) const override {
    return Read(selection);
  }
  void KeepOnly(const std::vector<Client>& /*clients*/) override {}

  void Save(Tensors& tensors) const override {
    const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(keys_.size()),
                                             static_cast<std::int64_t>(width_)};
    tensors.owned.emplace_back(keys_.begin(), keys_.end());
    tensors.views.push_back(
        checkpoint::MakeView("keys", {shape[0]}, std::span(std::as_const(tensors.owned.back()))));
    tensors.views.push_back(checkpoint::MakeView("values", shape, std::span(values_)));
    for (const optimizer::StateSlot& slot : state_) {
      tensors.views.push_back(
          checkpoint::MakeView("state." + slot.name, shape, std::span(slot.values)));
    }
  }

  absl::Status Load(const checkpoint::Decoded& snapshot) override {
    const checkpoint::TensorView* keys = snapshot.Find("keys");
    if (keys == nullptr) return Damaged("keys");
    keys_.assign(keys->Integers().begin(), keys->Integers().end());
    index_.clear();
    for (std::size_t i = 0; i < keys_.size(); ++i) index_[keys_[i]] = i;
    if (!Take(snapshot, "values", values_)) return Damaged("values");
    for (optimizer::StateSlot& slot : state_) {
      if (!Take(snapshot, "state." + slot.name, slot.values)) return Damaged(slot.name);
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Shard> Split(std::uint64_t at) override {
    auto upper = std::make_unique<SparseShard>(spec_, RowRange{at, range_.end});
    SparseShard lower(spec_, RowRange{range_.begin, at});
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      SparseShard& to = HashOfKey(keys_[i]) < at ? lower : *upper;
      const std::size_t row = to.Birth(keys_[i]);
      const auto move = [&](const std::vector<float>& from, std::vector<float>& into) {
        kernels::Copy(std::span(from).subspan(i * width_, width_),
                      std::span(into).subspan(row * width_, width_));
      };
      move(values_, to.values_);
      for (std::size_t s = 0; s < state_.size(); ++s) move(state_[s].values, to.state_[s].values);
    }
    range_.end = at;
    keys_ = std::move(lower.keys_);
    index_ = std::move(lower.index_);
    values_ = std::move(lower.values_);
    state_ = std::move(lower.state_);
    return upper;
  }

  std::uint64_t bytes() const override {
    return keys_.size() * sizeof(std::uint64_t) +
           values_.size() * (1 + state_.size()) * sizeof(float);
  }

 private:
  std::size_t Birth(std::uint64_t key) {
    const auto [living, born] = index_.try_emplace(key, keys_.size());
    if (!born) return living->second;
    keys_.push_back(key);
    values_.resize(keys_.size() * width_);
    FillInitial(*spec_, key, std::span(values_).last(width_));
    for (optimizer::StateSlot& slot : state_) slot.values.resize(values_.size());
    return living->second;
  }

  void Step(const optimizer::Update& update, std::uint64_t key, std::span<const float> gradient,
            const Client* /*client*/) {
    const std::size_t offset = Birth(key) * width_;
    std::vector<std::span<float>> slots;
    for (optimizer::StateSlot& slot : state_) {
      slots.push_back(std::span(slot.values).subspan(offset, width_));
    }
    spec_->rule->Apply(update, std::span(values_).subspan(offset, width_), gradient, slots);
  }

  bool Take(const checkpoint::Decoded& snapshot, const std::string& name,
            std::vector<float>& into) const {
    const checkpoint::TensorView* tensor = snapshot.Find(name);
    if (tensor == nullptr || tensor->Floats().size() != keys_.size() * width_) return false;
    into.assign(tensor->Floats().begin(), tensor->Floats().end());
    return true;
  }
  absl::Status Refuse(std::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec_->name, ": ", std::string(why), "; see UpdateKind"));
  }
  absl::Status Damaged(const std::string& what) const {
    return absl::DataLossError(absl::StrCat("table ", spec_->name, ": the snapshot lacks ", what,
                                            "; take another snapshot"));
  }

  const std::shared_ptr<const TableSpec> spec_;
  RowRange range_;
  const std::size_t width_;
  std::vector<std::uint64_t> keys_;  // in the order of their births
  std::unordered_map<std::uint64_t, std::size_t> index_;
  std::vector<float> values_;
  std::vector<optimizer::StateSlot> state_;
};

}  // namespace

std::unique_ptr<Shard> MakeSparseShard(std::shared_ptr<const TableSpec> spec, RowRange range) {
  return std::make_unique<SparseShard>(std::move(spec), range);
}

}  // namespace starling::parameter_server
