// SPDX-License-Identifier: Apache-2.0
#include "tests/techniques/leases.h"

#include <variant>

#include "absl/time/time.h"
#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/parameter_server/convert.h"
#include "trainer/parameter_server/job_tables.h"

namespace starling::techniques {
namespace {

using consistency::Client;
using consistency::Lease;
using v1alpha1::ParameterServerReport;

const membership::MemberId kServer = {"server", 0};

v1alpha1::TrainingJobSpec SpecOf(std::int64_t batch, const consistency::Options& model,
                                 std::int64_t warm_start) {
  v1alpha1::TrainingJobSpec spec;
  v1alpha1::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.set_samples_per_push(batch);
  if (const auto* bulk = std::get_if<consistency::BulkSynchronous>(&model)) {
    spec.mutable_dataset()->set_global_batch_size(batch * bulk->portions);
    server.mutable_consistency()->mutable_bulk_synchronous();
  } else {
    server.mutable_consistency()->mutable_asynchronous();
    spec.mutable_update()->mutable_local_sgd()->set_warm_start(warm_start);
  }
  return spec;
}

}  // namespace

LeaseFeed::LeaseFeed(std::int64_t samples, std::int64_t batch, const consistency::Options& model,
                     std::int64_t warm_start)
    : source_({}, SpecOf(batch, model, warm_start)) {
  source_.Begin(/*shards=*/1, samples);
}

void LeaseFeed::OnView(membership::ViewNumber number, const std::vector<Client>& clients,
                       consistency::LeaseLedger ledger, double now) {
  view_ = {};
  view_.number = number;
  view_.members.push_back({kServer, "", number, "server", "", membership::Role::kServer});
  for (const Client& client : clients) {
    view_.members.push_back({client.id, "", client.joined, client.id.pod_uid});
  }
  view_.groups.push_back({number, {kServer}, {}, {}, /*restore=*/false});
  source_.OnView(view_);
  ledger.Add(parameter_server::kFirstValues);  // every problem's shard has some from the beginning
  ParameterServerReport said;
  parameter_server::Put(ledger, *said.add_ledgers());
  Say(kServer, said);
  Update(now);
}

std::vector<Lease> LeaseFeed::ToldTo(const Client& client) const {
  v1alpha1::ParameterServerDirective part;
  source_.Fill(client, part);
  return {part.leases().begin(), part.leases().end()};
}

Lease LeaseFeed::FirstOf(const Client& client) const {
  const std::vector<Lease> told = ToldTo(client);
  return told.empty() ? 0 : told.front();
}

void LeaseFeed::OnDone(const Client& client, Lease lease, double now) {
  Ends(client, lease, /*done=*/true, now);
}

void LeaseFeed::OnReturned(const Client& client, Lease lease, double now) {
  Ends(client, lease, /*done=*/false, now);
}

void LeaseFeed::Ends(const Client& client, Lease lease, bool done, double now) {
  ParameterServerReport before, after;
  for (const Lease held : ToldTo(client)) {
    before.add_held(held);
    if (held != lease) after.add_held(held);
  }
  if (done) after.add_done(lease);
  Say(client.id, before);
  Say(client.id, after);
  Update(now);
}

void LeaseFeed::Say(const membership::MemberId& id, const ParameterServerReport& said) {
  membership::Report report;
  report.id = id;
  report.installed = view_;
  source_.OnReport(report, said);
}

void LeaseFeed::Update(double now) {
  parameter_server::LeaseSource::Standing standing;
  standing.running = true;
  standing.leaving = [](const membership::MemberId&) { return false; };
  (void)source_.Update(standing, absl::UnixEpoch() + absl::Seconds(now));
}

}  // namespace starling::techniques
