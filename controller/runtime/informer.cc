// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/informer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/messages.h"
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

// The two forms that objects are kept in. JSON is packed as MessagePack, a message as itself.
std::string Pack(const kube::Json& object) {
  std::string packed;
  kube::Json::to_msgpack(object, packed);
  return packed;
}
std::string Pack(const kube::Message& object) { return object.SerializePartialAsString(); }

template <typename T>
std::shared_ptr<const T> Unpack(const kube::ResourceKind& kind, const std::string& packed);
template <>
std::shared_ptr<const kube::Json> Unpack(const kube::ResourceKind& /*kind*/,
                                         const std::string& packed) {
  return std::make_shared<kube::Json>(kube::Json::from_msgpack(packed));
}
template <>
std::shared_ptr<const kube::Message> Unpack(const kube::ResourceKind& kind,
                                            const std::string& packed) {
  std::unique_ptr<kube::Message> object = kube::NewMessage(kind);
  object->ParsePartialFromString(packed);  // of our own making
  return object;
}

absl::StatusOr<kube::ObjectList> ListPage(kube::KubeClient& client, const kube::ResourceKind& kind,
                                          const std::string& ns, const kube::ListOptions& options,
                                          const kube::Json* /*form*/) {
  return client.List(kind, ns, options);
}
absl::StatusOr<kube::MessageList> ListPage(kube::KubeClient& client, const kube::ResourceKind& kind,
                                           const std::string& ns, const kube::ListOptions& options,
                                           const kube::Message* /*form*/) {
  return client.ListMessages(kind, ns, options);
}

absl::StatusOr<std::unique_ptr<kube::WatchStream>> OpenWatch(kube::KubeClient& client,
                                                             const kube::ResourceKind& kind,
                                                             const std::string& ns,
                                                             const kube::WatchOptions& options,
                                                             const kube::Json* /*form*/) {
  return client.Watch(kind, ns, options);
}
absl::StatusOr<std::unique_ptr<kube::MessageStream>> OpenWatch(kube::KubeClient& client,
                                                               const kube::ResourceKind& kind,
                                                               const std::string& ns,
                                                               const kube::WatchOptions& options,
                                                               const kube::Message* /*form*/) {
  return client.WatchMessages(kind, ns, options);
}

std::shared_ptr<const kube::Json> Shared(kube::Json object) {
  return std::make_shared<const kube::Json>(std::move(object));
}
kube::MessagePtr Shared(kube::MessagePtr object) { return object; }

template <typename T>
constexpr const T* kForm = nullptr;

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

template <typename T>
InformerOf<T>::InformerOf(kube::KubeClient& client, const kube::ResourceKind& kind, Options options)
    : client_(client),
      kind_(kind),
      options_(std::move(options)),
      selector_(ParseSelector(kind, options_.selection)),
      jitter_(SeedFrom(this, options_.back_off.seed)) {}

template <typename T>
InformerOf<T>::~InformerOf() {
  Stop();
}

template <typename T>
void InformerOf<T>::AddHandler(Handler handler, Hears hears) {
  handlers_.emplace_back(std::move(handler), hears);
}

template <typename T>
typename InformerOf<T>::Kept InformerOf<T>::Keep(const Object& object) const {
  Kept kept{.whole = object,
            .packed = nullptr,
            .version = kube::ResourceVersionOf(*object),
            .label = "",
            .news = 0};
  if (!options_.index_label.empty()) kept.label = kube::LabelOf(*object, options_.index_label);
  if (options_.news != nullptr) kept.news = std::hash<std::string>()(options_.news(*object));
  if (options_.packed) {
    std::string packed = Pack(*object);
    packed.shrink_to_fit();
    kept.packed = std::make_shared<const std::string>(std::move(packed));
    kept.whole = nullptr;
  }
  return kept;
}

template <typename T>
typename InformerOf<T>::Object InformerOf<T>::Get(const Key& key) const {
  Kept kept;
  {
    sync::MutexLock lock(mutex_);
    const auto found = objects_.find(key);
    if (found == objects_.end()) return nullptr;
    kept = found->second;
  }
  return Open(kept);
}

