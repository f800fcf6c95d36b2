// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/filters.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::parameter_server {
namespace {

// A client tells rows in the order of its leases: more than these are hardly ever named again.
constexpr std::size_t kMostLists = 256;

// The update of rows that a push carries; nothing if it carries something else.
std::optional<Update> RowsOf(const Push& push) {
  if (push.entry.kind != EntryKind::kPush || push.entry.update == nullptr) return std::nullopt;
  absl::StatusOr<Update> update = DecodeUpdate(*push.entry.update);
  if (!update.ok() || update->kind != UpdateKind::kRows) return std::nullopt;
  return *std::move(update);
}

std::uint64_t PrintOf(std::span<const std::uint64_t> keys) {
  std::uint64_t print = keys.size();
  for (const std::uint64_t key : keys) print = (print ^ key) * 0x9e3779b97f4a7c15ULL;
  return print ^ (print >> 32);
}

Push With(const Push& push, const Update& update) {
  Push changed = push;
  changed.entry.update = std::make_shared<const std::string>(Encode(update));
  return changed;
}

// Rows of which some are told: Update.rows is how many there are, Update.text begins with a bit for
// each, the lowest of the first byte first, and values are those of the rows whose bit is set.
std::size_t BitmapBytes(std::size_t rows) { return (rows + 7) / 8; }
bool IsTold(std::string_view bitmap, std::size_t row) {
  return (static_cast<std::uint8_t>(bitmap[row / 8]) >> row % 8 & 1) != 0;
}

struct Told {
  std::string bitmap;
  std::vector<float> values;
};

// -0 is told: what comes back is what was there, bit for bit.
bool IsZero(float value) { return std::bit_cast<std::uint32_t>(value) == 0; }

// Nothing where it would not be less.
std::optional<Told> WithoutZeros(const Update& rows, std::size_t bytes_of_a_value) {
  const std::size_t count = rows.keys.size(), width = rows.values.size() / count;
  if (width == 0 || rows.values.size() != count * width) return std::nullopt;
  Told told{std::string(BitmapBytes(count), '\0'), {}};
  for (std::size_t row = 0; row < count; ++row) {
    const std::span<const float> values = rows.values.subspan(row * width, width);
    if (std::ranges::all_of(values, IsZero)) continue;
    told.bitmap[row / 8] = static_cast<char>(told.bitmap[row / 8] | 1 << row % 8);
    told.values.insert(told.values.end(), values.begin(), values.end());
  }
  const std::size_t saved = (rows.values.size() - told.values.size()) * bytes_of_a_value;
  if (saved <= told.bitmap.size()) return std::nullopt;
  return told;
}

absl::Status Malformed(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("a push of which rows of zeros are left out is malformed: ", what,
                   "; the sender and this server must be of one version"));
}

absl::StatusOr<std::vector<float>> PutZerosBack(std::string_view bitmap,
                                                std::span<const float> told, std::size_t rows,
                                                std::size_t width) {
  std::size_t bits = 0;
  for (const char byte : bitmap) bits += std::popcount(static_cast<std::uint8_t>(byte));
  const std::size_t spare = rows % 8 == 0 ? 0 : 8 - rows % 8;
  if (spare > 0 && static_cast<std::uint8_t>(bitmap.back()) >> (8 - spare) != 0) {
    return Malformed("a bit is set behind those of its rows");
  }
  if (told.size() != bits * width) {
    return Malformed(absl::StrCat("it has ", told.size(), " values where ", bits, " rows of ",
                                  width, " are told"));
  }
  std::vector<float> all(rows * width);
  for (std::size_t row = 0, next = 0; row < rows; ++row) {
    if (!IsTold(bitmap, row)) continue;
    std::copy_n(told.begin() + static_cast<std::ptrdiff_t>(next), width,
                all.begin() + static_cast<std::ptrdiff_t>(row * width));
    next += width;
  }
  return all;
}

