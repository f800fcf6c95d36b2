// SPDX-License-Identifier: Apache-2.0
// For tests: workers in threads over an inproc network, led by a script instead of a coordinator.
//
// The script publishes views and settings; everything else is the real worker. A crash is a worker
// whose links break and that never speaks again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock/clock.h"
#include "common/metrics/metrics.h"
#include "common/storage/blob_store.h"
#include "common/sync/mutex.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/data/load_datasets.h"
#include "trainer/testing/tiny_engine.h"
#include "trainer/transport/inproc_transport.h"
#include "trainer/worker/view_links.h"
#include "trainer/worker/worker.h"
#include "trainer/workload/classification.h"

namespace starling::worker {

// A job on made-up data that takes `steps` steps, a millisecond each at least: 4 steps an epoch,
// the last of 4 samples.
inline v1alpha1::TrainingJobSpec TinyJob(int64_t steps) {
  v1alpha1::TrainingJobSpec spec;
  spec.set_seed(7);
  spec.set_reproducible(true);
  const auto fill = [](v1alpha1::DataSource& source, int64_t samples) {
    source.mutable_synthetic()->set_samples(samples);
    source.mutable_synthetic()->add_shape(3);
    source.mutable_synthetic()->set_classes(4);
  };
  fill(*spec.mutable_dataset()->mutable_train(), 100);
  fill(*spec.mutable_dataset()->mutable_validation(), 50);
  spec.mutable_dataset()->set_global_batch_size(32);
  spec.mutable_dataset()->set_audit_use(true);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  spec.mutable_optimizer()->mutable_sgd()->set_momentum(0.9);
  spec.mutable_validation()->set_every_epochs(1);
  spec.mutable_stop()->set_steps(steps);
  spec.mutable_exchange()->mutable_all_reduce();
  spec.mutable_checkpoint()->set_keep(3);
  spec.mutable_experiment()->mutable_step_delay()->set_nanos(1'000'000);
  return spec;
}

// Confined to the test's thread.
class Cluster {
 public:
  using MakeWorkload =
      std::function<std::unique_ptr<workload::Workload>(const std::string& numeric_identity)>;

  // Without `make` the job classifies what its spec makes up.
  Cluster(v1alpha1::TrainingJobSpec spec, std::string job_dir, MakeWorkload make = nullptr)
      : spec_(std::move(spec)),
        job_dir_(std::move(job_dir)),
        make_(std::move(make)),
        storage_(*storage::Open(checkpoint::JobPlace(spec_.checkpoint().uri(), "job", job_dir_))) {
    directive_.incarnation = 1;
  }
  ~Cluster() {
    for (auto& hand : hands_) hand->worker->GraceOver();
    for (auto& hand : hands_) hand->thread.join();
  }

  // A second coordinator process, or a whole new life of the job.
  void SetIncarnation(uint64_t incarnation) {
    directive_.incarnation = incarnation;
    epoch_ = 0;
  }

  // Adds a worker, which waits for a view. Its number counts from 0.
  int Add(const std::string& numeric_identity = "tiny") {
    auto hand = std::make_unique<Hand>();
    hand->id = {.pod_uid = absl::StrCat("pod-", hands_.size()), .start = 0};
    hand->workload = NewWorkload(numeric_identity);
    transport::Options options;
    options.member = NameOf(hand->id);
    options.job = "job";
    options.secret = "secret";
    hand->transport = *network_.OpenTransport(options);
    hand->registry = std::make_unique<metrics::Registry>();
    WorkerConfig config;
    config.spec = spec_;
    config.job_uid = "job";
    config.job_dir = job_dir_;
    config.self = hand->id;
    hand->worker = *Worker::Create(std::move(config),
                                   {.workload = *hand->workload,
                                    .transport = *hand->transport,
                                    .storage = *storage_,
                                    .clock = clock_,
                                    .registry = *hand->registry,
                                    .notify = [this] { changed_.NotifyAll(); },
                                    .on_view = nullptr,
                                    .on_hung = {},
                                    .own_loop = dynamic_cast<OwnLoop*>(hand->workload.get())});
    Hand* raw = hand.get();
    hand->thread = std::thread([this, raw] {
      const absl::Status end = raw->worker->Run();
      sync::MutexLock lock(mutex_);
      raw->end = end;
      raw->ended = true;
      changed_.NotifyAll();
    });
    hands_.push_back(std::move(hand));
    return static_cast<int>(hands_.size()) - 1;
  }

