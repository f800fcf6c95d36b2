// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/lease_desk.h"

#include <algorithm>
#include <utility>

#include "common/log/log.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/parameter_server/convert.h"

namespace starling::worker {
namespace {

using consistency::LeaseRun;
using membership::Phase;
using parameter_server::Lease;

constexpr std::size_t kMostUnlisted = 64;

std::string WhyToExit(const membership::Directive& directive) {
  if (directive.finished) return "training has finished";
  if (directive.superseded) return "a newer process of this pod has reported";
  if (directive.released) return "released: the others go on without me";
  return "";
}

bool Has(const std::vector<Lease>& leases, Lease lease) {
  return std::ranges::find(leases, lease) != leases.end();
}

}  // namespace

LeaseDesk::LeaseDesk(Options options, AtOnce at_once)
    : options_(std::move(options)), at_once_(std::move(at_once)) {}

void LeaseDesk::Changed() {
  ++orders_.stamp;
  changed_.NotifyAll();
}

bool LeaseDesk::Listed(Lease lease) const { return Has(orders_.leases, lease); }

// Views only go up, and none of a coordinator that was replaced is entered. Directives for the view
// that is known are taken whoever made it. False: they are for an older one.
bool LeaseDesk::TakeView(const membership::View& view, std::uint64_t incarnation) {
  const membership::ViewNumber known = orders_.view ? orders_.view->number : 0;
  if (view.number == known) return true;
  if (view.number < known || membership::IncarnationOf(view.number) < incarnation) return false;
  orders_.view = view;
  return true;
}

void LeaseDesk::OnDirective(const membership::Directive& directive) {
  v1alpha1::ParameterServerDirective mine;
  if (!mine.ParseFromString(directive.parameter_server)) return;
  membership::ViewNumber fence = 0;
  bool stop = false;
  bool report = false;
  {
    const sync::MutexLock lock(mutex_);
    if (directive.incarnation < incarnation_) return;
    report = directive.incarnation > incarnation_;
    incarnation_ = directive.incarnation;
    checkpoint_turn_ = std::max(checkpoint_turn_, directive.checkpoint_turn);
    if (directive.settings.generation > orders_.settings.generation) {
      orders_.settings = directive.settings;
    }
    if (orders_.exit.empty()) orders_.exit = WhyToExit(directive);
    stop = !orders_.exit.empty();
    const membership::ViewNumber known = orders_.view ? orders_.view->number : 0;
    if (directive.view && TakeView(*directive.view, directive.incarnation)) {
      orders_.leases.assign(mine.leases().begin(), mine.leases().end());
      orders_.settled = mine.settled();
      orders_.evaluate = mine.evaluate();
      orders_.conclude = mine.conclude();
      if (orders_.view->number > known) fence = orders_.view->number;
      // What is listed no more is known to the coordinator; listed anew, it is to be done anew.
      const auto& leases = orders_.leases;
      std::erase_if(done_, [&](Lease lease) { return !Has(leases, lease); });
      std::erase_if(done_unlisted_, [&](Lease lease) { return Has(leases, lease); });
      std::erase_if(given_back_, [&](const auto& one) { return !Has(leases, one.first); });
      std::erase_if(told_held_, [&](Lease lease) { return !Has(leases, lease); });
    }
    Changed();
  }
  if (fence != 0) at_once_.fence(fence);
  if (stop) at_once_.stop();
  if (report) at_once_.report();
}

void LeaseDesk::Terminate() {
  {
    const sync::MutexLock lock(mutex_);
    orders_.leaving = true;
    Changed();
  }
  at_once_.report();
}

void LeaseDesk::GraceOver() {
  {
    const sync::MutexLock lock(mutex_);
    if (orders_.exit.empty()) orders_.exit = "the grace period is over";
    Changed();
  }
  at_once_.stop();
}

Orders LeaseDesk::Read() const {
  const sync::MutexLock lock(mutex_);
  return orders_;
}

std::uint64_t LeaseDesk::stamp() const {
  const sync::MutexLock lock(mutex_);
  return orders_.stamp;
}

bool LeaseDesk::WaitForChange(std::uint64_t stamp, absl::Duration timeout) {
  const net::Deadline deadline = net::Deadline::After(timeout);
  const sync::MutexLock lock(mutex_);
  while (orders_.stamp == stamp) {
    if (deadline.Expired()) return false;
    changed_.WaitFor(mutex_, deadline.Remaining());
  }
  return true;
}

void LeaseDesk::Install(const membership::View& view) {
  {
    const sync::MutexLock lock(mutex_);
    const membership::ViewNumber joined = parameter_server::ClientViewOf(view, options_.id).joined;
    if (joined != joined_) {
      begun_.clear();
      done_.clear();
      done_unlisted_.clear();
      given_back_.clear();
      singly_.clear();
    }
    told_held_.clear();  // in this view
    joined_ = joined;
    unreachable_.clear();
    installed_ = view;
    phase_ = joined == 0 ? Phase::kLinger : Phase::kSync;
  }
  at_once_.report();
}

void LeaseDesk::Running() {
  {
    const sync::MutexLock lock(mutex_);
    phase_ = Phase::kRun;
  }
  at_once_.report();
}

void LeaseDesk::Broken(std::vector<membership::MemberId> unreachable) {
  {
    const sync::MutexLock lock(mutex_);
    unreachable_ = std::move(unreachable);
    phase_ = Phase::kAborted;
  }
  at_once_.report();
}

bool LeaseDesk::InView() const {
  return installed_ && orders_.view && orders_.view->number == installed_->number;
}

// It may be begun, now.
bool LeaseDesk::Open(Lease lease) const {
  if (done_.contains(lease) || begun_.contains(lease)) return false;
  const auto given_back = given_back_.find(lease);
  return given_back == given_back_.end() || given_back->second.Expired();
}

std::optional<LeaseRun> LeaseDesk::Take(std::int64_t portions) {
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

bool LeaseDesk::IsNext(Lease lease) const {
  const sync::MutexLock lock(mutex_);
  if (!InView() || !Listed(lease)) return false;
  for (const Lease one : orders_.leases) {
    if (one < lease && Open(one)) return false;
  }
  return true;
}

void LeaseDesk::Done(const LeaseRun& run) {
  {
    const sync::MutexLock lock(mutex_);
    for (Lease lease = run.first; lease < run.end(); ++lease) {
      begun_.erase(lease);
      if (Listed(lease)) {
        done_.insert(lease);
      } else {
        done_unlisted_.push_back(lease);
        if (done_unlisted_.size() > kMostUnlisted) done_unlisted_.pop_front();
      }
    }
  }
  at_once_.report();
}

void LeaseDesk::Refused(const LeaseRun& run) {
  {
    const sync::MutexLock lock(mutex_);
    const net::Deadline until = net::Deadline::After(options_.give_back_patience);
    for (Lease lease = run.first; lease < run.end(); ++lease) {
      begun_.erase(lease);
      if (run.count > 1) singly_.insert(lease);
      if (Listed(lease)) given_back_.insert_or_assign(lease, until);
    }
  }
  at_once_.report();
}

void LeaseDesk::Dropped(const LeaseRun& run) {
  const sync::MutexLock lock(mutex_);
  for (Lease lease = run.first; lease < run.end(); ++lease) begun_.erase(lease);
}

void LeaseDesk::Evaluated(std::int64_t turn, bool ends_training) {
  {
    const sync::MutexLock lock(mutex_);
    evaluated_turn_ = turn;
    ends_training_ = ends_training;
  }
  at_once_.report();
}

std::string LeaseDesk::ParameterServerReport() const {
  v1alpha1::ParameterServerReport report;
  parameter_server::Put(options_.layout, *report.mutable_layout());
  report.set_broken(phase_ == Phase::kAborted);
  if (installed_ && orders_.view && orders_.view->number == installed_->number) {
    for (const Lease lease : orders_.leases) {
      if (done_.contains(lease)) {
        report.add_done(lease);
      } else if (!given_back_.contains(lease) || told_held_.insert(lease).second) {
        told_held_.insert(lease);
        report.add_held(lease);
      }
    }
    for (const Lease lease : begun_) {
      if (!Listed(lease)) report.add_held(lease);
    }
    for (const Lease lease : done_unlisted_) report.add_done(lease);
  }
  if (evaluated_turn_ > 0) {
    report.mutable_evaluation()->set_turn(evaluated_turn_);
    report.mutable_evaluation()->set_ends_training(ends_training_);
  }
  return report.SerializeAsString();
}

membership::Report LeaseDesk::MakeReport() const {
  const sync::MutexLock lock(mutex_);
  membership::Report report;
  report.id = options_.id;
  report.highest_incarnation = incarnation_;
  report.fence = installed_ ? installed_->number : 0;
  report.installed = installed_;
  report.phase = phase_;
  report.settled_step = installed_ ? orders_.settled : -1;
  report.unreachable = unreachable_;
  report.leaving = orders_.leaving;
  report.last_exit = options_.last_exit;
  report.numeric_identity = options_.numeric_identity;
  report.settings_generation = orders_.settings.generation;
  report.checkpoint_turn = checkpoint_turn_;
  report.parameter_server = ParameterServerReport();
  return report;
}

}  // namespace starling::worker
