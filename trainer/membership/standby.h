// SPDX-License-Identifier: Apache-2.0
// A coordinator process that waits for another one (the primary) to fall silent, and then leads
// without asking the controller: it was granted an incarnation ahead of time, above the primary's,
// and knows every view of which a member can have heard, since the primary tells none before it is
// acknowledged here (docs/design/protocol.md, B1 to B4).
//
// Pure. Its owner gives it the grant, passes shadows and answers on, and asks TakeOver() every
// 50 ms or so; what that returns is given to a Coordinator, which leads from then on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "trainer/membership/rules.h"
#include "trainer/membership/types.h"

namespace starling::membership {

// Thread-compatible.
class Standby {
 public:
  struct Options {
    std::string boot_id;
    // So long the primary says nothing before it counts as gone. A process that the supervisor
    // starts again in place has been granted the next incarnation by then.
    absl::Duration silence = absl::Milliseconds(1500);
    Rules rules;
  };
  explicit Standby(Options options) : options_(std::move(options)) {}

  // What is to be led with: first the grant, then what is wanted.
  struct Succession {
    Grant grant;
    Desired desired;
  };

  // Ahead of time: to follow `primary`, and nobody else. A higher one replaces it: another primary
  // leads, and has yet to ask.
  void OnGrant(std::uint64_t incarnation, std::uint64_t primary);
  ShadowReply OnShadow(const Shadow& shadow, absl::Time now);
  // The controller lets this process lead as an ordinary successor: it follows nobody any more.
  void Cease() { leads_ = true; }
  // Once, when the primary has been silent for too long.
  std::optional<Succession> TakeOver(absl::Time now);

  std::uint64_t incarnation() const { return incarnation_; }
  std::uint64_t primary() const { return primary_; }
  // Since the primary has last been heard, as far as this process itself ran; infinite: it has
  // never been.
  absl::Duration Silence(absl::Time now) const { return now - heard_; }
  // A primary has asked, under this grant: it could take over.
  bool armed() const { return shadow_.has_value(); }
  bool leads() const { return leads_; }

 private:
  void NoticeGap(absl::Time now);

  const Options options_;
  std::uint64_t incarnation_ = 0;
  std::uint64_t primary_ = 0;
  std::optional<Shadow> shadow_;
  absl::Time heard_ = absl::InfinitePast();
  absl::Time last_event_ = absl::InfiniteFuture();
  bool leads_ = false;
};

}  // namespace starling::membership
