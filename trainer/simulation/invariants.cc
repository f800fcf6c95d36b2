// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/invariants.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace starling::simulation {

using membership::EpochOf;
using membership::IncarnationOf;
using membership::ViewNumber;

std::string Name(ViewNumber view) { return absl::StrCat(IncarnationOf(view), "-", EpochOf(view)); }

void Invariants::Fail(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void Invariants::OnPublished(const membership::View& view) {
  const auto [known, added] = views_.emplace(view.number, view);
  if (!added && !(known->second == view)) {
    Fail(absl::StrCat("1: two views have the number ", Name(view.number)));
  }
}

void PeerInvariants::OnState(const membership::MemberId& id, const membership::StateId& state,
                             const Content& content) {
  const auto [known, added] = states_.emplace(state, content.hash());
  if (!added && known->second != content.hash()) {
    Fail(absl::StrCat("1: ", id.pod_uid, "/", id.start, " holds other bytes as (", Name(state.view),
                      ", ", state.step, ") than another did"));
  }
  if (content.step() != state.step) {
    Fail(absl::StrCat("3: ", id.pod_uid, "/", id.start, " says step ", state.step, " and holds ",
                      content.step(), " steps"));
  }
}

void PeerInvariants::OnContribution(ViewNumber view, std::int64_t step, std::uint64_t from) {
  const auto [known, added] = contributions_.emplace(std::pair(view, step), from);
  if (!added && known->second != from) {
    Fail(absl::StrCat("2: contributions to step ", step, " of view ", Name(view),
                      " start from different states"));
  }
}

void PeerInvariants::OnApplied(const membership::MemberId& member, const membership::StateId& id,
                               ViewNumber view, std::int64_t step) {
  stopped_.erase(member);
  if (id.view == view && id.step == step) return;
  Fail(absl::StrCat("2: ", member.pod_uid, "/", member.start, " applies step ", step, " of view ",
                    Name(view), " and calls it step ", id.step, " of view ", Name(id.view)));
}

void PeerInvariants::OnAdopted(const membership::MemberId& member, ViewNumber view,
                               ViewNumber whole) {
  if (view == whole) return;
  Fail(absl::StrCat("4: ", member.pod_uid, "/", member.start, " adopts a copy in view ", Name(view),
                    " that is not whole"));
}

void PeerInvariants::OnServed(ViewNumber view, std::uint64_t bytes) {
  const auto [known, added] = served_.emplace(view, bytes);
  if (!added && known->second != bytes) {
    Fail(absl::StrCat("1: holders of view ", Name(view), " send different bytes of one state"));
  }
}

void PeerInvariants::OnValidated(std::int64_t step, bool well) {
  if (well) return;
  Fail(absl::StrCat("10: a validation counts of the state before step ", step,
                    ", though some worker read servers that had that step"));
}

void PeerInvariants::OnSynced(const membership::MemberId& member, ViewNumber view) {
  ViewNumber& newest = synced_[member];
  newest = std::max(newest, view);
}

void PeerInvariants::OnReleased(const membership::MemberId& member) {
  const auto mine = synced_.find(member);
  if (mine == synced_.end()) return;  // it holds nothing
  if (stopped_.contains(member)) return;
  const bool held =
      std::any_of(views_.upper_bound(mine->second), views_.end(), [&](const auto& of) {
        const membership::View& view = of.second;
        const std::vector<membership::MemberId>& group = view.groups.back().members;
        return !view.Has(member) && std::all_of(group.begin(), group.end(), [&](const auto& other) {
          const auto synced = synced_.find(other);
          return synced != synced_.end() && synced->second >= view.number;
        });
      });
  if (held) return;
  Fail(absl::StrCat("4: ", member.pod_uid, "/", member.start,
                    " is released before all members of a view without it are synced"));
}

void PeerInvariants::OnSpread(ViewNumber view, std::int64_t lowest, std::int64_t highest) {
  if (highest - lowest > 1) {
    Fail(absl::StrCat("2: members of view ", Name(view), " are at steps ", lowest, " and ",
                      highest));
  }
}

void PeerInvariants::OnBase(ViewNumber view, const Content& base) {
  const auto [known, added] = bases_.emplace(view, base);
  if (!added) {
    if (known->second.prefix != base.prefix) {
      Fail(absl::StrCat("4: members of view ", Name(view), " start from different states"));
    }
    return;
  }
  for (const Fact& fact : facts_) Check(view, base, fact);
}

void PeerInvariants::OnSettled(ViewNumber view, std::int64_t step, std::uint64_t hash) {
  AddFact({view, step, hash, "settled"});
}

void PeerInvariants::OnCommitting(const membership::StateId& name, bool written) {
  if (written) return;
  Fail(absl::StrCat("5: a checkpoint of step ", name.step, " of view ", Name(name.view),
                    " is committed before it is written"));
}

void PeerInvariants::OnStopped(const membership::MemberId& member,
                               const membership::StateId& state) {
  stopped_.insert(member);
  if (committed_.contains(state)) return;
  Fail(absl::StrCat("5: ", member.pod_uid, "/", member.start, " says that it has stopped at step ",
                    state.step, " of view ", Name(state.view), ", which no checkpoint holds"));
}

void PeerInvariants::OnCommitted(const membership::StateId& name, std::uint64_t hash) {
  committed_.insert(name);
  const auto known = states_.find(name);
  if (known != states_.end() && known->second != hash) {
    Fail(absl::StrCat("5: the checkpoint of step ", name.step, " of view ", Name(name.view),
                      " holds other bytes than that state"));
  }
  AddFact({name.view, name.step, hash, "committed as a checkpoint"});
}

void PeerInvariants::AddFact(const Fact& fact) {
  if (!facts_.insert(fact).second) return;
  for (const auto& [view, base] : bases_) Check(view, base, fact);
}

void PeerInvariants::Check(ViewNumber view, const Content& base, const Fact& fact) {
  if (!Binds(fact.view, view)) return;
  if (base.Holds(fact.step, fact.hash) || !held_(fact.step, fact.hash)) return;
  Fail(absl::StrCat(fact.what[0] == 's' ? "4" : "5", ": view ", Name(view), " starts from step ",
                    base.step(), " without step ", fact.step, ", which was ", fact.what,
                    " in view ", Name(fact.view)));
}

bool PeerInvariants::Binds(ViewNumber older, ViewNumber view) {
  if (older >= view) return false;
  if (const auto published = views_.find(older); published != views_.end()) {
    for (const membership::MemberId& member : published->second.groups.back().members) {
      if (given_up_.contains(member.pod_uid)) return false;
    }
  }
  return all_older_ ? !Waived(view).contains(older) : Ancestors(view).contains(older);
}

const std::set<ViewNumber>& PeerInvariants::Waived(ViewNumber view) {
  const auto known = waived_.find(view);
  if (known != waived_.end()) return known->second;
  std::set<ViewNumber> waived;
  const auto published = views_.find(view);
  if (published != views_.end()) {
    const membership::ReplicaGroup& by = published->second.groups.back();
    waived.insert(by.waived.begin(), by.waived.end());
    // What is below a waived view and no longer listed went with it: its members were that view's,
    // or had ended.
    for (const auto& [number, older] : views_) {
      if (by.waived.empty() || number > by.waived.back()) break;
      const bool listed =
          std::any_of(by.since.begin(), by.since.end(),
                      [n = number](const membership::PastView& past) { return past.number == n; });
      if (!listed) waived.insert(number);
    }
    for (const membership::PastView& past : published->second.groups.back().since) {
      if (past.number >= view) continue;
      const std::set<ViewNumber>& of_past = Waived(past.number);
      waived.insert(of_past.begin(), of_past.end());
    }
  }
  return waived_[view] = std::move(waived);
}

const std::set<ViewNumber>& PeerInvariants::Ancestors(ViewNumber view) {
  const auto known = ancestors_.find(view);
  if (known != ancestors_.end()) return known->second;
  const std::set<ViewNumber>& waived = Waived(view);
  std::set<ViewNumber> ancestors;
  std::vector<ViewNumber> open = {view};
  while (!open.empty()) {
    const auto published = views_.find(open.back());
    open.pop_back();
    if (published == views_.end()) continue;
    for (const membership::PastView& past : published->second.groups.back().since) {
      const bool counts = past.number < published->first && !waived.contains(past.number);
      if (counts && ancestors.insert(past.number).second) open.push_back(past.number);
    }
  }
  return ancestors_[view] = std::move(ancestors);
}

}  // namespace starling::simulation
