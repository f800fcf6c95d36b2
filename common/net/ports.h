// SPDX-License-Identifier: Apache-2.0
// The fixed ports of a job's pods, for both sides of each. Every pod has an address of its own (on
// one machine it is one of 127.0.0.0/8), so all jobs use the same. To add one: a line here, and
// kLastPodPort, up to which the local node looks whether an address is taken.
#pragma once

#include <cstdint>

namespace starling::net {

inline constexpr std::uint16_t kCoordinatorPort = 7070;  // gRPC: the controller dials it
inline constexpr std::uint16_t kMemberPort = 7071;       // gRPC: the coordinator dials members
inline constexpr std::uint16_t kDataPort = 7072;         // gradients: members dial each other
inline constexpr std::uint16_t kMetricsPort = 7073;      // HTTP: of every role
inline constexpr std::uint16_t kFirstPodPort = kCoordinatorPort;
inline constexpr std::uint16_t kLastPodPort = kMetricsPort;

}  // namespace starling::net
