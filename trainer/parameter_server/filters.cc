// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/filters.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/types/span.h"

namespace starling::parameter_server {
namespace {

// A client tells rows in the order of its leases: more than these are hardly ever named again.
constexpr std::size_t kMostLists = 256;

// Whether the push carries rows.
bool HasRows(const Push& push) {
  return push.entry.kind == EntryKind::kPush && push.entry.update != nullptr &&
         push.entry.update->kind == UpdateKind::kRows;
}

// The same push, its rows listed like this. The values are not touched.
Push With(const Push& push, std::shared_ptr<const Keys> keys) {
  EncodedUpdate update = *push.entry.update;
  update.keys = std::move(keys);
  Push changed = push;
  changed.entry.update = std::make_shared<const EncodedUpdate>(std::move(update));
  return changed;
}

}  // namespace

// The client's end.

void RowSender::OnView() {
  for (Shard& shard : shards_) shard = {};
}

std::optional<Message> RowSender::Pack(std::size_t shard, const MemberId& to,
                                       const Message& message) {
  if (const auto* read = std::get_if<Read>(&message)) return Packed(shard, to, *read);
  if (const auto* push = std::get_if<Push>(&message)) return Packed(shard, to, *push);
  return std::nullopt;
}

std::optional<Message> RowSender::Packed(std::size_t shard, const MemberId& to, const Read& read) {
  const Name name = NameOf(shard, to, read.keys);
  if (name.number == 0) return std::nullopt;
  Read packed = read;
  packed.list = name.number;
  if (name.known) packed.keys.clear();
  return packed;
}

std::optional<Message> RowSender::Packed(std::size_t shard, const MemberId& to, const Push& push) {
  if (!HasRows(push) || !push.entry.update->keys) return std::nullopt;
  const Name name = NameOf(shard, to, *push.entry.update->keys);
  if (name.number == 0) return std::nullopt;
  Push packed = name.known ? With(push, nullptr) : push;
  packed.list = name.number;
  return packed;
}

RowSender::Name RowSender::NameOf(std::size_t shard, const MemberId& to,
                                  std::span<const std::uint64_t> keys) {
  if (!key_cache_ || keys.empty() || keys.size() > most_keys_) return {};
  Shard& at = shards_[shard];
  const std::size_t print = absl::HashOf(absl::MakeConstSpan(keys.data(), keys.size()));
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

void RowSender::Remove(Shard& shard, Place list) {
  const auto [begin, end] = shard.by_print.equal_range(list->print);
  shard.by_print.erase(
      std::find_if(begin, end, [&](const auto& one) { return one.second == list; }));
  shard.keys -= list->keys.size();
  shard.lists.erase(list);
}

void RowSender::Forget(std::size_t shard, const KeysUnknown& unknown) {
  Shard& at = shards_[shard];
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
    Keep(read.client, read.list, std::make_shared<const Keys>(read.keys));
    return {};
  }
  const std::shared_ptr<const Keys> keys = Find(read.client, read.list);
  if (keys == nullptr) {
    KeysUnknown unknown{read.view, read.client, read.list};
    unknown.request = read.request;
    return {std::nullopt, Send{read.client.id, unknown}};
  }
  Read whole = read;
  whole.keys = *keys;
  return {std::move(whole), std::nullopt};
}

RowReceiver::Unpacked RowReceiver::Whole(const Push& push) {
  if (push.list == 0 || !HasRows(push)) return {};
  const Client& client = push.entry.client;
  if (push.entry.update->keys) {
    Keep(client, push.list, push.entry.update->keys);
    return {};
  }
  std::shared_ptr<const Keys> keys = Find(client, push.list);
  if (keys == nullptr) {
    KeysUnknown unknown{push.view, client, push.list};
    unknown.sequence = push.entry.sequence;
    return {std::nullopt, Send{client.id, unknown}};
  }
  return {With(push, std::move(keys)), std::nullopt};
}

void RowReceiver::Keep(const Client& client, std::uint64_t number,
                       std::shared_ptr<const Keys> keys) {
  Lists& kept = clients_[client.id];
  const auto [known, is_new] = kept.by_number.try_emplace(number);
  if (is_new) {
    kept.lists.push_front({number, nullptr});
    known->second = kept.lists.begin();
  } else {
    kept.lists.splice(kept.lists.begin(), kept.lists, known->second);
  }
  List& list = kept.lists.front();
  kept.keys += keys->size();
  kept.keys -= list.keys ? list.keys->size() : 0;
  list.keys = std::move(keys);
  while (kept.keys > most_keys_ || kept.lists.size() > kMostLists) {
    kept.keys -= kept.lists.back().keys->size();
    kept.by_number.erase(kept.lists.back().number);
    kept.lists.pop_back();
  }
}

std::shared_ptr<const Keys> RowReceiver::Find(const Client& client, std::uint64_t number) {
  const auto of_client = clients_.find(client.id);
  if (of_client == clients_.end()) return nullptr;
  Lists& kept = of_client->second;
  const auto list = kept.by_number.find(number);
  if (list == kept.by_number.end()) return nullptr;
  kept.lists.splice(kept.lists.begin(), kept.lists, list->second);
  return list->second->keys;
}

}  // namespace starling::parameter_server
