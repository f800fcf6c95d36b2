// SPDX-License-Identifier: Apache-2.0
#include "trainer/control/failpoints.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log/log.h"
#include "common/status/macros.h"

namespace starling::control {
namespace {

constexpr std::int64_t kFirstStart = 1;
constexpr absl::Duration kPause = absl::Seconds(8);

// As a crash would, at this very place.
void KillMyself() {
  kill(getpid(), SIGKILL);
  _exit(128 + SIGKILL);
}

void StandStill() {
  while (true) pause();
}

void Loop() {
  std::atomic<std::uint64_t> turns = 0;
  while (true) ++turns;
}

void Pause() { absl::SleepFor(kPause); }

struct Deed {
  std::string_view name;
  void (*what)();
};
constexpr std::array<Deed, 4> kDeeds = {
    {{"", KillMyself}, {"stop", StandStill}, {"loop", Loop}, {"pause", Pause}}};

const Deed* FindDeed(std::string_view name) {
  const auto found = std::find_if(kDeeds.begin(), kDeeds.end(),
                                  [&](const Deed& deed) { return deed.name == name; });
  return found == kDeeds.end() ? nullptr : &*found;
}

// Takes what stands before `mark` off `text`; false: it is there, and nothing before it.
bool TakeBefore(char mark, std::string_view& text, std::string& taken) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return true;
  taken = std::string(text.substr(0, at));
  text.remove_prefix(at + 1);
  return at > 0;
}

}  // namespace

absl::StatusOr<std::optional<Failpoint>> ParseFailpoint(std::string_view text) {
  if (text.empty()) return std::nullopt;
  Failpoint point;
  const std::string_view whole = text;
  bool good = TakeBefore('@', text, point.deed) && FindDeed(point.deed) != nullptr;
  good = TakeBefore('/', text, point.pod) && good;
  const std::size_t colon = text.find(':');
  point.name = std::string(text.substr(0, colon));
  good = good && !point.name.empty();
  if (colon != std::string_view::npos) {
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + colon + 1, end, point.passes);
    good = good && read.ec == std::errc() && read.ptr == end && point.passes > 0;
  }
  if (good) return point;
  return absl::InvalidArgumentError(absl::StrCat(
      "STARLING_FAILPOINT is \"", std::string(whole),
      "\"; it must be a name, or a name and how often it is passed, as apply:3, after the name of "
      "a pod and a slash if only that one is meant, and after stop@, loop@ or pause@ if it is to "
      "hang"));
}

absl::StatusOr<std::optional<Failpoint>> FailpointOf(const Options& options) {
  const char* text = std::getenv("STARLING_FAILPOINT");
  absl::StatusOr<std::optional<Failpoint>> point = ParseFailpoint(text == nullptr ? "" : text);
  const bool meant = point.ok() && *point && options.start <= kFirstStart &&
                     ((*point)->pod.empty() || (*point)->pod == options.pod_name);
  if (point.ok() && !meant) return std::nullopt;
  return point;
}

std::function<void()> DeedOf(const std::optional<Failpoint>& point) {
  if (!point) return [] {};
  return [name = point->name, deed = *FindDeed(point->deed)] {
    if (!deed.name.empty()) log::Warning("a failpoint", {{"place", name}, {"deed", deed.name}});
    deed.what();
  };
}

}  // namespace starling::control
