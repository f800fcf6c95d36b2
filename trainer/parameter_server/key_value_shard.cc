// SPDX-License-Identifier: Apache-2.0
// Key-value tables: texts by number, put or merged in the shard's order.
#include "absl/strings/str_cat.h"
#include "common/bytes/encoding.h"
#include "trainer/parameter_server/table.h"

namespace starling::parameter_server {
namespace {

class KeyValueShard final : public ShardStore {
 public:
  KeyValueShard(std::shared_ptr<const TableSpec> spec, RowRange range)
      : spec_(std::move(spec)), range_(range) {}

  absl::Status Check(const Update& update) const override {
    if (update.kind != UpdateKind::kPairs) return Refuse("a key-value table takes pairs");
    for (std::size_t i = 0; i < update.keys.size(); i += 2) {
      if (!range_.Holds(HashOfKey(update.keys[i]))) return Refuse("a key of another range");
    }
    return absl::OkStatus();
  }
  absl::Status Check(const Selection& selection) const override {
    for (const std::uint64_t key : selection.keys) {
      if (!range_.Holds(HashOfKey(key))) return Refuse("a key of another range");
    }
    return absl::OkStatus();
  }

  void Apply(const optimizer::Update& /*update*/, std::span<const Part> parts) override {
    for (const Part& part : parts) {
      std::string_view rest = part.update->text;
      for (std::size_t i = 0; i < part.update->keys.size(); i += 2) {
        const std::string_view put = rest.substr(0, part.update->keys[i + 1]);
        rest.remove_prefix(put.size());
        texts_[part.update->keys[i]] = std::string(put);
      }
    }
  }

  void Assign(const optimizer::Update& first, const Update& values) override {
    const Part part{&values, 1, nullptr};
    Apply(first, {&part, 1});
  }

  std::string Read(const Selection& selection) const override {
    bytes::Writer out;
    std::string texts;
    for (const std::uint64_t key : selection.keys) {
      const auto text = texts_.find(key);
      out.Put(static_cast<std::uint64_t>(text == texts_.end() ? 0 : text->second.size()));
      if (text != texts_.end()) texts += text->second;
    }
    return out.Take() + texts;
  }

  void Remember(const Client& /*client*/, const Selection& /*selection*/) override {}
  absl::StatusOr<std::string> ReadRemembered(const Client& /*client*/,
                                             const Selection& selection) const override {
    return Read(selection);
  }
  void KeepOnly(const std::vector<Client>& /*clients*/) override {}

  void Save(Tensors& tensors) const override {
    bytes::Writer out;
    out.Put(static_cast<std::uint64_t>(texts_.size()));
    for (const auto& [key, text] : texts_) {
      out.Put(key);
      out.PutText(text);
    }
    tensors.texts.push_back(out.Take());
    const std::string& text = tensors.texts.back();
    checkpoint::TensorView view;
    view.name = "pairs";
    view.type = checkpoint::DType::kU8;
    view.shape = {static_cast<std::int64_t>(text.size())};
    view.data = std::as_bytes(std::span(text));
    tensors.views.push_back(view);
  }

  absl::Status Load(const checkpoint::Decoded& snapshot) override {
    const checkpoint::TensorView* pairs = snapshot.Find("pairs");
    if (pairs == nullptr) return Damaged();
    bytes::Reader in({reinterpret_cast<const char*>(pairs->data.data()), pairs->data.size()});
    texts_.clear();
    for (std::uint64_t left = in.GetCount(16); left > 0; --left) {
      const auto key = in.Get<std::uint64_t>();
      texts_[key] = std::string(in.GetText());
    }
    return in.done() ? absl::OkStatus() : Damaged();
  }

  std::uint64_t bytes() const override {
    std::uint64_t bytes = 0;
    for (const auto& [key, text] : texts_) bytes += sizeof key + text.size();
    return bytes;
  }

 private:
  absl::Status Refuse(std::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec_->name, ": ", std::string(why), "; see UpdateKind"));
  }
  absl::Status Damaged() const {
    return absl::DataLossError(absl::StrCat(
        "table ", spec_->name, ": the snapshot's pairs are damaged; take another snapshot"));
  }

  const std::shared_ptr<const TableSpec> spec_;
  const RowRange range_;
  std::map<std::uint64_t, std::string> texts_;
};

}  // namespace

std::unique_ptr<ShardStore> MakeKeyValueShard(std::shared_ptr<const TableSpec> spec,
                                              RowRange range) {
  return std::make_unique<KeyValueShard>(std::move(spec), range);
}

}  // namespace starling::parameter_server