template <typename T>
std::vector<typename InformerOf<T>::Object> InformerOf<T>::List() const {
  std::vector<Kept> all;
  {
    sync::MutexLock lock(mutex_);
    all.reserve(objects_.size());
    for (const auto& [key, kept] : objects_) all.push_back(kept);
  }
  std::vector<Object> objects;
  objects.reserve(all.size());
  for (const Kept& kept : all) objects.push_back(Open(kept));
  return objects;
}

template <typename T>
std::vector<typename InformerOf<T>::Kept> InformerOf<T>::FindByLabel(
    const std::string& ns, const std::string& value) const {
  sync::MutexLock lock(mutex_);
  std::vector<Kept> found;
  const auto names = index_.find({ns, value});
  if (names == index_.end()) return found;
  found.reserve(names->second.size());
  for (const std::string& name : names->second) found.push_back(objects_.at({ns, name}));
  return found;
}

template <typename T>
std::vector<typename InformerOf<T>::Object> InformerOf<T>::ListByLabel(
    const std::string& ns, const std::string& value) const {
  std::vector<Object> objects;
  for (const Kept& kept : FindByLabel(ns, value)) {
    objects.push_back(Open(kept));
  }
  return objects;
}

template <typename T>
bool InformerOf<T>::HasSynced() const {
  sync::MutexLock lock(mutex_);
  return synced_;
}

template <typename T>
std::string InformerOf<T>::seen() const {
  sync::MutexLock lock(mutex_);
  return seen_;
}

