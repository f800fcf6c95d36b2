// SPDX-License-Identifier: Apache-2.0
// The work of a job with parameter servers: which batches are done, who is to do which, when a
// validation is due, and whether training is over. A pure machine beside the coordinator: it is
// told the views and what members report, and asked what a worker's directive says. It decides
// nothing about views, and forgets nothing that matters when its process ends: ledgers, held leases
// and turns are reported again to a successor.
//
// Its parts: LeaseTable (which leases are open, held, done) and WorkPlan (how many batches there
// are). To add a rule about work: a private method that Update() calls, a test in
// lease_source_test.cc, a row in docs/design/parameter-server.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/parameter_server/lease_table.h"
#include "trainer/parameter_server/work_plan.h"

namespace starling::v1alpha1 {
class ParameterServerDirective;
class ParameterServerReport;
}  // namespace starling::v1alpha1

namespace starling::parameter_server {

// Thread-compatible.
class LeaseSource {
 public:
  struct Options {
    // A client is given work for so long ahead, as it has worked lately.
    absl::Duration work_ahead = absl::Milliseconds(100);
    // How long clients may finish what they hold at the end.
    absl::Duration conclude_patience = absl::Seconds(2);
    // How long a lease that a client has given back waits for another client to have room for it.
    absl::Duration return_patience = absl::Seconds(1);
  };
  // Where workers make every step together and hold a part of the model (H4, H5): a step's leases
  // are not given out; what a ledger lacks of the steps that the view began with is. Those that are
  // made in the view are whole on its servers (H3), though their ledgers are heard of later.
  struct Lockstep {
    std::int64_t base = 0;     // steps that the workers began the newest view with
    std::int64_t settled = 0;  // that all of them have
    bool over = false;         // and there will be no more
  };
  // How the job stands otherwise.
  struct Standing {
    bool running = false;  // the newest view is synced by all, and nothing broke
    bool halted = false;   // what is begun is ended, nothing else
    bool paused = false;   // nothing is given out
    membership::Settings settings;
    std::function<bool(const MemberId&)> leaving;
    std::optional<Lockstep> lockstep = {};
  };

  // `spec` is resolved and valid.
  LeaseSource(Options options, const v1alpha1::TrainingJobSpec& spec);
  ~LeaseSource();

  // The tables are known: so many shards have ledgers, so many samples are in the training set.
  // Nothing is given out before.
  void Begin(std::size_t shards, std::int64_t samples);
  // The newest view, published or adopted.
  void OnView(const View& view);
  // What a member has said last; acted on by the next Update().
  void OnReport(const membership::Report& report, const v1alpha1::ParameterServerReport& said);
  // After every event. Answers whether directives may have changed.
  bool Update(const Standing& standing, absl::Time now);

  // What this worker of the newest view is told.
  void Fill(const Client& client, v1alpha1::ParameterServerDirective& part) const;
  bool Holds(const Client& client) const { return book_ && !book_->HeldBy(client).empty(); }
  // Leases that are given out and not done.
  bool Outstanding() const { return book_ && book_->outstanding() > 0; }
  // Whether all ledgers are known; settled() means little before.
  bool informed() const { return informed_; }
  // The run of batches that are done, from the first on.
  std::int64_t settled() const { return settled_; }
  bool AllDone() const { return informed_ && settled_ >= work_.total; }
  // A batch was done in the newest view.
  bool progressed() const { return progressed_; }
  // It was, or it runs and nobody has anything to do: what was lost before it has been made good.
  bool recovered() const { return recovered_; }
  // The last Update() has heard what a restore cost: so many batches are done again.
  std::int64_t repeated() const { return repeated_; }

 private:
  // What a process has said, newest only.
  struct Heard {
    bool fresh = false;  // not yet taken into account
    ViewNumber installed = 0;
    Client self;  // in that view
    std::vector<std::pair<std::size_t, LeaseLedger>> ledgers;
    std::vector<Lease> done;
    std::vector<Lease> held;
    std::vector<Lease> returned;  // held before, in this view, and not now: unless they are done
  };
  // How fast a client works.
  struct Pace {
    std::int64_t counted = 0;
    absl::Time since;
    double per_second = 0;
  };

  void Learn(const Standing& standing, absl::Time now);
  void Take(const Heard& heard, absl::Time now);
  void CountPace(const Client& client, absl::Time now);
  void UpdateWork(const membership::Settings& settings);
  void Judge(const Standing& standing, absl::Time now);
  bool IsOver(const Standing& standing) const;
  void Give(const Standing& standing, absl::Time now);
  void CatchUp(const Standing& standing);
  bool NobodyHolds() const;
  std::vector<Client> Able(bool alone, const Standing& standing) const;
  std::size_t Wanted(const Client& client, std::int64_t left) const;
  std::int64_t Begun() const;
  std::int64_t BatchesAhead() const;
  void Deal(const std::vector<Client>& able, std::int64_t batch);

  const Options options_;
  const std::unique_ptr<const v1alpha1::TrainingJobSpec> spec_;
  std::int64_t samples_ = 0;
  std::optional<LeaseTable> book_;  // from Begin() on
  WorkPlan work_;
  std::string settings_;  // that work_ was made of
  View view_;
  std::map<std::string, Heard> heard_;  // by pod UID
  std::map<Client, Pace> paces_;
  bool changed_ = false;

  std::size_t done_count_ = 0;
  std::int64_t settled_ = 0;
  std::int64_t told_settled_ = 0;
  absl::Time settled_due_ = absl::InfinitePast();
  bool informed_ = false;
  bool progressed_ = false;
  bool recovered_ = false;
  // Leases that were done before a view whose ledgers are not known yet.
  std::optional<std::size_t> done_before_;
  std::int64_t repeated_ = 0;

  std::optional<MemberId> first_;  // the client that validates and concludes
  std::int64_t made_ = 0;          // the newest turn
  std::int64_t evaluate_ = 0;      // the turn that is asked for
  bool ended_ = false;             // by a turn
  absl::Time over_since_ = absl::InfiniteFuture();
  bool conclude_ = false;
};

}  // namespace starling::parameter_server
