// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/embedded_watch.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock/clock.h"
#include "common/status/macros.h"

namespace starling::kube {
namespace {

constexpr std::int64_t kBatch = 128;
// After so many changes of other objects a bookmark moves the reader's version on.
constexpr std::int64_t kBookmarkEvery = 256;

}  // namespace

absl::Status EmbeddedWatch::Start(std::vector<Json> present) {
  for (Json& object : present) {
    events_.push_back({WatchEventType::kAdded, std::make_shared<const Json>(std::move(object))});
  }
  return store_.Read([this](ObjectStore::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const std::int64_t newest, transaction.Version());
    ASSIGN_OR_RETURN(const std::int64_t compacted, transaction.Compacted());
    if (version_ >= compacted && version_ <= newest) return absl::OkStatus();
    return absl::OutOfRangeError(absl::StrCat("watch: resource version ", version_,
                                              " is not remembered (", compacted, " to ", newest,
                                              " are); list again"));
  });
}

// What a reader with this selector sees of a change: an object may come into its view or leave it.
std::optional<WatchEvent> EmbeddedWatch::Translate(const Change& change) const {
  const bool before = !change.before.is_null() && selector_.Matches(change.before);
  const bool after = change.type != WatchEventType::kDeleted && selector_.Matches(*change.object);
  if (!before && !after) return std::nullopt;
  const WatchEventType type = !before  ? WatchEventType::kAdded
                              : !after ? WatchEventType::kDeleted
                                       : WatchEventType::kModified;
  return WatchEvent{type, change.object};
}

absl::Status EmbeddedWatch::Fetch() {
  std::vector<Change> changes;
  std::int64_t newest = 0;
  const auto read = [&](ObjectStore::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(newest, transaction.Version());
    if (newest == version_) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::int64_t compacted, transaction.Compacted());
    if (version_ < compacted) {
      return absl::OutOfRangeError(absl::StrCat("watch: fell behind, at resource version ",
                                                version_,
                                                " of which only those "
                                                "after ",
                                                compacted, " are remembered; list again"));
    }
    ASSIGN_OR_RETURN(changes, transaction.ChangesAfter(table_, ns_, version_, kBatch));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(store_.Read(read));
  for (const Change& change : changes) {
    if (auto event = Translate(change)) events_.push_back(*std::move(event));
  }
  const bool all = static_cast<std::int64_t>(changes.size()) < kBatch;
  version_ = all ? newest : changes.back().version;
  if (!events_.empty()) {
    announced_ = version_;
  } else if (version_ - announced_ >= kBookmarkEvery) {
    announced_ = version_;
    const Json bookmark = {{"apiVersion", kind_.ApiVersion()},
                           {"kind", std::string(kind_.kind)},
                           {"metadata", {{"resourceVersion", absl::StrCat(version_)}}}};
    events_.push_back({WatchEventType::kBookmark, std::make_shared<const Json>(bookmark)});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<WatchEvent>> EmbeddedWatch::Next(absl::Duration timeout) {
  const clock::SystemClock clock;  // of the wait itself, which no injected clock can shorten
  const absl::Time deadline = clock.Now() + timeout;
  while (true) {
    if (stopped_) return absl::CancelledError("watch: stopped");
    if (events_.empty()) RETURN_IF_ERROR(Fetch());
    if (!events_.empty()) {
      WatchEvent event = std::move(events_.front());
      events_.pop_front();
      return std::optional<WatchEvent>(std::move(event));
    }
    const absl::Duration left = deadline - clock.Now();
    if (left <= absl::ZeroDuration()) return std::optional<WatchEvent>();
    store_.AwaitCommit(version_, left, stopped_);
  }
}

void EmbeddedWatch::Stop() {
  stopped_ = true;
  store_.WakeAll();
}

}  // namespace starling::kube