template <typename T>
void InformerOf<T>::Index(const Key& key, const std::string& label, bool add) {
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

template <typename T>
void InformerOf<T>::Store(const Key& key, Kept kept) {
  const auto [place, added] = objects_.try_emplace(key);
  if (added || place->second.label != kept.label) {
    if (!added) Index(key, place->second.label, false);
    Index(key, kept.label, true);
  }
  place->second = std::move(kept);
}

template <typename T>
void InformerOf<T>::Erase(const Key& key) {
  const auto found = objects_.find(key);
  if (found == objects_.end()) return;
  Index(key, found->second.label, false);
  objects_.erase(found);
}

template <typename T>
void InformerOf<T>::Tell(const Object& before, const Object& after, Source source) const {
  for (const auto& [handler, hears] : handlers_) {
    if (source == Source::kRead || hears == Hears::kAll) handler(before, after);
  }
}

template <typename T>
void InformerOf<T>::Apply(const Key& key, const Object& after, const std::string& seen) {
  std::optional<Kept> known;
  bool no_news = false;
  Kept kept = Keep(after);
  {
    sync::MutexLock lock(mutex_);
    SawLocked(seen);
    const auto found = objects_.find(key);
    if (found != objects_.end()) {
      known = found->second;
      if (known->version == kept.version) return;
      if (IsOlder(kept.version, known->version) && !rewinding_) return;
      no_news = options_.news != nullptr && known->news == kept.news && known->label == kept.label;
    }
    Store(key, std::move(kept));
  }
  if (!no_news) Tell(known ? Before(*known, after) : nullptr, after);
}

template <typename T>
void InformerOf<T>::Remove(const Key& key, const std::string& version) {
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
  Tell(Open(before), nullptr);
}

template <typename T>
typename InformerOf<T>::Object InformerOf<T>::Trimmed(Object object) const {
  return options_.trim == nullptr ? object : options_.trim(std::move(object));
}

template <typename T>
typename InformerOf<T>::Object InformerOf<T>::Open(const Kept& kept) const {
  return kept.whole != nullptr ? kept.whole : Unpack<T>(kind_, *kept.packed);
}

template <typename T>
typename InformerOf<T>::Object InformerOf<T>::Before(const Kept& kept, const Object& after) const {
  return options_.packed && !options_.tells_before ? after : Open(kept);
}

template <typename T>
void InformerOf<T>::Learn(Object object, Source source) {
  if (selector_ == nullptr || !selector_->Matches(*object)) return;
  const Key key = kube::KeyOf(*object);
  if (!options_.ns.empty() && key.ns != options_.ns) return;
  const Object after = Trimmed(std::move(object));
  std::optional<Kept> known;
  Kept kept = Keep(after);
  {
    sync::MutexLock lock(mutex_);
    // The watch has reported everything up to its version; an older object that is not in the copy
    // has been deleted since. If versions have no order, this cannot be told.
    if (!IsOlder(seen_, kept.version)) return;
    const auto found = objects_.find(key);
    if (found != objects_.end()) {
      if (!IsOlder(found->second.version, kept.version)) return;
      known = found->second;
    }
    Store(key, std::move(kept));
  }
  Tell(known ? Before(*known, after) : nullptr, after, source);
}

template <typename T>
void InformerOf<T>::SawLocked(const std::string& version) {
  if (!version.empty() && !IsOlder(version, seen_)) seen_ = version;
}

// A list that is older than what has been seen comes from a server that lags, unless all of them
// are.
template <typename T>
absl::Status InformerOf<T>::AcceptVersion(const std::string& version) {
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

template <typename T>
absl::Status InformerOf<T>::ReadPages(std::set<Key>& listed, std::string& version) {
  kube::ListOptions options{options_.selection, options_.page, ""};
  do {
    ASSIGN_OR_RETURN(auto page, ListPage(client_, kind_, options_.ns, options, kForm<T>));
    if (version.empty()) {
      version = page.resource_version;
      RETURN_IF_ERROR(AcceptVersion(version));
    }
    for (auto& item : page.items) {
      Object object = Shared(std::move(item));
      const Key key = kube::KeyOf(*object);
      listed.insert(key);
      Apply(key, Trimmed(std::move(object)), "");
    }
    options.continue_token = page.continue_token;
  } while (!options.continue_token.empty());
  return absl::OkStatus();
}

template <typename T>
void InformerOf<T>::RemoveAllBut(const std::set<Key>& listed, const std::string& version) {
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
  for (const Kept& kept : gone) Tell(Open(kept), nullptr);
}

template <typename T>
absl::Status InformerOf<T>::Relist() {
  std::set<Key> listed;
  std::string version;
  RETURN_IF_ERROR(ReadPages(listed, version));
  RemoveAllBut(listed, version);
  listing_ = false;
  return StartWatch();
}

template <typename T>
absl::Status InformerOf<T>::StartWatch() {
  std::string from;
  {
    sync::MutexLock lock(mutex_);
    from = seen_;
  }
  auto watch = OpenWatch(client_, kind_, options_.ns, {options_.selection, from}, kForm<T>);
  if (!watch.ok()) return AfterBreak(watch.status());
  sync::MutexLock lock(mutex_);
  synced_ = true;
  if (stopped_) (*watch)->Stop();
  watch_ = *std::move(watch);
  return absl::OkStatus();
}

template <typename T>
absl::Status InformerOf<T>::Drain(absl::Duration timeout) {
  std::shared_ptr<kube::StreamOf<T>> watch;
  {
    sync::MutexLock lock(mutex_);
    watch = watch_;
  }
  while (true) {
    ASSIGN_OR_RETURN(std::optional<kube::EventOf<T>> event, watch->Next(timeout));
    gaps_ = 0;
    resumes_ = 0;
    if (!event) return absl::OkStatus();
    timeout = absl::ZeroDuration();
    Take(*std::move(event));
  }
}

template <typename T>
bool InformerOf<T>::Knows(const Key& key, const std::string& version) {
  sync::MutexLock lock(mutex_);
  const auto found = objects_.find(key);
  if (found == objects_.end() || found->second.version != version) return false;
  SawLocked(version);
  return true;
}

template <typename T>
void InformerOf<T>::Take(kube::EventOf<T> event) {
  const std::string version = kube::ResourceVersionOf(*event.object);
  if (event.type == kube::WatchEventType::kBookmark) {
    sync::MutexLock lock(mutex_);
    return SawLocked(version);
  }
  const Key key = kube::KeyOf(*event.object);
  if (event.type == kube::WatchEventType::kDeleted) return Remove(key, version);
  if (!Knows(key, version)) Apply(key, Trimmed(std::move(event.object)), version);
}

// A watch that lost its connection goes on from where it was; any other end means a new list.
template <typename T>
absl::Status InformerOf<T>::AfterBreak(const absl::Status& status) {
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

template <typename T>
absl::Status InformerOf<T>::Poll(absl::Duration timeout) {
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

template <typename T>
void InformerOf<T>::Run() {
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

template <typename T>
void InformerOf<T>::Stop() {
  sync::MutexLock lock(mutex_);
  stopped_ = true;
  if (watch_) watch_->Stop();
  stopping_.NotifyAll();
}

template class InformerOf<kube::Json>;
template class InformerOf<kube::Message>;

}  // namespace starling::runtime
