// SPDX-License-Identifier: Apache-2.0
// Dense tables: one block of floats a range.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "trainer/kernels/span_math.h"
#include "trainer/parameter_server/factors.h"
#include "trainer/parameter_server/table.h"

namespace starling::parameter_server {
namespace {

using optimizer::Optimizer;

class DenseShard final : public ShardStore {
 public:
  DenseShard(std::shared_ptr<const TableSpec> spec, RowRange range)
      : spec_(std::move(spec)), range_(range), width_(spec_->width) {
    values_.resize(range_.size() * width_);
    for (std::uint64_t row = range_.begin; row < range_.end; ++row) {
      FillInitial(*spec_, row, std::span(values_).subspan((row - range_.begin) * width_, width_));
    }
    state_ = optimizer::NewState(*spec_->rule, values_.size());
  }

  absl::Status Check(const Update& update) const override {
    if (update.kind == UpdateKind::kFactors) {
      // The rows first: so many of them can be made.
      if (absl::Status status = Check(Selection{update.first, update.rows, {}}); !status.ok()) {
        return status;
      }
      const auto stretches = StretchesOf(update, width_);
      return stretches.ok() ? absl::OkStatus() : Refuse(std::string(stretches.status().message()));
    }
    if (update.kind == UpdateKind::kRows || update.kind == UpdateKind::kPairs) {
      return Refuse("a dense table takes ranges of rows");
    }
    if (update.values.size() != update.rows * width_)
      return Refuse("the values do not fit the rows");
    return Check(Selection{update.first, update.rows, {}});
  }
  absl::Status Check(const Selection& selection) const override {
    if (!selection.keys.empty()) return Refuse("a dense table takes ranges of rows");
    if (selection.first < range_.begin || selection.first > range_.end ||
        selection.rows > range_.end - selection.first) {
      return Refuse(absl::StrCat("rows ", selection.first, " and ", selection.rows,
                                 " more are not all in [", range_.begin, ", ", range_.end, ")"));
    }
    return absl::OkStatus();
  }

  void Apply(const optimizer::Update& update, std::span<const Part> parts) override {
    if (parts.size() == 1) {
      ApplyOne(update, parts[0]);
      return;
    }
    double total = 0;
    std::uint64_t first = range_.end, end = range_.begin;
    for (const Part& part : parts) {
      total += part.weight;
      first = std::min(first, part.update->first);
      end = std::max(end, part.update->first + part.update->rows);
    }
    std::vector<float> sum((end - first) * width_);
    for (const Part& part : parts) {
      std::vector<float> made;
      const std::span<const float> gradient = GradientOf(*part.update, made);
      const auto weight =
          static_cast<float>(spec_->combine == Combine::kSum ? 1.0 : part.weight / total);
      kernels::Axpy(weight, gradient,
                    std::span(sum).subspan((part.update->first - first) * width_, gradient.size()));
    }
    Step(update, first, sum, nullptr);
  }

  void Assign(const optimizer::Update& first, const Update& values) override {
    const std::size_t offset = (values.first - range_.begin) * width_;
    const std::size_t count = values.values.size();
    kernels::Copy(values.values, std::span(values_).subspan(offset, count));
    std::vector<std::span<float>> vectors;
    for (optimizer::StateVector& vector : state_) {
      vectors.push_back(std::span(vector.values).subspan(offset, count));
    }
    spec_->rule->Begin(first, values.values, vectors);
  }

  std::string Read(const Selection& selection) const override {
    return Bytes(std::span(values_), selection);
  }

  void Remember(const Client& client, const Selection& selection) override {
    const int what = spec_->rule->remembered();
    if (what == Optimizer::kNothing) return;
    const std::span<const float> now = what == Optimizer::kParameters
                                           ? std::span<const float>(values_)
                                           : state_[static_cast<std::size_t>(what)].values;
    Copies& copies = remembered_[client];
    copies.wanted.resize(values_.size());
    copies.parameters.resize(what == Optimizer::kParameters ? 0 : values_.size());
    Keep(now, selection, copies.wanted);
    if (what != Optimizer::kParameters) Keep(values_, selection, copies.parameters);
  }
  absl::StatusOr<std::string> ReadRemembered(const Client& client,
                                             const Selection& selection) const override {
    const auto copies = remembered_.find(client);
    if (copies == remembered_.end()) {
      return absl::NotFoundError(absl::StrCat("table ", spec_->name, " remembers no read of ",
                                              client.id.pod_uid, "; read it anew"));
    }
    const Copies& kept = copies->second;
    return Bytes(kept.parameters.empty() ? kept.wanted : kept.parameters, selection);
  }
  void KeepOnly(const std::vector<Client>& clients) override {
    std::erase_if(remembered_, [&](const auto& one) {
      return std::find(clients.begin(), clients.end(), one.first) == clients.end();
    });
  }

