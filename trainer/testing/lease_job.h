// SPDX-License-Identifier: Apache-2.0
// For tests of LeaseSource: jobs of one server and some workers, of which the test says what each
// reports.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/parameter_server/convert.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/parameter_server/lease_source.h"

namespace starling::parameter_server::lease_testing {

namespace pb = v1alpha1;

// 40 samples in batches of 4: 10 batches, one epoch, one validation.
inline pb::TrainingJobSpec Spec() {
  pb::TrainingJobSpec spec;
  spec.mutable_stop()->set_epochs(1);
  spec.mutable_validation()->set_every_epochs(1);
  spec.mutable_dataset()->mutable_validation();
  pb::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.set_samples_per_push(4);
  server.mutable_consistency()->mutable_asynchronous();
  return spec;
}

// Workers w0, w1, ... and one server s with one shard, which has what the test says.
class Job {
 public:
  explicit Job(int workers, const pb::TrainingJobSpec& spec = Spec()) : source_({}, spec) {
    for (int i = 0; i < workers; ++i) workers_.push_back({absl::StrCat("w", i), 0});
    standing_.running = true;
    standing_.leaving = [this](const MemberId& id) { return leaving_ == id; };
    source_.Begin(1, 40);
    Publish(1);
  }
  void Publish(ViewNumber number, bool restore = false) {
    Adopt(number, restore);
    Update();
  }
  // Published, and not looked at yet.
  void Adopt(ViewNumber number, bool restore) {
    view_ = {};
    view_.number = number;
    view_.members.push_back({{"s", 0}, "", number, "s", "", membership::Role::kServer});
    for (const MemberId& id : workers_) view_.members.push_back({id, "", joined_, id.pod_uid});
    view_.groups.push_back({number, {{"s", 0}}, {}, {}, restore});
    source_.OnView(view_);
  }
  // The server says that it has these.
  bool Save(const std::vector<Lease>& leases) { return Say({"s", 0}, Ledger(leases)); }
  static pb::ParameterServerReport Ledger(const std::vector<Lease>& leases) {
    LeaseLedger ledger;
    for (const Lease lease : leases) ledger.Add(lease);
    pb::ParameterServerReport said;
    Put(ledger, *said.add_ledgers());
    return said;
  }
  void SaveTo(Lease last) {
    std::vector<Lease> leases;
    for (Lease lease = 1; lease <= last; ++lease) leases.push_back(lease);
    Save(leases);
  }
  // Whether directives may have changed.
  bool Say(const MemberId& id, const pb::ParameterServerReport& said) {
    Hear(id, said, view_);
    return Update();
  }
  void Hear(const MemberId& id, const pb::ParameterServerReport& said,
            const std::optional<View>& installed) {
    membership::Report report;
    report.id = id;
    report.installed = installed;
    source_.OnReport(report, said);
  }
  bool Hold(int worker, const std::vector<Lease>& leases, const std::vector<Lease>& done = {}) {
    return Say(workers_[static_cast<std::size_t>(worker)], Held(leases, done));
  }
  static pb::ParameterServerReport Held(const std::vector<Lease>& leases,
                                        const std::vector<Lease>& done = {}) {
    pb::ParameterServerReport said;
    for (const Lease lease : leases) said.add_held(lease);
    for (const Lease lease : done) said.add_done(lease);
    return said;
  }
  void Validate(std::int64_t turn) {
    pb::ParameterServerReport said;
    said.mutable_evaluation()->set_turn(turn);
    Say(workers_[0], said);
  }
  bool Update() { return source_.Update(standing_, now_); }
  pb::ParameterServerDirective Told(int worker) const {
    pb::ParameterServerDirective part;
    source_.Fill({workers_[static_cast<std::size_t>(worker)], joined_}, part);
    return part;
  }

  std::vector<MemberId> workers_;
  ViewNumber joined_ = 1;  // the view that all workers joined in
  MemberId leaving_;
  View view_;
  LeaseSource::Standing standing_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  LeaseSource source_;
};

// One that is under way: the first values are there.
class BegunJob : public Job {
 public:
  explicit BegunJob(int workers, const pb::TrainingJobSpec& spec = Spec()) : Job(workers, spec) {
    Save({});
    Save({1});
  }
};

// The same in 4 portions a batch, of which all workers do some.
inline pb::TrainingJobSpec InPortions() {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_dataset()->set_global_batch_size(4);
  pb::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.set_samples_per_push(1);
  server.mutable_consistency()->mutable_bulk_synchronous();
  return spec;
}

// Workers make every step together.
class LockstepJob : public Job {
 public:
  explicit LockstepJob(int workers) : Job(workers, InPortions()) {
    standing_.lockstep = LeaseSource::Lockstep{};
  }
  void Steps(std::int64_t base, std::int64_t settled, bool over = false) {
    standing_.lockstep = {base, settled, over};
    Update();
  }
  std::vector<Lease> Given() const {
    std::vector<Lease> given;
    for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) {
      const pb::ParameterServerDirective told = Told(worker);
      given.insert(given.end(), told.leases().begin(), told.leases().end());
    }
    std::ranges::sort(given);
    return given;
  }
};

}  // namespace starling::parameter_server::lease_testing
