// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/session.h"

#include <algorithm>
#include <utility>

namespace starling::membership {
namespace {

const char* WhyToEnd(const Directive& directive) {
  if (directive.finished) return "training has finished";
  if (directive.superseded) return "a newer process of this pod has reported";
  if (directive.released) return "released: the others go on without me";
  return "";
}

}  // namespace

Session::Session(Options options) : options_(std::move(options)) {}

Session::Heard Session::OnDirective(const Directive& directive) {
  if (options_.rules.refuse_lower_incarnation && directive.incarnation < highest_incarnation_) {
    return Heard::kStale;
  }
  const bool successor = directive.incarnation > highest_incarnation_;
  RefuseBelow(directive.incarnation);
  End(WhyToEnd(directive));
  return successor ? Heard::kSuccessor : Heard::kKnown;
}

void Session::RefuseBelow(std::uint64_t incarnation) {
  highest_incarnation_ = std::max(highest_incarnation_, incarnation);
}

bool Session::MayEnter(const View& view) const {
  if (view.number <= fence_) return false;
  const Rules& rules = options_.rules;
  return !rules.refuse_lower_incarnation || !rules.incarnation_in_view_number ||
         IncarnationOf(view.number) >= highest_incarnation_;
}

void Session::Enter(const View& view) {
  Fence(view.number);
  installed_ = view;
  unreachable_.clear();
}

bool Session::Leave() { return !std::exchange(leaving_, true); }

void Session::End(const std::string& why) {
  if (exit_.empty()) exit_ = why;
}

Report Session::MakeReport() const {
  Report report;
  report.id = options_.id;
  report.highest_incarnation = highest_incarnation_;
  report.fence = fence_;
  report.installed = installed_;
  report.unreachable = unreachable_;
  report.leaving = leaving_;
  report.last_exit = options_.last_exit;
  report.numeric_identity = options_.numeric_identity;
  return report;
}

}  // namespace starling::membership
