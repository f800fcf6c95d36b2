// SPDX-License-Identifier: Apache-2.0
// What a process and its coordinator have agreed on about the process itself, the same for every
// kind of member: which coordinator it obeys, the lowest view that it may still enter (its fence),
// whether it is leaving, and why it is to end. Pure; a worker's machine (member.h) and a parameter
// server hold one each, and any other program that wants to be a member of a job starts here:
//
//   if (session.OnDirective(directive) == Session::Heard::kStale) return;   // nothing of it counts
//   if (!session.exit().empty()) ...                                        // end the process
//   if (directive.view && session.MayEnter(*directive.view)) session.Enter(*directive.view);
//   report = session.MakeReport();                                          // and fill in the rest
//
// Enter raises the fence, and what is reported is believed: nothing of an older view may be applied
// afterwards (rule W1). To add something that all members report: a field here, a line in
// MakeReport.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/membership/rules.h"
#include "trainer/membership/types.h"

namespace starling::membership {

// Thread-compatible.
class Session {
 public:
  struct Options {
    MemberId id;
    std::string numeric_identity = {};
    std::optional<LastExit> last_exit = std::nullopt;
    Rules rules = {};
  };
  explicit Session(Options options);

  enum class Heard {
    kStale,      // of a coordinator that was replaced
    kKnown,      // of the coordinator that this process obeys
    kSuccessor,  // of a new one, which must hear immediately where this process stands
  };
  Heard OnDirective(const Directive& directive);
  // A coordinator of this incarnation exists, as its checkpoint proves: older ones are not obeyed.
  void RefuseBelow(std::uint64_t incarnation);

  // Above the fence, and not published by a coordinator that was replaced.
  bool MayEnter(const View& view) const;
  void Enter(const View& view);
  // Nothing of views below this one is to be applied any more.
  void Fence(ViewNumber view) { fence_ = view; }
  // The view's links have ended, and whom this process could not reach.
  void SetUnreachable(std::vector<MemberId> ids) { unreachable_ = std::move(ids); }

  // The process was asked to stop. False: it was already.
  bool Leave();
  // The first reason stays.
  void End(const std::string& why);
  // Why the process is to end, for the log; empty: it is not.
  const std::string& exit() const { return exit_; }

  const MemberId& id() const { return options_.id; }
  const Rules& rules() const { return options_.rules; }
  std::uint64_t highest_incarnation() const { return highest_incarnation_; }
  ViewNumber fence() const { return fence_; }
  // Null before the first.
  const View* view() const { return installed_ ? &*installed_ : nullptr; }
  bool leaving() const { return leaving_; }

  // The part of a report that this class knows.
  Report MakeReport() const;

 private:
  Options options_;
  std::uint64_t highest_incarnation_ = 0;
  ViewNumber fence_ = 0;
  std::optional<View> installed_;
  std::vector<MemberId> unreachable_;
  bool leaving_ = false;
  std::string exit_;
};

}  // namespace starling::membership
