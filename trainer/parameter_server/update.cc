// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/update.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"

namespace starling::parameter_server {
namespace {

using compression::Codec;
using compression::CodecNumber;

constexpr std::uint64_t kMostOfAnything = std::uint64_t{1}
                                          << 40;  // of anything: no product overflows
// Numbers that bytes may stand for whose codec has no fixed size.
constexpr std::uint64_t kMostOfVaryingSize = std::uint64_t{1} << 32;

absl::Status Malformed(const EncodedUpdate& update, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("an update of ", update.bytes(), " bytes is malformed: ", what,
                   "; the sender and this server must be of one version"));
}

EncodedUpdate HeadOf(const Update& update) {
  EncodedUpdate head;
  head.kind = update.kind;
  head.rank = update.rank;
  head.first = update.first;
  head.rows = update.rows;
  if (!update.keys.empty()) {
    head.keys = std::make_shared<const Keys>(update.keys.begin(), update.keys.end());
  }
  return head;
}

// -0 is told: what comes back is what was there, bit for bit.
bool IsZero(float value) { return std::bit_cast<std::uint32_t>(value) == 0; }

struct Told {
  std::string bits;
  std::vector<float> values;
};
// Nothing where it would not be less.
std::optional<Told> WithoutZeros(const Update& rows, const Codec& codec) {
  const std::size_t count = rows.keys.size(), width = count == 0 ? 0 : rows.values.size() / count;
  if (width == 0) return std::nullopt;
  Told told{std::string((count + 7) / 8, '\0'), {}};
  for (std::size_t row = 0; row < count; ++row) {
    const std::span<const float> values = rows.values.subspan(row * width, width);
    if (std::ranges::all_of(values, IsZero)) continue;
    told.bits[row / 8] = static_cast<char>(told.bits[row / 8] | 1 << row % 8);
    told.values.insert(told.values.end(), values.begin(), values.end());
  }
  const std::size_t without = codec.MaxBytes(told.values.size()) + told.bits.size();
  if (without >= codec.MaxBytes(rows.values.size())) return std::nullopt;
  return told;
}

bool IsTold(std::string_view bits, std::size_t row) {
  return (static_cast<std::uint8_t>(bits[row / 8]) >> row % 8 & 1) != 0;
}

// Of the rows of `update`, those whose bit is set have `values`.
absl::StatusOr<std::vector<float>> PutZerosBack(const EncodedUpdate& update,
                                                std::span<const float> values, std::size_t width) {
  const std::size_t rows = update.keys ? update.keys->size() : 0;
  if (update.kind != UpdateKind::kRows || update.told.size() != (rows + 7) / 8) {
    return Malformed(update, absl::StrCat("it tells of another number of rows than its ", rows));
  }
  std::size_t bits = 0;
  for (const char byte : update.told) bits += std::popcount(static_cast<std::uint8_t>(byte));
  const std::size_t spare = rows % 8 == 0 ? 0 : 8 - rows % 8;
  if (spare > 0 && static_cast<std::uint8_t>(update.told.back()) >> (8 - spare) != 0) {
    return Malformed(update, "a bit is set behind those of its rows");
  }
  if (values.size() != bits * width) {
    return Malformed(update, absl::StrCat("it has ", values.size(), " values where ", bits,
                                          " rows of ", width, " are told"));
  }
  std::vector<float> all(rows * width);
  for (std::size_t row = 0, next = 0; row < rows; ++row) {
    if (!IsTold(update.told, row)) continue;
    std::ranges::copy(values.subspan(next, width), all.begin() + static_cast<long>(row * width));
    next += width;
  }
  return all;
}

bool PairsFit(const EncodedUpdate& update) {
  if (update.values != 0 || (update.keys && update.keys->size() % 2 != 0)) return false;
  std::uint64_t length = 0;
  for (std::size_t i = 1; update.keys && i < update.keys->size(); i += 2) {
    if ((*update.keys)[i] > update.text().size()) return false;
    length += (*update.keys)[i];
  }
  return length == update.text().size();
}

absl::Status CheckHead(const EncodedUpdate& update) {
  if (update.kind < UpdateKind::kRange || update.kind > UpdateKind::kPairs) {
    return Malformed(update, "its kind is unknown");
  }
  if (update.rows > kMostOfAnything || update.values > kMostOfAnything)
    return Malformed(update, "a count is absurd");
  if (update.first > ~std::uint64_t{0} - update.rows) {
    return Malformed(update, "its rows end behind the last");
  }
  if (update.kind == UpdateKind::kPairs && !PairsFit(update)) {
    return Malformed(update, "its pairs do not fit");
  }
  return absl::OkStatus();
}

// The values that the body stands for: the body itself where it has them as they are.
absl::StatusOr<std::span<const float>> ValuesOf(const EncodedUpdate& update,
                                                std::vector<float>& made) {
  ASSIGN_OR_RETURN(const Codec* codec, compression::FindCodec(update.codec));
  const auto bytes = std::as_bytes(std::span(update.text()));
  const bool fits = codec->fixed_size() ? codec->MaxBytes(update.values) == bytes.size()
                                        : update.values <= kMostOfVaryingSize;
  if (!fits) return Malformed(update, "its counts do not fit its size");
  if (update.codec == compression::kIdentity) {
    return buffer::ConstView(buffer::DType::kF32, buffer::Device::kCpu, bytes.data(), update.values)
        .As<float>();
  }
  made.resize(update.values);
  RETURN_IF_ERROR(codec->Decode(bytes, made));
  return made;
}

}  // namespace

