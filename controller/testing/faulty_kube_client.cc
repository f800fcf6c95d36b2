// SPDX-License-Identifier: Apache-2.0
#include "controller/testing/faulty_kube_client.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::kube {
namespace {

// A watch ends with the process that held it.
class MortalWatch final : public WatchStream {
 public:
  MortalWatch(std::unique_ptr<WatchStream> inner, std::function<absl::Status()> alive)
      : inner_(std::move(inner)), alive_(std::move(alive)) {}

  absl::StatusOr<std::optional<WatchEvent>> Next(absl::Duration timeout) override {
    RETURN_IF_ERROR(alive_());
    return inner_->Next(timeout);
  }
  void Stop() override { inner_->Stop(); }

 private:
  const std::unique_ptr<WatchStream> inner_;
  const std::function<absl::Status()> alive_;
};

}  // namespace

void FaultyKubeClient::FailWrite(std::int64_t nth, Fault fault) {
  sync::MutexLock lock(mutex_);
  failing_write_ = writes_ + nth;
  fault_ = fault;
}

void FaultyKubeClient::FailWritesThat(Matcher matches, Fault fault) {
  sync::MutexLock lock(mutex_);
  matches_ = std::move(matches);
  matched_fault_ = fault;
}

void FaultyKubeClient::AskBeforeReads(Reader ask) {
  sync::MutexLock lock(mutex_);
  ask_ = std::move(ask);
}

void FaultyKubeClient::Heal() {
  sync::MutexLock lock(mutex_);
  failing_write_ = 0;
  matches_ = nullptr;
  ask_ = nullptr;
  crashed_ = false;
}

bool FaultyKubeClient::crashed() const {
  sync::MutexLock lock(mutex_);
  return crashed_;
}

std::int64_t FaultyKubeClient::writes() const {
  sync::MutexLock lock(mutex_);
  return writes_;
}

absl::Status FaultyKubeClient::Alive() const {
  if (!crashed()) return absl::OkStatus();
  return absl::CancelledError("the process has crashed (a planned fault)");
}

absl::Status FaultyKubeClient::Readable(const ResourceKind& kind) const {
  RETURN_IF_ERROR(Alive());
  Reader ask;
  {
    sync::MutexLock lock(mutex_);
    ask = ask_;
  }
  return ask ? ask(kind) : absl::OkStatus();
}

std::optional<Fault> FaultyKubeClient::NextFault(const ResourceKind& kind, std::string_view verb) {
  sync::MutexLock lock(mutex_);
  ++writes_;
  std::optional<Fault> fault;
  if (writes_ == failing_write_) fault = fault_;
  if (!fault && matches_ && matches_(kind, verb)) fault = matched_fault_;
  if (fault == Fault::kCrashBefore || fault == Fault::kCrashAfter) crashed_ = true;
  return fault;
}

absl::StatusOr<Json> FaultyKubeClient::Write(const ResourceKind& kind, std::string_view verb,
                                             const Call& call) {
  RETURN_IF_ERROR(Alive());
  const std::optional<Fault> fault = NextFault(kind, verb);
  if (!fault) return call();
  const std::string what = absl::StrCat(std::string(verb), " of ", std::string(kind.plural));
  switch (*fault) {
    case Fault::kRefuse:
      return absl::UnavailableError(absl::StrCat(what, " refused (a planned fault)"));
    case Fault::kConflict:
      return absl::AbortedError(absl::StrCat(what, " conflicts (a planned fault)"));
    case Fault::kUnknownResult:
      RETURN_IF_ERROR(call().status());
      return absl::UnavailableError(absl::StrCat(what, ": the answer was lost (a planned fault)"));
    case Fault::kCrashBefore:
      return Alive();
    case Fault::kCrashAfter:
      RETURN_IF_ERROR(call().status());
      return Alive();
  }
  return absl::InternalError("no such fault");
}

absl::StatusOr<Json> FaultyKubeClient::Get(const ResourceKind& kind, const ObjectKey& key) {
  RETURN_IF_ERROR(Readable(kind));
  return inner_.Get(kind, key);
}

absl::StatusOr<ObjectList> FaultyKubeClient::List(const ResourceKind& kind, std::string_view ns,
                                                  const ListOptions& options) {
  RETURN_IF_ERROR(Readable(kind));
  return inner_.List(kind, ns, options);
}

absl::StatusOr<std::unique_ptr<WatchStream>> FaultyKubeClient::Watch(const ResourceKind& kind,
                                                                     std::string_view ns,
                                                                     const WatchOptions& options) {
  RETURN_IF_ERROR(Alive());
  ASSIGN_OR_RETURN(std::unique_ptr<WatchStream> inner, inner_.Watch(kind, ns, options));
  return std::make_unique<MortalWatch>(std::move(inner), [this] { return Alive(); });
}

absl::StatusOr<Json> FaultyKubeClient::Create(const ResourceKind& kind, const Json& object) {
  return Write(kind, "create", [&] { return inner_.Create(kind, object); });
}

absl::StatusOr<Json> FaultyKubeClient::Update(const ResourceKind& kind, const Json& object) {
  return Write(kind, "update", [&] { return inner_.Update(kind, object); });
}

absl::StatusOr<Json> FaultyKubeClient::UpdateStatus(const ResourceKind& kind, const Json& object) {
  return Write(kind, "updateStatus", [&] { return inner_.UpdateStatus(kind, object); });
}

absl::StatusOr<Json> FaultyKubeClient::Patch(const ResourceKind& kind, const ObjectKey& key,
                                             const Json& patch) {
  return Write(kind, "patch", [&] { return inner_.Patch(kind, key, patch); });
}

absl::StatusOr<Json> FaultyKubeClient::PatchStatus(const ResourceKind& kind, const ObjectKey& key,
                                                   const Json& patch) {
  return Write(kind, "patchStatus", [&] { return inner_.PatchStatus(kind, key, patch); });
}

absl::StatusOr<Json> FaultyKubeClient::Apply(const ResourceKind& kind, const Json& object,
                                             const ApplyOptions& options) {
  return Write(kind, "apply", [&] { return inner_.Apply(kind, object, options); });
}

absl::StatusOr<Json> FaultyKubeClient::DryRunCreate(const ResourceKind& kind, const Json& object) {
  RETURN_IF_ERROR(Alive());
  return inner_.DryRunCreate(kind, object);
}

absl::StatusOr<bool> FaultyKubeClient::Serves(const ResourceKind& kind) {
  RETURN_IF_ERROR(Alive());
  return inner_.Serves(kind);
}

absl::StatusOr<Json> FaultyKubeClient::Delete(const ResourceKind& kind, const ObjectKey& key,
                                              const DeleteOptions& options) {
  return Write(kind, "delete", [&] { return inner_.Delete(kind, key, options); });
}

absl::StatusOr<Json> FaultyKubeClient::GetScale(const ResourceKind& kind, const ObjectKey& key) {
  RETURN_IF_ERROR(Alive());
  return inner_.GetScale(kind, key);
}

absl::StatusOr<Json> FaultyKubeClient::UpdateScale(const ResourceKind& kind, const Json& scale) {
  return Write(kind, "updateScale", [&] { return inner_.UpdateScale(kind, scale); });
}

}  // namespace starling::kube
