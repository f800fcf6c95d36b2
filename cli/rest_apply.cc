// SPDX-License-Identifier: Apache-2.0
#include "cli/rest_apply.h"

#include "absl/strings/str_cat.h"
#include "cli/apply.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

using kube::Json;

constexpr absl::Duration kGoneTimeout = absl::Seconds(60);
constexpr int kTries = 5;

absl::Status Remove(Session& session, kube::KubeClient& store, const Json& job) {
  const auto deleted =
      store.Delete(kube::kTrainingJob, kube::KeyOf(job),
                   {.uid = kube::UidOf(job), .resource_version = {}, .grace_period_seconds = {}});
  if (!deleted.ok() && !absl::IsNotFound(deleted.status())) return deleted.status();
  return AwaitGone(session, job, kGoneTimeout, [] { return absl::OkStatus(); });
}

// Of what people write; null: nothing is to change.
Json PatchOf(const Json& existing, const Json& wanted) {
  const Json before = Json::parse(kube::AnnotationOf(existing, kLastAppliedSpec), nullptr, false);
  Json patch = Json::object();
  if (Json spec = ThreeWayPatch(before, kube::At(existing, "/spec"), kube::At(wanted, "/spec"));
      !spec.empty()) {
    patch["spec"] = std::move(spec);
  }
  for (const char* part : {"labels", "annotations"}) {
    const std::string pointer = absl::StrCat("/metadata/", part);
    Json change = ThreeWayPatch(Json(), kube::At(existing, pointer), kube::At(wanted, pointer));
    if (!change.empty()) patch["metadata"][part] = std::move(change);
  }
  if (patch.empty()) return Json();
  patch["metadata"]["uid"] = kube::UidOf(existing);
  patch["metadata"]["resourceVersion"] = kube::ResourceVersionOf(existing);
  return patch;
}

}  // namespace

Json ThreeWayPatch(const Json& before, const Json& now, const Json& wanted) {
  Json patch = Json::object();
  if (wanted.is_object()) {
    for (const auto& [key, value] : wanted.items()) {
      const bool there = now.is_object() && now.contains(key);
      if (there && now[key] == value) continue;
      if (!there || !now[key].is_object() || !value.is_object()) {
        patch[key] = value;
        continue;
      }
      const Json earlier = before.is_object() ? before.value(key, Json()) : Json();
      if (Json part = ThreeWayPatch(earlier, now[key], value); !part.empty()) {
        patch[key] = std::move(part);
      }
    }
  }
  if (!before.is_object() || !now.is_object()) return patch;
  for (const auto& [key, value] : before.items()) {
    if (now.contains(key) && !(wanted.is_object() && wanted.contains(key))) patch[key] = nullptr;
  }
  return patch;
}

absl::StatusOr<Json> ApplyOverRest(Session& session, const LoadedJob& wanted, bool replace,
                                   std::string& what) {
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  absl::Status why;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const auto existing = store->Get(kube::kTrainingJob, kube::KeyOf(wanted.object));
    if (existing.ok() && (replace || kube::IsBeingDeleted(*existing))) {
      RETURN_IF_ERROR(Remove(session, *store, *existing));
      replace = false;
      continue;
    }
    absl::StatusOr<Json> written = existing;
    if (existing.ok()) {
      const Json patch = PatchOf(*existing, wanted.object);
      what = patch.is_null() ? "unchanged" : "configured";
      if (patch.is_null()) return existing;
      written = store->Patch(kube::kTrainingJob, kube::KeyOf(*existing), patch);
    } else if (absl::IsNotFound(existing.status())) {
      what = "created";
      written = store->Create(kube::kTrainingJob, wanted.object);
    }
    why = written.status();
    // Somebody was quicker: what there is now decides.
    if (!absl::IsAborted(why) && !absl::IsAlreadyExists(why) && !absl::IsNotFound(why)) {
      return written;
    }
  }
  return why;
}

}  // namespace starling::cli
