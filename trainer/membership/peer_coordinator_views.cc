// SPDX-License-Identifier: Apache-2.0
// Who may be in a view, whether it can start, and what it carries.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "common/net/ports.h"
#include "trainer/membership/peer_coordinator.h"

namespace starling::membership {

// Pods whose process reports and may be in a view, by index. Says of the others why not.
std::vector<std::string> PeerCoordinator::Eligible(absl::Time now) {
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  const View* current = Current();
  std::string identity;
  bool identity_of_view = false;
  for (auto& [uid, process] : detector_.processes()) {
    const Pod* pod = detector_.FindPod(uid);
    process.not_admitted.clear();
    if (returning_.contains(uid)) process.not_admitted = kReturning;
    if (pod == nullptr || !process.report || process.outdated || !detector_.Fresh(process, now))
      continue;
    if (detector_.Terminated(process.report->id) || released_.contains(uid)) continue;
    if (process.held_until > now) {
      process.not_admitted = "other members could not reach it; it is tried again soon";
      continue;
    }
    sorted.emplace_back(pod->index, uid);
  }
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [index, uid] : sorted) {
    const Report& report = *detector_.processes().at(uid).report;
    const bool of_view = current != nullptr && current->Has(report.id);
    if (report.numeric_identity.empty() || (identity_of_view && !identity.empty())) continue;
    if (identity.empty() || of_view) identity = report.numeric_identity;
    identity_of_view = identity_of_view || of_view;
  }
  std::vector<std::string> eligible;
  for (const auto& [index, uid] : sorted) {
    FailureDetector::Process& process = detector_.processes().at(uid);
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
  const Report& report = *detector_.processes().at(uid).report;
  return !detector_.IsLeaving(report.id) && report.phase != Phase::kLinger;
}

// Whether the witness rule can hold in this view. If it cannot for long, the silent count as ended.
bool PeerCoordinator::Witnessed(const FormedGroup& formed, absl::Time now) {
  if (formed.missing_witness == 0) {
    NoteWitnesses();
    return true;
  }
  waiting_ = MissingWitnessText("the last steps", "workers", formed.missing_witness);
  NoteHoldersMissing(now);
  return false;
}

void PeerCoordinator::NoteHoldersMissing(absl::Time now) {
  Members holders;
  for (const auto& [epoch, past] : history_.past()) {
    holders.insert(holders.end(), past.begin(), past.end());
  }
  NoteWitnessMissing(holders, now);
}

// All who are to be survivors or strays are among the members already: no witness is added.
FormedGroup PeerCoordinator::Form(const Members& members) const {
  return history_.Form(
      members, {.ended = [this](const MemberId& id) { return detector_.Terminated(id); },
                .state = [this](const MemberId& id) { return detector_.ReportOf(id)->state; },
                .newest_unknown = newest_unknown_});
}

// A Now view of this group, its number not yet given.
View PeerCoordinator::Compose(ReplicaGroup group) const {
  View view;
  const View* newest = Newest();
  for (const MemberId& id : group.members) {
    const Pod* pod = detector_.FindPod(id.pod_uid);
    const ViewMember* before = newest == nullptr ? nullptr : newest->Find(id);
    view.members.push_back({id, net::ToString({pod->ip, net::kDataPort}),
                            before == nullptr ? ViewNumber{0} : before->joined, pod->name});
  }
  view.groups.push_back(std::move(group));
  return view;
}

void PeerCoordinator::Publish(View view, const std::string& deed) {
  const std::uint64_t epoch = options_.rules.incarnation_in_view_number
                                  ? next_epoch_++
                                  : EpochOf(std::max(Newest() == nullptr ? 0 : Newest()->number,
                                                     detector_.grant()->newest_view)) +
                                        1;
  view.number = MakeViewNumber(
      options_.rules.incarnation_in_view_number ? detector_.incarnation() : 0, epoch);
  for (ViewMember& member : view.members) {
    if (member.joined == 0) member.joined = view.number;
  }
  view.groups.front().epoch = view.number;
  detector_.NoteRepair(view.number, deed);
  LearnView(view);
  Changed();
}

}  // namespace starling::membership