  // Publishes a view of these workers; it becomes the newest.
  void PublishNow(const std::vector<int>& workers, bool restore = false) {
    membership::View view = NextView(workers);
    view.groups.front().restore = restore;
    Publish(std::move(view));
  }
  void PublishAtBoundary(const std::vector<int>& workers) {
    membership::View view = NextView(workers);
    view.at_boundary = true;
    view.from = directive_.view->number;
    Publish(std::move(view));
  }
  void SetSettings(const v1alpha1::Stop& stop, bool halt) {
    v1alpha1::Settings settings;
    settings.set_generation(directive_.settings.generation + 1);
    *settings.mutable_stop() = stop;
    settings.set_halt(halt);
    directive_.settings = {
        .generation = settings.generation(), .halt = halt, .values = settings.SerializeAsString()};
    Direct();
  }
  void AskForCheckpoint() {
    ++directive_.checkpoint_turn;
    Direct();
  }
  void Release(int worker) {
    At(worker).released = true;
    Direct();
  }
  void FinishAll() {
    directive_.finished = true;
    Direct();
  }
  // An own loop's answers have changed.
  void Nudge(int worker) { At(worker).worker->Nudge(); }
  void Terminate(int worker) { At(worker).worker->Terminate(); }
  // From now on it hears nothing from the coordinator.
  void CutOff(int worker) { At(worker).crashed = true; }
  // As kill -9: its connections break and it is never heard again.
  void Crash(int worker) {
    At(worker).crashed = true;
    At(worker).worker->GraceOver();
  }

  membership::Report ReportOf(int worker) { return At(worker).worker->MakeReport(); }
  // All that it ever sent and received, in whole frames.
  transport::Traffic TrafficOf(int worker) { return At(worker).transport->ledger().Total(); }
  v1alpha1::TrainingReport TrainingOf(int worker) {
    v1alpha1::TrainingReport training;
    training.ParseFromString(ReportOf(worker).training.bytes);
    return training;
  }

  // Waits until it holds; false after 20 s.
  bool Await(const std::function<bool()>& condition) {
    const net::Deadline deadline = net::Deadline::After(absl::Seconds(20));
    while (!condition()) {
      if (deadline.Expired()) return false;
      sync::MutexLock lock(mutex_);
      changed_.WaitFor(mutex_, absl::Milliseconds(1));
    }
    return true;
  }
  bool AwaitStep(int worker, int64_t settled) {
    return Await([&] { return ReportOf(worker).settled_step >= settled; });
  }
  bool AwaitPhase(int worker, membership::Phase phase) {
    return Await([&] { return ReportOf(worker).phase == phase; });
  }
  bool AwaitEnd(int worker) {
    return Await([&] {
      sync::MutexLock lock(mutex_);
      return At(worker).ended;
    });
  }
  // The digest of the model, once training has ended; "" if it does not.
  std::string AwaitModel(int worker) {
    if (!Await([&] { return TrainingOf(worker).has_result(); })) return "";
    return TrainingOf(worker).result().model().sha256();
  }
  // What Run returned.
  absl::Status EndOf(int worker) {
    sync::MutexLock lock(mutex_);
    return At(worker).end;
  }

 private:
  struct Hand {
    membership::MemberId id;
    std::unique_ptr<workload::Workload> workload;
    std::unique_ptr<transport::Transport> transport;
    std::unique_ptr<metrics::Registry> registry;
    std::unique_ptr<Worker> worker;
    std::thread thread;
    bool crashed = false;  // or cut off
    bool released = false;
    bool ended = false;
    absl::Status end;
  };
  std::unique_ptr<workload::Workload> NewWorkload(const std::string& numeric_identity) const {
    if (make_) return make_(numeric_identity);
    return std::make_unique<workload::Classification>(
        *data::LoadDatasets(spec_),
        std::make_unique<TinyEngine>(3, 4, static_cast<uint64_t>(spec_.seed())), numeric_identity);
  }
  Hand& At(int worker) { return *hands_[static_cast<size_t>(worker)]; }

  membership::View NextView(const std::vector<int>& workers) {
    const auto number = membership::MakeViewNumber(directive_.incarnation, ++epoch_);
    std::vector<membership::ViewMember> members;
    std::map<membership::MemberId, membership::ViewNumber> joined;
    for (int worker : workers) {
      const membership::MemberId& id = At(worker).id;
      const auto before = joined_.find(id);
      joined[id] = before == joined_.end() ? number : before->second;
      members.push_back({.id = id,
                         .address = NameOf(id),
                         .joined = joined[id],
                         .pod = absl::StrCat("worker-", worker)});
    }
    joined_ = std::move(joined);
    return membership::ViewOfPeers(number, std::move(members));
  }
  void Publish(membership::View view) {
    directive_.view = std::move(view);
    Direct();
  }

  void Direct() {
    for (auto& hand : hands_) {
      if (hand->crashed) continue;
      membership::Directive directive = directive_;
      directive.released = hand->released;
      hand->worker->OnDirective(directive);
    }
  }

  const v1alpha1::TrainingJobSpec spec_;
  const std::string job_dir_;
  const MakeWorkload make_;
  const clock::SystemClock clock_;
  const std::unique_ptr<storage::BlobStore> storage_;
  sync::Mutex mutex_;  // of `ended` and `end`
  sync::Condition changed_;
  transport::InprocNetwork network_;
  std::vector<std::unique_ptr<Hand>> hands_;
  membership::Directive directive_;  // but for `released`
  std::map<membership::MemberId, membership::ViewNumber> joined_;
  uint64_t epoch_ = 0;
};

}  // namespace starling::worker
