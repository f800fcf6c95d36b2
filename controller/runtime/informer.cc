// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/informer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/kube/selector.h"

namespace starling::runtime {
namespace {

std::unique_ptr<const kube::Selector> ParseSelector(const kube::ResourceKind& kind,
                                                    const kube::Selection& selection) {
  absl::StatusOr<kube::Selector> selector = kube::Selector::Parse(kind, selection);
  if (!selector.ok()) return nullptr;
  return std::make_unique<const kube::Selector>(*std::move(selector));
}

std::uint64_t SeedFrom(const void* self, std::uint64_t seed) {
  return seed ^ static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(self));
}

kube::Json Unpack(const std::string& packed) { return kube::Json::from_msgpack(packed); }

Informer::Object Open(const Informer::Object& whole,
                      const std::shared_ptr<const std::string>& packed) {
  return whole != nullptr ? whole : std::make_shared<const kube::Json>(Unpack(*packed));
}

bool IsConnectionLoss(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

bool IsOlder(std::string_view a, std::string_view b) {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  return absl::SimpleAtoi(absl::string_view(a.data(), a.size()), &first) &&
         absl::SimpleAtoi(absl::string_view(b.data(), b.size()), &second) && first < second;
}

Informer::Informer(kube::KubeClient& client, const kube::ResourceKind& kind,
                   InformerOptions options)
    : client_(client),
      kind_(kind),
      options_(std::move(options)),
      selector_(ParseSelector(kind, options_.selection)),
      jitter_(SeedFrom(this, options_.back_off.seed)) {}

Informer::~Informer() { Stop(); }

void Informer::AddHandler(Handler handler, Hears hears) {
  handlers_.emplace_back(std::move(handler), hears);
}

Informer::Kept Informer::Keep(const Object& object) const {
  Kept kept{.whole = object,
            .packed = nullptr,
            .version = kube::ResourceVersionOf(*object),
            .label = "",
            .news = 0};
  if (!options_.index_label.empty()) kept.label = kube::LabelOf(*object, options_.index_label);
  if (options_.news != nullptr) kept.news = std::hash<std::string>()(options_.news(*object));
  if (options_.packed) {
    std::string packed;
    kube::Json::to_msgpack(*object, packed);
    packed.shrink_to_fit();
    kept.packed = std::make_shared<const std::string>(std::move(packed));
    kept.whole = nullptr;
  }
  return kept;
}

Informer::Object Informer::Get(const Key& key) const {
  Kept kept;
  {
    sync::MutexLock lock(mutex_);
    const auto found = objects_.find(key);
    if (found == objects_.end()) return nullptr;
    kept = found->second;
  }
  return Open(kept.whole, kept.packed);
}

std::optional<kube::Json> Informer::Read(const Key& key) const {
  std::shared_ptr<const std::string> packed;
  Object whole;
  {
    sync::MutexLock lock(mutex_);
    const auto found = objects_.find(key);
    if (found == objects_.end()) return std::nullopt;
    whole = found->second.whole;
    packed = found->second.packed;
  }
  return whole != nullptr ? *whole : Unpack(*packed);
}

std::vector<Informer::Object> Informer::List() const {
  std::vector<Kept> all;
  {
    sync::MutexLock lock(mutex_);
    all.reserve(objects_.size());
    for (const auto& [key, kept] : objects_) all.push_back(kept);
  }
  std::vector<Object> objects;
  objects.reserve(all.size());
  for (const Kept& kept : all) objects.push_back(Open(kept.whole, kept.packed));
  return objects;
}

std::vector<Informer::Kept> Informer::FindByLabel(const std::string& ns,
                                                  const std::string& value) const {
  sync::MutexLock lock(mutex_);
  std::vector<Kept> found;
  const auto names = index_.find({ns, value});
  if (names == index_.end()) return found;
  found.reserve(names->second.size());
  for (const std::string& name : names->second) found.push_back(objects_.at({ns, name}));
  return found;
}

std::vector<Informer::Object> Informer::ListByLabel(const std::string& ns,
                                                    const std::string& value) const {
  std::vector<Object> objects;
  for (const Kept& kept : FindByLabel(ns, value)) {
    objects.push_back(Open(kept.whole, kept.packed));
  }
  return objects;
}

std::vector<kube::Json> Informer::ReadByLabel(const std::string& ns,
                                              const std::string& value) const {
  std::vector<kube::Json> objects;
  for (const Kept& kept : FindByLabel(ns, value)) {
    objects.push_back(kept.whole != nullptr ? *kept.whole : Unpack(*kept.packed));
  }
  return objects;
}

bool Informer::HasSynced() const {
  sync::MutexLock lock(mutex_);
  return synced_;
}

void Informer::Index(const Key& key, const std::string& label, bool add) {
  if (label.empty()) return;
  const Key place{key.ns, label};
  if (add) {
    index_[place].insert(key.name);
    return;
  }
  const auto names = index_.find(place);
  if (names == index_.end()) return;
  names->second.erase(key.name);
  if (names->second.empty()) index_.erase(names);
}

void Informer::Store(const Key& key, Kept kept) {
  const auto [place, added] = objects_.try_emplace(key);
  if (added || place->second.label != kept.label) {
    if (!added) Index(key, place->second.label, false);
    Index(key, kept.label, true);
  }
  place->second = std::move(kept);
}

void Informer::Erase(const Key& key) {
  const auto found = objects_.find(key);
  if (found == objects_.end()) return;
  Index(key, found->second.label, false);
  objects_.erase(found);
}

void Informer::Tell(const Object& before, const Object& after, Source source) const {
  for (const auto& [handler, hears] : handlers_) {
    if (source == Source::kRead || hears == Hears::kAll) handler(before, after);
  }
}

void Informer::Apply(const Key& key, const Object& after, const std::string& seen) {
  Object before;
  bool no_news = false;
  Kept kept = Keep(after);
  {
    sync::MutexLock lock(mutex_);
    SawLocked(seen);
    const auto found = objects_.find(key);
    if (found != objects_.end()) {
      const Kept& known = found->second;
      if (known.version == kept.version) return;
      if (IsOlder(kept.version, known.version) && !rewinding_) return;
      before = options_.packed ? after : known.whole;
      no_news = options_.news != nullptr && known.news == kept.news && known.label == kept.label;
    }
    Store(key, std::move(kept));
  }
  if (!no_news) Tell(before, after);
}

void Informer::Remove(const Key& key, const std::string& version) {
  Kept before;
  {
    sync::MutexLock lock(mutex_);
    SawLocked(version);
    const auto found = objects_.find(key);
    if (found == objects_.end()) return;
    before = found->second;
    if (IsOlder(version, before.version)) return;
    Erase(key);
  }
  Tell(Open(before.whole, before.packed), nullptr);
}

Informer::Object Informer::Copy(kube::Json object) const {
  if (options_.trim != nullptr) object = options_.trim(object);
  return std::make_shared<const kube::Json>(std::move(object));
}

void Informer::Learn(kube::Json object, Source source) {
  if (selector_ == nullptr || !selector_->Matches(object)) return;
  const Key key = kube::KeyOf(object);
  if (!options_.ns.empty() && key.ns != options_.ns) return;
  const Object after = Copy(std::move(object));
  Object before;
  Kept kept = Keep(after);
  {
    sync::MutexLock lock(mutex_);
    // The watch has reported everything up to its version; an older object that is not in the copy
    // has been deleted since. If versions have no order, this cannot be told.
    if (!IsOlder(seen_, kept.version)) return;
    const auto found = objects_.find(key);
    if (found != objects_.end()) {
      if (!IsOlder(found->second.version, kept.version)) return;
      before = options_.packed ? after : found->second.whole;
    }
    Store(key, std::move(kept));
  }
  Tell(before, after, source);
}

void Informer::SawLocked(const std::string& version) {
  if (!version.empty() && !IsOlder(version, seen_)) seen_ = version;
}

// A list that is older than what has been seen comes from a server that lags, unless all of them
// are.
absl::Status Informer::AcceptVersion(const std::string& version) {
  sync::MutexLock lock(mutex_);
  if (!IsOlder(version, seen_)) {
    old_lists_ = 0;
    return absl::OkStatus();
  }
  if (++old_lists_ < kOldListsBelieved) {
    return absl::UnavailableError(absl::StrCat("the list of ", std::string(kind_.plural),
                                               " is of version ", version, ", but ", seen_,
                                               " has been seen: its server lags"));
  }
  log::Warning("the store has gone back in time: what it lists now is believed",
               {{"kind", kind_.kind}, {"version", version}});
  old_lists_ = 0;
  rewinding_ = true;
  seen_.clear();
  return absl::OkStatus();
}

absl::Status Informer::ReadPages(std::set<Key>& listed, std::string& version) {
  kube::ListOptions options{options_.selection, options_.page, ""};
  do {
    ASSIGN_OR_RETURN(kube::ObjectList page, client_.List(kind_, options_.ns, options));
    if (version.empty()) {
      version = page.resource_version;
      RETURN_IF_ERROR(AcceptVersion(version));
    }
    for (kube::Json& item : page.items) {
      const Key key = kube::KeyOf(item);
      listed.insert(key);
      Apply(key, Copy(std::move(item)), "");
    }
    options.continue_token = page.continue_token;
  } while (!options.continue_token.empty());
  return absl::OkStatus();
}

void Informer::RemoveAllBut(const std::set<Key>& listed, const std::string& version) {
  std::vector<Kept> gone;
  {
    sync::MutexLock lock(mutex_);
    SawLocked(version);
    std::vector<Key> keys;
    for (const auto& [key, kept] : objects_) {
      // What was learned of after the list is not in it, and stays.
      const bool newer = IsOlder(version, kept.version) && !rewinding_;
      if (listed.contains(key) || newer) continue;
      keys.push_back(key);
      gone.push_back(kept);
    }
    for (const Key& key : keys) Erase(key);
    rewinding_ = false;
  }
  for (const Kept& kept : gone) Tell(Open(kept.whole, kept.packed), nullptr);
}

absl::Status Informer::Relist() {
  std::set<Key> listed;
  std::string version;
  RETURN_IF_ERROR(ReadPages(listed, version));
  RemoveAllBut(listed, version);
  listing_ = false;
  return StartWatch();
}

absl::Status Informer::StartWatch() {
  std::string from;
  {
    sync::MutexLock lock(mutex_);
    from = seen_;
  }
  absl::StatusOr<std::unique_ptr<kube::WatchStream>> watch =
      client_.Watch(kind_, options_.ns, {options_.selection, from});
  if (!watch.ok()) return AfterBreak(watch.status());
  sync::MutexLock lock(mutex_);
  synced_ = true;
  if (stopped_) (*watch)->Stop();
  watch_ = *std::move(watch);
  return absl::OkStatus();
}

absl::Status Informer::Drain(absl::Duration timeout) {
  std::shared_ptr<kube::WatchStream> watch;
  {
    sync::MutexLock lock(mutex_);
    watch = watch_;
  }
  while (true) {
    ASSIGN_OR_RETURN(std::optional<kube::WatchEvent> event, watch->Next(timeout));
    gaps_ = 0;
    resumes_ = 0;
    if (!event) return absl::OkStatus();
    timeout = absl::ZeroDuration();
    Take(*event);
  }
}

void Informer::Take(const kube::WatchEvent& event) {
  const std::string version = kube::ResourceVersionOf(*event.object);
  if (event.type == kube::WatchEventType::kBookmark) {
    sync::MutexLock lock(mutex_);
    return SawLocked(version);
  }
  const Key key = kube::KeyOf(*event.object);
  if (event.type == kube::WatchEventType::kDeleted) return Remove(key, version);
  if (options_.trim == nullptr) return Apply(key, event.object, version);
  Apply(key, std::make_shared<const kube::Json>(options_.trim(*event.object)), version);
}

// A watch that lost its connection goes on from where it was; any other end means a new list.
absl::Status Informer::AfterBreak(const absl::Status& status) {
  {
    sync::MutexLock lock(mutex_);
    watch_ = nullptr;
  }
  if (!IsConnectionLoss(status) || ++resumes_ > kResumes) {
    resumes_ = 0;
    listing_ = true;
    ++gaps_;
  }
  // Missed events are normal; the list that follows replaces them.
  return absl::IsOutOfRange(status) ? absl::OkStatus() : status;
}

absl::Status Informer::Poll(absl::Duration timeout) {
  if (selector_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("no such selector: ", options_.selection.labels,
                                                   " ", options_.selection.fields));
  }
  bool watching = false;
  {
    sync::MutexLock lock(mutex_);
    watching = watch_ != nullptr;
  }
  if (listing_) return Relist();
  if (!watching) return StartWatch();
  const absl::Status status = Drain(timeout);
  return status.ok() ? status : AfterBreak(status);
}

void Informer::Run() {
  int failures = 0;
  while (true) {
    const absl::Status status = Poll(absl::Seconds(10));
    sync::MutexLock lock(mutex_);
    if (stopped_) return;
    failures = status.ok() ? 0 : failures + 1;
    // The first list after a gap is made immediately; several in a row mean that something is
    // wrong.
    const int pauses = std::max(failures, gaps_ - 1);
    if (pauses <= 0) {
      if (options_.rest > absl::ZeroDuration()) stopping_.WaitFor(mutex_, options_.rest);
      continue;
    }
    if (!status.ok()) {
      log::Warning("watch broke", {{"kind", kind_.kind}, {"error", status.ToString()}});
    }
    stopping_.WaitFor(mutex_, DelayAfter(options_.back_off, pauses - 1, jitter_.Next()));
    if (stopped_) return;
  }
}

void Informer::Stop() {
  sync::MutexLock lock(mutex_);
  stopped_ = true;
  if (watch_) watch_->Stop();
  stopping_.NotifyAll();
}

}  // namespace starling::runtime
