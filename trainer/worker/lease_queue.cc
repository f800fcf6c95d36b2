// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/lease_queue.h"

#include <algorithm>
#include <utility>

#include "starling/v1alpha1/membership.pb.h"
#include "trainer/parameter_server/convert.h"

namespace starling::worker {
namespace {

using consistency::LeaseRun;
using parameter_server::Lease;

constexpr std::size_t kMostUnlisted = 64;

bool Has(const std::vector<Lease>& leases, Lease lease) {
  return std::ranges::find(leases, lease) != leases.end();
}

}  // namespace

bool LeaseQueue::Listed(Lease lease) const { return Has(orders_.leases, lease); }

void LeaseQueue::OnDirective(const membership::Directive& directive,
                             membership::ViewNumber installed) {
  v1alpha1::ParameterServerDirective mine;
  if (!directive.view || directive.view->number != installed ||
      !mine.ParseFromString(directive.parameter_server)) {
    return;
  }
  const sync::MutexLock lock(mutex_);
  if (installed < orders_.view) return;
  orders_.view = installed;
  orders_.leases.assign(mine.leases().begin(), mine.leases().end());
  orders_.settled = mine.settled();
  orders_.evaluate = mine.evaluate();
  orders_.conclude = mine.conclude();
  orders_.begun = mine.begun();
  // A lease that is missing from the list is known to be done: if it is listed again, it was lost
  // in a restore and is to be done again.
  const auto& leases = orders_.leases;
  std::erase_if(done_, [&](Lease lease) { return !Has(leases, lease); });
  std::erase_if(done_unlisted_, [&](Lease lease) { return Has(leases, lease); });
  std::erase_if(given_back_, [&](const auto& one) { return !Has(leases, one.first); });
  std::erase_if(told_held_, [&](Lease lease) { return !Has(leases, lease); });
}

LeaseOrders LeaseQueue::Read() const {
  const sync::MutexLock lock(mutex_);
  return InView() ? orders_ : LeaseOrders();
}

void LeaseQueue::Enter(const membership::View& view) {
  const membership::ViewNumber joined = parameter_server::ClientViewOf(view, options_.id).joined;
  const sync::MutexLock lock(mutex_);
  if (joined != joined_) {
    begun_.clear();
    done_.clear();
    done_unlisted_.clear();
    given_back_.clear();
    singly_.clear();
  }
  told_held_.clear();  // in this view
  joined_ = joined;
  entered_ = view.number;
}

bool LeaseQueue::InView() const { return entered_ != 0 && orders_.view == entered_; }

// It may be begun, now.
bool LeaseQueue::Open(Lease lease) const {
  if (done_.contains(lease) || begun_.contains(lease)) return false;
  const auto given_back = given_back_.find(lease);
  return given_back == given_back_.end() || given_back->second.Expired();
}

std::optional<LeaseRun> LeaseQueue::Take(std::int64_t portions) {
  const sync::MutexLock lock(mutex_);
  if (!InView()) return std::nullopt;
  const auto& leases = orders_.leases;
  auto at = std::ranges::find_if(leases, [this](Lease lease) { return Open(lease); });
  if (at == leases.end()) return std::nullopt;
  LeaseRun run(*at);
  if (given_back_.erase(run.first) > 0) told_held_.erase(run.first);
  const bool alone = singly_.contains(run.first);
  const auto continues = [&](Lease lease) {
    return lease == run.end() && Open(lease) && !given_back_.contains(lease) &&
           !singly_.contains(lease) &&
           parameter_server::StepOfLease(lease, portions) ==
               parameter_server::StepOfLease(run.first, portions);
  };
  const bool joins = !alone && portions > 1 && run.first != parameter_server::kFirstValues;
  while (joins && ++at != leases.end() && continues(*at)) ++run.count;
  for (Lease lease = run.first; lease < run.end(); ++lease) begun_.insert(lease);
  return run;
}

bool LeaseQueue::HasOpen() const {
  const sync::MutexLock lock(mutex_);
  return InView() &&
         std::ranges::any_of(orders_.leases, [this](Lease lease) { return Open(lease); });
}

bool LeaseQueue::IsNext(Lease lease) const {
  const sync::MutexLock lock(mutex_);
  if (!InView() || !Listed(lease)) return false;
  for (const Lease one : orders_.leases) {
    if (one < lease && Open(one)) return false;
  }
  return true;
}

void LeaseQueue::Done(const LeaseRun& run) {
  const sync::MutexLock lock(mutex_);
  for (Lease lease = run.first; lease < run.end(); ++lease) {
    if (begun_.erase(lease) == 0) continue;
    if (Listed(lease)) {
      done_.insert(lease);
    } else {
      done_unlisted_.push_back(lease);
      if (done_unlisted_.size() > kMostUnlisted) done_unlisted_.pop_front();
    }
  }
}

void LeaseQueue::Refused(const LeaseRun& run) {
  const net::Deadline until = net::Deadline::After(options_.give_back_timeout);
  const sync::MutexLock lock(mutex_);
  for (Lease lease = run.first; lease < run.end(); ++lease) {
    begun_.erase(lease);
    if (run.count > 1) singly_.insert(lease);
    if (Listed(lease)) given_back_.insert_or_assign(lease, until);
  }
}

void LeaseQueue::Dropped(const LeaseRun& run) {
  const sync::MutexLock lock(mutex_);
  for (Lease lease = run.first; lease < run.end(); ++lease) begun_.erase(lease);
}

void LeaseQueue::Evaluated(std::int64_t turn, bool ends_training) {
  const sync::MutexLock lock(mutex_);
  evaluated_turn_ = turn;
  ends_training_ = ends_training;
}

void LeaseQueue::Fill(membership::Report& report) const {
  v1alpha1::ParameterServerReport mine;
  parameter_server::Put(options_.layout, *mine.mutable_layout());
  mine.set_broken(report.phase == membership::Phase::kAborted);
  if (options_.chains) mine.set_chains(static_cast<std::int64_t>(*options_.chains));
  const sync::MutexLock lock(mutex_);
  // Whoever holds a state knows better what is settled.
  if (report.installed && !report.state) report.settled_step = orders_.settled;
  if (InView() && report.installed && report.installed->number == entered_) {
    for (const Lease lease : orders_.leases) {
      if (done_.contains(lease)) {
        mine.add_done(lease);
      } else if (!given_back_.contains(lease) || told_held_.insert(lease).second) {
        told_held_.insert(lease);
        mine.add_held(lease);
      }
    }
    for (const Lease lease : begun_) {
      if (!Listed(lease)) mine.add_held(lease);
    }
    for (const Lease lease : done_unlisted_) mine.add_done(lease);
  }
  if (evaluated_turn_ > 0) {
    mine.mutable_evaluation()->set_turn(evaluated_turn_);
    mine.mutable_evaluation()->set_ends_training(ends_training_);
  }
  report.parameter_server = mine.SerializeAsString();
}

}  // namespace starling::worker
