// SPDX-License-Identifier: Apache-2.0
// Sparse tables: rows come to life when they are first pushed. Living rows lie one after another in
// the order of their births, which is the same at every replica.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "trainer/kernels/span_math.h"
#include "trainer/parameter_server/table.h"

namespace starling::parameter_server {
namespace {

// So many lookups ahead a bucket is asked for: most are in no cache.
constexpr std::size_t kAhead = 16;

class SparseShard final : public ShardStore {
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
    if (parts.size() == 1) return Step(update, parts[0].update->keys, parts[0].update->values);
    double total = 0;
    std::vector<std::uint64_t> keys;
    for (const Part& part : parts) {
      total += part.weight;
      keys.insert(keys.end(), part.update->keys.begin(), part.update->keys.end());
    }
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    std::vector<float> sums(keys.size() * width_);
    for (const Part& part : parts) {
      const auto weight =
          static_cast<float>(spec_->combine == Combine::kSum ? 1.0 : part.weight / total);
      for (std::size_t i = 0; i < part.update->keys.size(); ++i) {
        const auto at = std::lower_bound(keys.begin(), keys.end(), part.update->keys[i]);
        kernels::Axpy(weight, part.update->values.subspan(i * width_, width_),
                      std::span(sums).subspan((at - keys.begin()) * width_, width_));
      }
    }
    Step(update, keys, sums);
  }

  void Assign(const optimizer::Update& first, const Update& values) override {
    const std::vector<std::size_t> places = Births(values.keys);
    for (std::size_t i = 0; i < values.keys.size(); ++i) {
      const std::size_t offset = places[i] * width_;
      const std::span<const float> row = values.values.subspan(i * width_, width_);
      kernels::Copy(row, std::span(values_).subspan(offset, width_));
      std::vector<std::span<float>> vectors;
      for (optimizer::StateVector& vector : state_) {
        vectors.push_back(std::span(vector.values).subspan(offset, width_));
      }
      spec_->rule->Begin(first, row, vectors);
    }
  }

  std::string Read(const Selection& selection) const override {
    std::string bytes(selection.keys.size() * width_ * sizeof(float), '\0');
    const std::span rows(reinterpret_cast<float*>(bytes.data()), selection.keys.size() * width_);
    for (std::size_t i = 0; i < selection.keys.size(); ++i) {
      if (i + kAhead < selection.keys.size()) index_.prefetch(selection.keys[i + kAhead]);
      const auto living = index_.find(selection.keys[i]);
      if (living == index_.end()) {
        FillInitial(*spec_, selection.keys[i], rows.subspan(i * width_, width_));
      } else {
        CopyRow(values_.data() + living->second * width_, rows.data() + i * width_);
      }
    }
    return bytes;
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
    for (const optimizer::StateVector& vector : state_) {
      tensors.views.push_back(
          checkpoint::MakeView("state." + vector.name, shape, std::span(vector.values)));
    }
  }

  absl::Status Load(const checkpoint::Decoded& snapshot) override {
    const checkpoint::TensorView* keys = snapshot.Find("keys");
    if (keys == nullptr) return Damaged("keys");
    keys_.assign(keys->Integers().begin(), keys->Integers().end());
    index_.clear();
    for (std::size_t i = 0; i < keys_.size(); ++i) index_[keys_[i]] = i;
    if (!Take(snapshot, "values", values_)) return Damaged("values");
    for (optimizer::StateVector& vector : state_) {
      if (!Take(snapshot, "state." + vector.name, vector.values)) return Damaged(vector.name);
    }
    return absl::OkStatus();
  }

  std::uint64_t bytes() const override {
    return keys_.size() * sizeof(std::uint64_t) +
           values_.size() * (1 + state_.size()) * sizeof(float);
  }

 private:
  // Where these rows lie. Those that do not live yet come to life.
  std::vector<std::size_t> Births(std::span<const std::uint64_t> keys) {
    std::vector<std::size_t> places(keys.size());
    std::size_t living = keys_.size();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (i + kAhead < keys.size()) index_.prefetch(keys[i + kAhead]);
      const auto [place, born] = index_.try_emplace(keys[i], keys_.size());
      if (born) keys_.push_back(keys[i]);
      places[i] = place->second;
    }
    values_.resize(keys_.size() * width_);
    for (optimizer::StateVector& vector : state_) vector.values.resize(values_.size());
    for (; living < keys_.size(); ++living) {
      FillInitial(*spec_, keys_[living], std::span(values_).subspan(living * width_, width_));
    }
    return places;
  }

  // The rows one after another. Where their numbers ascend none is there twice, and the rule takes
  // them at once.
  void Step(const optimizer::Update& update, std::span<const std::uint64_t> keys,
            std::span<const float> gradient) {
    for (std::size_t begin = 0, end = 0; begin < keys.size(); begin = end) {
      do {
        ++end;
      } while (end < keys.size() && keys[end - 1] < keys[end]);
      StepAtOnce(update, keys.subspan(begin, end - begin),
                 gradient.subspan(begin * width_, (end - begin) * width_));
    }
  }
  void StepAtOnce(const optimizer::Update& update, std::span<const std::uint64_t> keys,
                  std::span<const float> gradient) {
    const std::vector<std::size_t> places = Births(keys);
    std::vector<float> values = Gather(values_, places);
    std::vector<std::vector<float>> state;
    for (const optimizer::StateVector& vector : state_)
      state.push_back(Gather(vector.values, places));
    const std::vector<std::span<float>> vectors(state.begin(), state.end());
    spec_->rule->Apply(update, values, gradient, vectors);
    Scatter(values, places, values_);
    for (std::size_t i = 0; i < state.size(); ++i) Scatter(state[i], places, state_[i].values);
  }
  // Rows are mostly one number: a call would cost more than the copy.
  void CopyRow(const float* from, float* to) const {
    *to = *from;
    if (width_ > 1) std::copy_n(from + 1, width_ - 1, to + 1);
  }
  std::vector<float> Gather(std::span<const float> from,
                            std::span<const std::size_t> places) const {
    std::vector<float> rows(places.size() * width_);
    for (std::size_t i = 0; i < places.size(); ++i) {
      CopyRow(from.data() + places[i] * width_, rows.data() + i * width_);
    }
    return rows;
  }
  void Scatter(std::span<const float> rows, std::span<const std::size_t> places,
               std::span<float> into) const {
    for (std::size_t i = 0; i < places.size(); ++i) {
      CopyRow(rows.data() + i * width_, into.data() + places[i] * width_);
    }
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
  const RowRange range_;
  const std::size_t width_;
  std::vector<std::uint64_t> keys_;  // in the order of their births
  absl::flat_hash_map<std::uint64_t, std::size_t> index_;
  std::vector<float> values_;
  std::vector<optimizer::StateVector> state_;
};

}  // namespace

std::unique_ptr<ShardStore> MakeSparseShard(std::shared_ptr<const TableSpec> spec, RowRange range) {
  return std::make_unique<SparseShard>(std::move(spec), range);
}

}  // namespace starling::parameter_server