std::size_t EncodedUpdate::bytes() const {
  return 48 + (keys ? keys->size() * sizeof(Keys::value_type) : 0) + told.size() + text().size();
}

UpdatePtr Encode(const Update& update, CodecNumber codec, bool leave_out_zeros) {
  const absl::StatusOr<const Codec*> found = compression::FindCodec(codec);
  STARLING_CHECK(found.ok(), "who encodes knows the codec");
  std::span<const float> values = update.values;
  std::optional<Told> told;
  if (leave_out_zeros) told = WithoutZeros(update, **found);
  if (told) values = told->values;
  EncodedUpdate encoded = HeadOf(update);
  if (told) encoded.told = std::move(told->bits);
  encoded.codec = codec;
  encoded.values = values.size();
  absl::StatusOr<std::string> body = compression::EncodeText(**found, values);
  STARLING_CHECK(body.ok(), "floats of the host can be encoded");
  if (update.kind == UpdateKind::kPairs) body = std::string(update.text);
  encoded.body = std::make_shared<const std::string>(*std::move(body));
  return std::make_shared<const EncodedUpdate>(std::move(encoded));
}

UpdatePtr Encoded(const Update& update, CodecNumber codec, std::string body) {
  EncodedUpdate encoded = HeadOf(update);
  encoded.codec = codec;
  encoded.values = update.values.size();
  encoded.body = std::make_shared<const std::string>(std::move(body));
  return std::make_shared<const EncodedUpdate>(std::move(encoded));
}

absl::StatusOr<DecodedUpdate> Decode(UpdatePtr update, std::size_t width) {
  RETURN_IF_ERROR(CheckHead(*update));
  DecodedUpdate decoded;
  Update& view = decoded.update;
  view = {update->kind, update->rank, update->first, update->rows, {}, {}, {}};
  if (update->keys) view.keys = *update->keys;
  if (update->kind == UpdateKind::kPairs) {
    view.text = update->text();
  } else {
    ASSIGN_OR_RETURN(view.values, ValuesOf(*update, decoded.made));
  }
  if (!update->told.empty()) {
    ASSIGN_OR_RETURN(decoded.made, PutZerosBack(*update, view.values, width));
    view.values = decoded.made;
  }
  decoded.from = std::move(update);
  return decoded;
}

void Put(const EncodedUpdate& update, bytes::Writer& out) {
  out.Put(static_cast<std::uint8_t>(update.kind));
  out.Put(update.codec);
  out.Put(update.rank);
  out.Put(update.first);
  out.Put(update.rows);
  out.Put(update.values);
  out.PutText(update.told);
  out.PutSpan(update.keys ? std::span<const std::uint64_t>(*update.keys)
                          : std::span<const std::uint64_t>());
}

UpdatePtr GetUpdate(bytes::Reader& in, std::shared_ptr<const std::string> body) {
  auto update = std::make_shared<EncodedUpdate>();
  update->kind = static_cast<UpdateKind>(in.Get<std::uint8_t>());
  update->codec = in.Get<CodecNumber>();
  update->rank = in.Get<std::uint32_t>();
  update->first = in.Get<std::uint64_t>();
  update->rows = in.Get<std::uint64_t>();
  update->values = in.Get<std::uint64_t>();
  update->told = std::string(in.GetText());
  Keys keys = in.GetVector<std::uint64_t>();
  if (!keys.empty()) update->keys = std::make_shared<const Keys>(std::move(keys));
  update->body = std::move(body);
  return update;
}

}  // namespace starling::parameter_server
