// SPDX-License-Identifier: Apache-2.0
// Jobs whose workers hold the whole state: membership::Member and its step loop in every process,
// and what they send one another at the level of messages. A state's content is the hash of
// everything that made it (content.h).
//
// Where servers hold a part of it the loop does more between two reductions: see HybridJob, which
// overrides what is virtual here.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trainer/membership/member.h"
#include "trainer/simulation/content.h"
#include "trainer/simulation/world.h"

namespace starling::simulation {

// Thread-compatible.
class PeerJob : public Job {
 public:
  explicit PeerJob(const PeerOptions& options)
      : PeerJob(options, {.refuses_old_data = options.rules.view_check_on_data}) {}
  Outcome Run() { return world_.Run(*this); }

 protected:
  PeerJob(const PeerOptions& options, const World::Ways& ways);

  struct Contribution {
    std::uint64_t from = 0;  // hash of the state that it starts from
    membership::ControlWord word;
    bool empty = false;
    bool of_state_before = true;  // as it says
    // If a validation was due: whether this share of it was of the state before, as it is.
    std::optional<bool> validated = {};
  };
  using Disk = std::map<StateId, std::pair<Content, membership::Agreed>>;
  struct Snapshot {
    StateId id;
    Content content;
    membership::Agreed agreed;
    int number = 0;  // of its process
    bool written = false;
  };
  // Of the reductions of a view, in order. The step alone does not name one: an empty reduction
  // leaves the state where it is, and another of the same step may follow.
  struct Round {
    ViewNumber view = 0;
    std::int64_t step = 0;
    std::int64_t number = 0;
    auto operator<=>(const Round&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  // A reduction that is complete at one member.
  struct Reduced {
    membership::Reduction reduction;
    std::uint64_t update = 0;
    std::optional<bool> validated = {};  // if it counts: whether all shares are of one state
  };
  struct Peer : Process {
    std::unique_ptr<membership::Member> machine;
    // The step loop runs beside the machine: directives reach the machine while the loop is busy,
    // and what the loop is to do waits, in order.
    std::deque<membership::Action> todo;
    Content content;
    Content staged;
    ViewNumber whole = 0;      // the view for which `staged` is whole
    bool half_copied = false;  // what it began with is overwritten in part, by no whole state yet
    std::map<Round, std::map<MemberId, Contribution>> received;
    std::map<ViewNumber, std::int64_t> rounds;  // reductions that it has completed
    std::set<Round> contributed;
    std::map<std::pair<ViewNumber, MemberId>, int> shares;
    std::optional<Snapshot> snapshot;
    int snapshots = 0;
    bool settle_only = false;
    ViewNumber ran = 0;  // the last view in which it ran
  };
  using PeerHandler = std::function<void(Peer&)>;

  std::unique_ptr<Process> NewProcess() override { return std::make_unique<Peer>(); }
  std::unique_ptr<membership::Coordinator> NewCoordinator(
      membership::CoordinatorOptions options) override;
  void OnStarted(Process& process) override;
  void OnDirective(Process& process, const membership::Directive& directive) override;
  membership::Report ReportOf(Process& process) override;
  void OnBroken(Process& process, ViewNumber view, const MemberId& peer) override;
  void GoOn(Process& process) override;
  void Check() override;

  // The links of this view stand. False of MayGoOn: the loop waits for something that belongs to
  // it, and GoOn is called when that is over.
  virtual void Entered(Peer& /*peer*/, const membership::View& /*view*/) {}
  virtual bool MayGoOn(const Peer& /*peer*/) const { return true; }
  // The loop has done all that it was told: work that leads to Contribute.
  virtual void Work(Peer& peer);
  virtual Contribution ContributionOf(const Peer& peer) const;
  // The machine has taken this reduction of a state with that content.
  virtual void Made(Peer& /*peer*/, const Reduced& /*reduced*/, const Content& /*before*/) {}
  // All that was to be done is settled.
  virtual void Over(Peer& peer);
  // Hash of what it sends to who copies its state.
  virtual std::uint64_t BytesOf(const Peer& peer) const { return peer.content.hash(); }
  bool Finished(const membership::Coordinator& coordinator) override;
  std::string Standing(const Process& process) override;

  static Peer& As(Process& process) { return static_cast<Peer&>(process); }
  static Handler As(PeerHandler event) {
    return [event = std::move(event)](Process& process) { event(As(process)); };
  }
  Peer* Find(const MemberId& id) { return static_cast<Peer*>(world_.Find(id)); }
  void ToLoop(const MemberId& id, Micros delay, PeerHandler event) {
    world_.ToLoop(id, delay, As(std::move(event)));
  }
  // Once a step: where nothing comes of it in time the view is given up.
  void Expect(const Peer& peer, ViewNumber view);
  // The reduction that comes next in this view.
  Round RoundOf(const Peer& peer, ViewNumber view) const;
  bool MakesNothing(const Peer& peer) const {
    return peer.settle_only || peer.machine->state()->step >= options_.steps;
  }
  // What this worker adds to it, if the state is still this one.
  void Contribute(Peer& peer, const StateId& from);

  const PeerOptions options_;
  PeerInvariants invariants_;
  World world_;

 private:
  // Now and then the loop hears this again when it is long over.
  void Repeat(const MemberId& id, double probability, PeerHandler event);
  void Do(Peer& peer, const membership::Actions& actions);
  void DoAtOnce(Peer& peer, const membership::Action& action);
  void FallBehind(Peer& peer, Event then);
  void On(Peer& peer, const membership::Fence& fence);
  void On(Peer& peer, const membership::AbortView& abort);
  void On(Peer& peer, const membership::OpenMesh& open);
  void On(Peer& peer, const membership::FindCheckpoint& find);
  void On(Peer& peer, const membership::SendSyncId& send);
  void On(Peer& peer, const membership::StartFresh& fresh);
  void On(Peer& peer, const membership::LoadCheckpoint& load);
  void On(Peer& peer, const membership::ServeState& serve);
  void On(Peer& peer, const membership::CopyState& copy);
  void On(Peer& peer, const membership::AdoptCopy& adopt);
  void On(Peer& peer, const membership::Run& run);
  void On(Peer& peer, const membership::TakeCheckpoint& take);
  void On(Peer& peer, const membership::CommitCheckpoint& commit);
  void On(Peer& peer, const membership::DropCheckpoint& drop);
  void On(Peer& peer, const membership::SendReport&) { world_.Report(peer); }
  void On(Peer& peer, const membership::Exit& exit) { world_.Exit(peer, exit.reason); }
  // Ask has done these before, or nothing is to be done here.
  void On(Peer&, const membership::Apply&) {}
  void On(Peer&, const membership::Settled&) {}
  void On(Peer&, const membership::ApplySettings&) {}
  void On(Peer&, const membership::Pause&) {}
  void TryReduce(Peer& peer);
  bool TryReduceIn(Peer& peer, const membership::View& view);
  std::optional<Reduced> ReducedIn(const Peer& peer, const membership::View& view) const;
  static std::optional<bool> Validated(const std::map<MemberId, Contribution>& parts);
  bool Ask(Peer& peer, const Reduced& reduced);
  void OnShare(Peer& peer, ViewNumber view, const MemberId& from, const Content& content,
               std::size_t holders);
  // Of all pods, or of each.
  Disk& DiskOf(const Peer& peer) { return disks_[shared_disk_ ? "" : peer.id.pod_uid]; }

  bool shared_disk_ = false;
  std::map<std::string, Disk> disks_;
};

}  // namespace starling::simulation
