// SPDX-License-Identifier: Apache-2.0
// What network is emulated between the members of a job: for experiments and studies.
//
// A *card* sends and receives so many bytes a second. Each member has one of its own, or those of
// an emulated *host* share one: then all that they send to, and receive from, other hosts goes
// through it, and between them nothing is emulated. A *link* between two of them may be slower than
// the cards at its ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace starling::transport {

// The same for all processes since the machine was started, and no other machine's.
std::uint32_t ThisMachine();

// What is between two pods, both ways. They are named by their role and number, as worker-3 of
// job-worker-3.
struct LinkShaping {
  std::string from = {};  // empty: every pod
  std::string to = {};
  double bytes_per_second = 0;                         // 0: no slower than the cards
  std::optional<absl::Duration> delay = std::nullopt;  // in place of the network's
};

struct Shaping {
  absl::Duration delay = absl::ZeroDuration();  // of each frame, after its last byte left
  double bytes_per_second = 0;                  // of a card, each way; 0: as fast as the machine
  int pods_per_host = 1;                        // that share a card
  // By whose clock frames say when they left, so that members on others are refused.
  std::uint32_t machine = ThisMachine();
  // Where members of a host find their card. They must be processes of one machine that see the
  // same folder.
  std::string card_folder = {};
  std::vector<LinkShaping> links = {};

  bool enabled() const {
    return delay > absl::ZeroDuration() || bytes_per_second > 0 || !links.empty();
  }
};

// "emulated 1 Gbit/s, 0.2 ms, 4 pods on a card".
std::string TextOf(const Shaping& shaping);

// Of the pod `name`, such as job-worker-5: with four pods on a host "job-worker-1". Empty: it is
// alone on its host, as all are with one pod on each, and those whose name has no number.
std::string HostOf(std::string_view pod, int pods_per_host);

// Of the links between the two pods the one that was given last; null: nothing but their cards.
const LinkShaping* LinkBetween(std::string_view a, std::string_view b, const Shaping& shaping);

// Which network it is, for members to compare; 0: none is emulated.
std::uint64_t NetworkOf(const Shaping& shaping);

}  // namespace starling::transport