  void Save(Tensors& tensors) const override {
    const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(range_.size()),
                                             static_cast<std::int64_t>(width_)};
    tensors.views.push_back(checkpoint::MakeView("values", shape, std::span(values_)));
    for (const optimizer::StateVector& vector : state_) {
      tensors.views.push_back(
          checkpoint::MakeView("state." + vector.name, shape, std::span(vector.values)));
    }
    for (const auto& [client, copies] : remembered_) {
      const std::string name = NameOf(client);
      tensors.views.push_back(
          checkpoint::MakeView("wanted." + name, shape, std::span(copies.wanted)));
      if (copies.parameters.empty()) continue;
      tensors.views.push_back(
          checkpoint::MakeView("read." + name, shape, std::span(copies.parameters)));
    }
  }

  absl::Status Load(const checkpoint::Decoded& snapshot) override {
    remembered_.clear();
    if (!Take(snapshot, "values", values_)) return Damaged("values");
    for (optimizer::StateVector& vector : state_) {
      if (!Take(snapshot, "state." + vector.name, vector.values)) return Damaged(vector.name);
    }
    for (const checkpoint::TensorView& tensor : snapshot.tensors) {
      const bool wanted = tensor.name.starts_with("wanted.");
      if (!wanted && !tensor.name.starts_with("read.")) continue;
      const Client client = ClientOf(tensor.name.substr(tensor.name.find('.') + 1));
      Copies& copies = remembered_[client];
      std::vector<float>& into = wanted ? copies.wanted : copies.parameters;
      into.resize(values_.size());
      if (!Take(snapshot, tensor.name, into)) return Damaged(tensor.name);
    }
    return absl::OkStatus();
  }

  std::uint64_t bytes() const override {
    std::uint64_t floats = values_.size() * (1 + state_.size());
    for (const auto& [client, copies] : remembered_) {
      floats += copies.wanted.size() + copies.parameters.size();
    }
    return floats * sizeof(float);
  }

 private:
  // Of one client's last read: what the rule wants, and the parameters if those are not it.
  struct Copies {
    std::vector<float> wanted;
    std::vector<float> parameters;
  };

  // The gradient itself, or the product of its factors, made in `made`.
  std::span<const float> GradientOf(const Update& update, std::vector<float>& made) const {
    if (update.kind == UpdateKind::kRange) return update.values;
    made = Multiplied(update, width_);
    return made;
  }

  void ApplyOne(const optimizer::Update& update, const Part& part) {
    const Update& from = *part.update;
    std::vector<float> made;
    Step(update, from.first, GradientOf(from, made), part.client);
  }

  void Step(const optimizer::Update& update, std::uint64_t first, std::span<const float> gradient,
            const Client* client) {
    const std::size_t offset = (first - range_.begin) * width_;
    std::vector<std::span<float>> vectors;
    for (optimizer::StateVector& vector : state_) {
      vectors.push_back(std::span(vector.values).subspan(offset, gradient.size()));
    }
    const std::span<float> parameters = std::span(values_).subspan(offset, gradient.size());
    const auto copies = client == nullptr ? remembered_.end() : remembered_.find(*client);
    if (copies == remembered_.end()) {
      spec_->rule->Apply(update, parameters, gradient, vectors);
    } else {
      spec_->rule->ApplyDelayed(update, parameters, gradient, vectors,
                                std::span(copies->second.wanted).subspan(offset, gradient.size()));
    }
  }

  void Keep(std::span<const float> now, const Selection& selection, std::vector<float>& copy) {
    const std::size_t offset = (selection.first - range_.begin) * width_;
    const std::size_t count = selection.rows * width_;
    kernels::Copy(now.subspan(offset, count), std::span(copy).subspan(offset, count));
  }
  std::string Bytes(std::span<const float> from, const Selection& selection) const {
    const std::span<const float> rows =
        from.subspan((selection.first - range_.begin) * width_, selection.rows * width_);
    return {reinterpret_cast<const char*>(rows.data()), rows.size_bytes()};
  }

  static std::string NameOf(const Client& client) {
    return absl::StrCat(client.id.start, ".", client.joined, ".", client.id.pod_uid);
  }
  static Client ClientOf(const std::string& name) {
    const std::size_t start = name.find('.'), joined = name.find('.', start + 1);
    return {{name.substr(joined + 1), std::atoll(name.c_str())},
            std::strtoull(name.c_str() + start + 1, nullptr, 10)};
  }
  static bool Take(const checkpoint::Decoded& snapshot, const std::string& name,
                   std::vector<float>& into) {
    const checkpoint::TensorView* tensor = snapshot.Find(name);
    if (tensor == nullptr || tensor->Floats().size() != into.size()) return false;
    kernels::Copy(tensor->Floats(), into);
    return true;
  }
  absl::Status Refuse(std::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec_->name, ": ", std::string(why), "; see UpdateKind"));
  }
  absl::Status Damaged(const std::string& what) const {
    return absl::DataLossError(absl::StrCat("table ", spec_->name, ": the snapshot lacks ", what,
                                            " of this range; take another snapshot"));
  }

  const std::shared_ptr<const TableSpec> spec_;
  const RowRange range_;
  const std::size_t width_;
  std::vector<float> values_;
  std::vector<optimizer::StateVector> state_;
  std::map<Client, Copies> remembered_;
};

}  // namespace

std::unique_ptr<ShardStore> MakeDenseShard(std::shared_ptr<const TableSpec> spec, RowRange range) {
  return std::make_unique<DenseShard>(std::move(spec), range);
}

}  // namespace starling::parameter_server
