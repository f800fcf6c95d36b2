// SPDX-License-Identifier: Apache-2.0
// The key cache (Li et al. 2014): rows that a server was told before, with another read or push of
// this client in this view, are named by a number instead of being listed. The number is the
// client's own and never used for another list, so a name means its rows or nothing: a server that
// does not know it (any more) asks (KeysUnknown), and gets the list.
//
// It stands between the client machine and the wire (RowSender), and between the wire and the
// server's machine (RowReceiver): machines, logs, replicas and snapshots see whole messages only.
// What either side keeps belongs to one view and is bounded. What else may be left out of a push
// (low bits, rows of zeros) is left out where it is encoded: update.h, client/shard_gradient.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "trainer/parameter_server/messages.h"

namespace starling::parameter_server {

// What a server keeps of one client's lists for a shard, and a client of its own: a megabyte.
inline constexpr std::size_t kMostKeptKeys = std::size_t{1} << 17;

// A client's end, for all shards. Thread-compatible.
class RowSender {
 public:
  // Without `key_cache` everything travels as it is.
  RowSender(bool key_cache, std::size_t shards, std::size_t most_keys = kMostKeptKeys)
      : key_cache_(key_cache), most_keys_(most_keys), shards_(shards) {}

  // A view: no server knows anything.
  void OnView();
  // How `message` travels, which leaves for `to` now; nothing: as it is.
  std::optional<Message> Pack(std::size_t shard, const MemberId& to, const Message& message);
  // The list is told anew.
  void Forget(std::size_t shard, const KeysUnknown& unknown);

 private:
  struct List {
    std::uint64_t number = 0;
    std::uint64_t print = 0;  // of the keys: the same for equal ones
    Keys keys;
    std::vector<MemberId> told;
  };
  using Place = std::list<List>::iterator;
  struct Shard {
    std::list<List> lists;  // that used last first
    std::unordered_multimap<std::uint64_t, Place> by_print;
    std::size_t keys = 0;  // in all of them
  };
  struct Name {
    std::uint64_t number = 0;  // 0: none
    bool known = false;        // to whom it is sent
  };

  Name NameOf(std::size_t shard, const MemberId& to, std::span<const std::uint64_t> keys);
  static void Remove(Shard& shard, Place list);
  std::optional<Message> Packed(std::size_t shard, const MemberId& to, const Read& read);
  std::optional<Message> Packed(std::size_t shard, const MemberId& to, const Push& push);

  const bool key_cache_;
  const std::size_t most_keys_;
  std::uint64_t next_number_ = 1;
  std::vector<Shard> shards_;
};

// A server's end, of one shard. Thread-compatible.
class RowReceiver {
 public:
  explicit RowReceiver(std::size_t most_keys = kMostKeptKeys) : most_keys_(most_keys) {}
  RowReceiver(RowReceiver&&) = default;
  RowReceiver& operator=(RowReceiver&&) = default;

  // A view: everything is forgotten.
  void OnView() { clients_.clear(); }

  struct Unpacked {
    std::optional<Message> whole;  // nothing: the message is
    std::optional<Send> answer;    // it cannot be made whole: KeysUnknown
  };
  Unpacked Unpack(const Message& message);

 private:
  struct List {
    std::uint64_t number = 0;
    std::shared_ptr<const Keys> keys;  // shared with the updates that name it
  };
  struct Lists {
    std::list<List> lists;  // that used last first
    std::unordered_map<std::uint64_t, std::list<List>::iterator> by_number;
    std::size_t keys = 0;  // in all of them
  };

  Unpacked Whole(const Read& read);
  Unpacked Whole(const Push& push);
  void Keep(const Client& client, std::uint64_t number, std::shared_ptr<const Keys> keys);
  std::shared_ptr<const Keys> Find(const Client& client, std::uint64_t number);

  std::size_t most_keys_;
  std::map<MemberId, Lists> clients_;
};

}  // namespace starling::parameter_server
