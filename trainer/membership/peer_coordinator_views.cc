// SPDX-License-Identifier: Apache-2.0
// Who may be in a view, whether it can start, and what it carries.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "common/net/ports.h"
#include "trainer/membership/peer_coordinator.h"
#include "trainer/membership/sync_round.h"

namespace starling::membership {

// Pods whose process reports and may be in a view, by index. Says of the others why not.
std::vector<std::string> PeerCoordinator::Eligible(absl::Time now) {
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  const View* current = Current();
  std::string identity;
  bool identity_of_view = false;
  for (auto& [uid, process] : attendance_.processes()) {
    const Pod* pod = attendance_.FindPod(uid);
    process.not_admitted.clear();
    if (pod == nullptr || !process.report || process.outdated || !attendance_.Fresh(process, now))
      continue;
    if (attendance_.Terminated(process.report->id) || released_.contains(uid)) continue;
    if (process.held_until > now) {
      process.not_admitted = "other workers could not reach it; it is tried again soon";
      continue;
    }
    sorted.emplace_back(pod->index, uid);
  }
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [index, uid] : sorted) {
    const Report& report = *attendance_.processes().at(uid).report;
    const bool of_view = current != nullptr && current->Has(report.id);
    if (report.numeric_identity.empty() || (identity_of_view && !identity.empty())) continue;
    if (identity.empty() || of_view) identity = report.numeric_identity;
    identity_of_view = identity_of_view || of_view;
  }
  std::vector<std::string> eligible;
  for (const auto& [index, uid] : sorted) {
    Attendance::Process& process = attendance_.processes().at(uid);
    const std::string& own = process.report->numeric_identity;
    if (!own.empty() && own != identity) {
      process.not_admitted = absl::StrCat(
          "its arithmetic differs from that of the others, so results could not be "
          "reproduced: it has \"",
          own, "\", they have \"", identity, "\"; run it on the same kind of machine");
      continue;
    }
    eligible.push_back(uid);
  }
  return eligible;
}

bool PeerCoordinator::IsJoinable(const std::string& uid) const {
  const Report& report = *attendance_.processes().at(uid).report;
  return !attendance_.IsLeaving(report.id) && report.phase != Phase::kLinger;
}

// The view for which this one lacks a witness, by what its members have reported; or 0.
ViewNumber PeerCoordinator::MissingIn(const View& view) const {
  std::map<MemberId, SyncId> expected;
  for (const ViewMember& member : view.members) {
    expected[member.id].state = attendance_.ReportOf(member.id)->state;
  }
  return MissingWitness(view, expected, options_.rules);
}

// Whether the witness rule can hold in this view. If it cannot for long, the silent count as ended.
bool PeerCoordinator::Witnessed(const View& view, absl::Time now) {
  const ViewNumber missing = MissingIn(view);
  if (missing == 0) {
    unwitnessed_since_ = absl::InfiniteFuture();
    return true;
  }
  if (unwitnessed_since_ == absl::InfiniteFuture()) unwitnessed_since_ = now;
  waiting_ = absl::StrCat("the last steps may be known only to workers that do not answer (view ",
                          IncarnationOf(missing), "-", EpochOf(missing),
                          "); waits for them, or for proof that they have ended");
  if (now - unwitnessed_since_ < options_.takeover_timeout) return false;
  std::set<std::string> silent;
  for (const auto& [number, past] : published_) {
    for (const ViewMember& member : past.members) {
      const Standing standing = StandingOf(member.id, now);
      if (standing == Standing::kSilent) silent.insert(member.id.pod_uid);
    }
  }
  unwitnessed_since_ = absl::InfiniteFuture();
  if (!silent.empty()) attendance_.AssumeTerminated(silent, Risked(), now);
  return false;
}

// A Now view of these members, its number not yet given.
View PeerCoordinator::Compose(const std::vector<MemberId>& members) const {
  View view;
  ViewNumber synced = 0;
  for (const MemberId& id : members) {
    const Pod* pod = attendance_.FindPod(id.pod_uid);
    const Report* report = attendance_.ReportOf(id);
    ViewMember member{id, net::ToString({pod->ip, net::kDataPort}), 0, pod->name};
    if (!published_.empty()) {
      const View& newest = published_.rbegin()->second;
      const int rank = newest.RankOf(id);
      if (rank >= 0) member.joined = newest.members[static_cast<std::size_t>(rank)].joined;
    }
    if (report->state) synced = std::max(synced, report->state->view);
    view.members.push_back(std::move(member));
  }
  view.restore = synced == 0 || newest_unknown_;
  for (const auto& [number, past] : published_) {
    PastView& since = view.since.emplace_back();
    since.number = number;
    for (const ViewMember& member : past.members) since.members.push_back(member.id);
    if (!std::all_of(since.members.begin(), since.members.end(),
                     [this](const MemberId& id) { return attendance_.Terminated(id); })) {
      continue;
    }
    view.waived.push_back(number);
    view.restore = view.restore || number > synced;
  }
  return view;
}

void PeerCoordinator::Publish(View view, const std::string& deed) {
  const std::uint64_t epoch =
      options_.rules.incarnation_in_view_number
          ? next_epoch_++
          : EpochOf(std::max(Newest(), attendance_.grant()->newest_view)) + 1;
  view.number = MakeViewNumber(
      options_.rules.incarnation_in_view_number ? attendance_.incarnation() : 0, epoch);
  for (ViewMember& member : view.members) {
    if (member.joined == 0) member.joined = view.number;
  }
  attendance_.NoteRepair(view.number, deed);
  published_[view.number] = std::move(view);
  ++directives_version_;
}

}  // namespace starling::membership