// All values of the rows of a push that came as `rows`, whose keys have been put back.
absl::StatusOr<std::vector<float>> AllValues(const Update& rows, std::size_t width) {
  const std::size_t count = rows.keys.size();
  std::string_view text = rows.text;
  if (rows.rows != 0) {
    if (rows.rows != count) {
      return Malformed(absl::StrCat("it tells of ", rows.rows, " rows and lists ", count));
    }
    if (text.size() < BitmapBytes(count)) return Malformed("its bitmap is too short");
    if (!rows.values.empty() && text.size() > BitmapBytes(count)) {
      return Malformed("its values come in two forms");
    }
    text.remove_prefix(BitmapBytes(count));
  }
  std::vector<float> values(rows.values.begin(), rows.values.end());
  if (values.empty()) {
    ASSIGN_OR_RETURN(values, Widen(text));
  }
  if (rows.rows == 0) return values;
  return PutZerosBack(rows.text.substr(0, BitmapBytes(count)), values, count, width);
}

}  // namespace

std::string Narrow(std::span<const float> values) {
  std::string bytes(values.size() * 2, '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    std::uint32_t rounded = bits + 0x7fffU + (bits >> 16 & 1U);
    // A NaN stays one, and what is finite stays so: rounding up must not make them infinite.
    if (std::isnan(values[i])) rounded = bits | 0x400000U;
    if (std::isfinite(values[i]) && !std::isfinite(std::bit_cast<float>(rounded))) rounded = bits;
    const auto upper = static_cast<std::uint16_t>(rounded >> 16);
    std::memcpy(bytes.data() + 2 * i, &upper, 2);
  }
  return bytes;
}

absl::StatusOr<std::vector<float>> Widen(std::string_view bytes) {
  if (bytes.size() % 2 != 0) {
    return absl::InvalidArgumentError(
        "values of 16 bits have an even number of bytes; sender and receiver must be of one "
        "version");
  }
  std::vector<float> values(bytes.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t upper = 0;
    std::memcpy(&upper, bytes.data() + 2 * i, 2);
    values[i] = std::bit_cast<float>(std::uint32_t{upper} << 16);
  }
  return values;
}

// The client's end.

void RowSender::OnView() {
  for (Slot& slot : slots_) slot = {};
}

std::optional<Message> RowSender::Pack(std::size_t slot, const MemberId& to,
                                       const Message& message) {
  if (const auto* read = std::get_if<Read>(&message)) return Packed(slot, to, *read);
  if (const auto* push = std::get_if<Push>(&message)) return Packed(slot, to, *push);
  return std::nullopt;
}

std::optional<Message> RowSender::Packed(std::size_t slot, const MemberId& to, const Read& read) {
  const Name name = NameOf(slot, to, read.keys);
  if (name.number == 0) return std::nullopt;
  Read packed = read;
  packed.list = name.number;
  if (name.known) packed.keys.clear();
  return packed;
}

std::optional<Message> RowSender::Packed(std::size_t slot, const MemberId& to, const Push& push) {
  if (!filters_.key_cache && !filters_.narrow && !filters_.zeros) return std::nullopt;
  const std::optional<Update> rows = RowsOf(push);
  if (!rows || rows->keys.empty()) return std::nullopt;
  const Name name = NameOf(slot, to, rows->keys);
  std::optional<Told> told;
  if (filters_.zeros) told = WithoutZeros(*rows, filters_.narrow ? 2 : sizeof(float));
  if (name.number == 0 && !told && !filters_.narrow) return std::nullopt;
  Update update = *rows;
  std::string text;
  if (name.known) update.keys = {};
  if (told) {
    update.rows = rows->keys.size();
    update.values = told->values;
    text = told->bitmap;
  }
  if (filters_.narrow) {
    text += Narrow(update.values);
    update.values = {};
  }
  update.text = text;
  Push packed = name.known || told || filters_.narrow ? With(push, update) : push;
  packed.list = name.number;
  return packed;
}

RowSender::Name RowSender::NameOf(std::size_t slot, const MemberId& to,
                                  std::span<const std::uint64_t> keys) {
  if (!filters_.key_cache || keys.empty() || keys.size() > most_keys_) return {};
  Slot& at = slots_[slot];
  const std::uint64_t print = PrintOf(keys);
  const auto [begin, end] = at.by_print.equal_range(print);
  const auto same = std::find_if(
      begin, end, [&](const auto& one) { return std::ranges::equal(one.second->keys, keys); });
  if (same == end) {
    at.lists.push_front({next_number_++, print, {keys.begin(), keys.end()}, {}});
    at.by_print.emplace(print, at.lists.begin());
    at.keys += keys.size();
    while (at.keys > most_keys_ || at.lists.size() > kMostLists) {
      Remove(at, std::prev(at.lists.end()));
    }
  } else {
    at.lists.splice(at.lists.begin(), at.lists, same->second);
  }
  List& first = at.lists.front();
  const bool known = std::ranges::find(first.told, to) != first.told.end();
  if (!known) first.told.push_back(to);
  return {first.number, known};
}

