// SPDX-License-Identifier: Apache-2.0
// For tests: identities of any role and group, good for an hour.
#pragma once

#include <string>

#include "absl/time/clock.h"
#include "common/tls/tls.h"

namespace starling::rpc {

// Always of the same key for the same group.
inline tls::Authority TestAuthority(const std::string& group) {
  return *tls::Authority::Create(tls::Key::Derive(std::string(32, 's'), group), "group " + group,
                                 tls::ValidFrom(absl::Now(), absl::Hours(1)));
}

inline tls::Identity TestIdentity(const std::string& role, const std::string& group,
                                  tls::Usage usage = tls::Usage::kBoth) {
  return *TestAuthority(group).Issue({.dns_names = {tls::PeerName(role, group)},
                                      .usage = usage,
                                      .validity = tls::ValidFrom(absl::Now(), absl::Hours(1))});
}

}  // namespace starling::rpc
