// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/member_shell.h"

#include <utility>
#include <variant>
#include <vector>

#include "common/net/deadline.h"

namespace starling::worker {

using membership::Action;
using membership::Actions;

MemberShell::MemberShell(membership::Member::Options options, AtOnce at_once)
    : at_once_(std::move(at_once)), machine_(std::move(options)) {}

void MemberShell::Deliver(const Event& event) {
  std::vector<Action> now;
  {
    sync::MutexLock lock(mutex_);
    for (Action& action : event(machine_)) {
      const auto* fence = std::get_if<membership::Fence>(&action);
      const bool unplanned_fence = fence != nullptr && !fence->planned;
      const bool report = std::holds_alternative<membership::SendReport>(action);
      const bool both = std::holds_alternative<membership::AbortView>(action) ||
                        std::holds_alternative<membership::Exit>(action);
      if (unplanned_fence || report || both) now.push_back(action);
      if (!unplanned_fence && !report) queue_.push_back(std::move(action));
    }
    arrived_.NotifyAll();
  }
  for (const Action& action : now) {
    if (const auto* fence = std::get_if<membership::Fence>(&action)) {
      at_once_.fence(fence->view);
    } else if (const auto* abort = std::get_if<membership::AbortView>(&action)) {
      at_once_.abort_view(abort->view);
    } else if (std::holds_alternative<membership::Exit>(action)) {
      at_once_.stop();
    } else {
      at_once_.report();
    }
  }
}

std::optional<Action> MemberShell::Next() {
  const sync::MutexLock lock(mutex_);
  if (queue_.empty()) return std::nullopt;
  Action action = std::move(queue_.front());
  queue_.pop_front();
  return action;
}

bool MemberShell::WaitForAction(absl::Duration timeout) {
  const net::Deadline deadline = net::Deadline::After(timeout);
  const sync::MutexLock lock(mutex_);
  while (queue_.empty()) {
    if (deadline.Expired()) return false;
    arrived_.WaitFor(mutex_, deadline.Remaining());
  }
  return true;
}

bool MemberShell::WaitForNews(absl::Duration timeout) {
  const net::Deadline deadline = net::Deadline::After(timeout);
  const sync::MutexLock lock(mutex_);
  while (queue_.empty() && !nudged_ && !deadline.Expired()) {
    arrived_.WaitFor(mutex_, deadline.Remaining());
  }
  nudged_ = false;
  return !queue_.empty();
}

void MemberShell::Nudge() {
  const sync::MutexLock lock(mutex_);
  nudged_ = true;
  arrived_.NotifyAll();
}

membership::ControlWord MemberShell::NextControlWord() {
  sync::MutexLock lock(mutex_);
  return machine_.NextControlWord();
}

}  // namespace starling::worker
