// SPDX-License-Identifier: Apache-2.0
// Server-sent events as text (the HTML standard's `text/event-stream`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace starling::service {

inline constexpr char kEventStream[] = "text/event-stream";
inline constexpr char kHeartbeat[] = ": hb\n\n";

// `data` is one line. An event without `id` does not move the place from which a client that comes
// back goes on.
std::string EventText(std::string_view event, std::string_view data,
                      std::optional<std::int64_t> id = std::nullopt);

// The last event of a stream that ends well.
std::string EndText(std::string_view reason);

// How long a client whose stream broke waits before it comes back: 1 to 5 s at random, so that not
// all of them come at once.
std::string RetryText();

}  // namespace starling::service