void RowSender::Remove(Slot& slot, Place list) {
  const auto [begin, end] = slot.by_print.equal_range(list->print);
  slot.by_print.erase(
      std::find_if(begin, end, [&](const auto& one) { return one.second == list; }));
  slot.keys -= list->keys.size();
  slot.lists.erase(list);
}

void RowSender::Forget(std::size_t slot, const KeysUnknown& unknown) {
  Slot& at = slots_[slot];
  const auto list = std::ranges::find(at.lists, unknown.list, &List::number);
  if (list != at.lists.end()) Remove(at, list);
}

// The server's end.

RowReceiver::Unpacked RowReceiver::Unpack(const Message& message) {
  if (const auto* read = std::get_if<Read>(&message)) return Whole(*read);
  if (const auto* push = std::get_if<Push>(&message)) return Whole(*push);
  return {};
}

RowReceiver::Unpacked RowReceiver::Whole(const Read& read) {
  if (read.list == 0) return {};
  if (!read.keys.empty()) {
    Keep(read.client, read.list, read.keys);
    return {};
  }
  const Keys* keys = Find(read.client, read.list);
  if (keys == nullptr) {
    KeysUnknown unknown{read.view, read.client, read.list};
    unknown.request = read.request;
    return {std::nullopt, Send{read.client.id, unknown}};
  }
  Read whole = read;
  whole.keys = *keys;
  return {std::move(whole), std::nullopt};
}

// What is malformed is refused here: half put back, it might pass for less than was pushed.
RowReceiver::Unpacked RowReceiver::Whole(const Push& push) {
  std::optional<Update> rows = RowsOf(push);
  if (!rows) return {};
  const Client& client = push.entry.client;
  const bool named = push.list != 0 && rows->keys.empty();
  if (named) {
    const Keys* keys = Find(client, push.list);
    if (keys == nullptr) {
      KeysUnknown unknown{push.view, client, push.list};
      unknown.sequence = push.entry.sequence;
      return {std::nullopt, Send{client.id, unknown}};
    }
    rows->keys = *keys;
  } else if (push.list != 0) {
    Keep(client, push.list, rows->keys);
  }
  const bool narrow = rows->values.empty() && !rows->text.empty();
  if (!named && !narrow && rows->rows == 0) return {};
  const absl::StatusOr<std::vector<float>> values = AllValues(*rows, width_);
  if (!values.ok()) {
    Rejection rejection{push.view, client, push.entry.sequence, values.status()};
    return {std::nullopt, Send{client.id, std::move(rejection)}};
  }
  rows->rows = 0;
  rows->values = *values;
  rows->text = {};
  return {With(push, *rows), std::nullopt};
}

void RowReceiver::Keep(const Client& client, std::uint64_t number,
                       std::span<const std::uint64_t> keys) {
  Lists& kept = clients_[client.id];
  const auto [known, is_new] = kept.by_number.try_emplace(number);
  if (is_new) {
    kept.lists.push_front({number, {}});
    known->second = kept.lists.begin();
  } else {
    kept.lists.splice(kept.lists.begin(), kept.lists, known->second);
  }
  List& list = kept.lists.front();
  kept.keys += keys.size();
  kept.keys -= list.keys.size();
  list.keys.assign(keys.begin(), keys.end());
  while (kept.keys > most_keys_ || kept.lists.size() > kMostLists) {
    kept.keys -= kept.lists.back().keys.size();
    kept.by_number.erase(kept.lists.back().number);
    kept.lists.pop_back();
  }
}

const Keys* RowReceiver::Find(const Client& client, std::uint64_t number) {
  const auto of_client = clients_.find(client.id);
  if (of_client == clients_.end()) return nullptr;
  Lists& kept = of_client->second;
  const auto list = kept.by_number.find(number);
  if (list == kept.by_number.end()) return nullptr;
  kept.lists.splice(kept.lists.begin(), kept.lists, list->second);
  return &list->second->keys;
}

}  // namespace starling::parameter_server
