// SPDX-License-Identifier: Apache-2.0
// A timeline as a file that chrome://tracing and Perfetto open: JSON, "traceEvents" of complete
// stretches (X), moments (i) and names (M). Each process of the job is a process there, with a
// track for what its thread does, its steps, its exchange, checkpoints and views; the coordinator's
// track has views and incidents. "otherData" says what was recorded, of whom, and how far the
// clocks may be apart.
#pragma once

#include <string>

#include "trainer/timeline/collector.h"

namespace starling::timeline {

// Times are microseconds since the first event. Texts are escaped, and bytes that are not UTF-8
// replaced.
std::string ChromeTrace(const Collected& collected);

// The same as gzip, of at most `most_bytes`: where it is longer, the end is left out, and
// "otherData" says so.
std::string PackedChromeTrace(Collected collected, std::size_t most_bytes);

}  // namespace starling::timeline
