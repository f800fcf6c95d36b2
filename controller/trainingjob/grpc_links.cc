// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/grpc_links.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/net/address.h"
#include "common/rpc/credentials.h"
#include "controller/resources/credentials.h"
#include "google/protobuf/util/message_differencer.h"
#include "starling/v1alpha1/membership.grpc.pb.h"

namespace starling::trainingjob {
namespace {

using google::protobuf::util::MessageDifferencer;

// What of a report is news that must be looked at now.
std::string Essence(const v1alpha1::CoordinatorReport& report) {
  std::string essence = absl::StrCat(
      report.boot_id(), "|", report.incarnation(), "|", report.newest_view(), "|",
      report.view_synced(), report.stopped(), report.training().has_result(), "|",
      report.training().failure(), "|", report.incidents_size(), "|",
      report.training().checkpoint().name(), "|", report.settings_generation(), "|",
      report.standby().incarnation(), report.standby().armed(), "|", report.trace_request());
  for (const v1alpha1::MemberStatus& member : report.members()) {
    absl::StrAppend(&essence, "|", member.id().pod_uid(), ",", member.id().start(), ",",
                    member.connected(), member.in_view(), member.drained(), ",", member.refused());
  }
  return essence;
}

std::string AddressOf(const Supervision& supervision, const GrpcLinkOptions& options) {
  return net::ToString({supervision.address, static_cast<std::uint16_t>(options.port)});
}

// What a link proves itself with; null: there is no seed to make it from.
std::shared_ptr<grpc::ChannelCredentials> CredentialsFor(const std::string& seed,
                                                         std::string_view job_uid, absl::Time now) {
  const auto identity = resources::MakeControllerIdentity(seed, job_uid, now);
  if (identity.ok()) return rpc::ChannelCredentials(*identity);
  log::Error("no credentials for a coordinator",
             {{"jobUid", std::string(job_uid)}, {"why", std::string(identity.status().message())}});
  return nullptr;
}

std::shared_ptr<grpc::Channel> Dial(const std::string& address, const std::string& peer,
                                    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  // A connection of its own for each attempt: the old one may be the trouble.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  rpc::ExpectPeer(arguments, peer);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace

// The stream to one coordinator pod, through as many calls as it takes. Thread-safe.
class GrpcCoordinatorLinks::Link : public std::enable_shared_from_this<Link> {
 public:
  Link(const GrpcCoordinatorLinks& owner, runtime::Key job, const Supervision& supervision,
       std::string_view job_uid)
      : clock_(owner.clock_),
        options_(owner.options_),
        on_report_(owner.on_report_),
        job_(std::move(job)),
        pod_uid_(supervision.pod_uid),
        address_(AddressOf(supervision, owner.options_)),
        peer_(tls::PeerName(resources::RoleName(resources::Role::kCoordinator), job_uid)),
        credentials_(CredentialsFor(options_.seed, job_uid, clock_.WallNow())),
        started_(clock_.Now()) {}

  bool Serves(const Supervision& supervision) const {
    return pod_uid_ == supervision.pod_uid && address_ == AddressOf(supervision, options_);
  }
  void Want(const Supervision& supervision) ABSL_LOCKS_EXCLUDED(mutex_);
  ObservedLink Look() const ABSL_LOCKS_EXCLUDED(mutex_);
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  // Destroys calls that have ended. Returns whether none is left.
  bool Sweep() ABSL_LOCKS_EXCLUDED(mutex_);
  // After Close(): until no call of this link is under way, or the timeout.
  void AwaitCalls(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Call;

  void StartCall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CallEnded(std::shared_ptr<Call> call) ABSL_LOCKS_EXCLUDED(mutex_);
  void Send() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeReport(Call& call, const v1alpha1::CoordinatorReport& report)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const clock::Clock& clock_;
  const GrpcLinkOptions options_;
  const std::function<void(const runtime::Key&)> on_report_;
  const runtime::Key job_;
  const std::string pod_uid_;
  const std::string address_;
  const std::string peer_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const absl::Time started_;

  mutable sync::Mutex mutex_;
  std::shared_ptr<Call> call_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_dial_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::optional<absl::Time> heard_ ABSL_GUARDED_BY(mutex_);
  v1alpha1::CoordinatorReport report_ ABSL_GUARDED_BY(mutex_);
  std::string former_boot_id_ ABSL_GUARDED_BY(mutex_);
  absl::Duration outage_ ABSL_GUARDED_BY(mutex_);
  std::string essence_ ABSL_GUARDED_BY(mutex_);
  absl::Time notified_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  Supervision wanted_ ABSL_GUARDED_BY(mutex_);
  bool news_ ABSL_GUARDED_BY(mutex_) = false;  // not sent yet
  absl::Time sent_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::int64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;  // under way, the cancelled ones included
  sync::Condition idle_;
  std::vector<std::shared_ptr<Call>> ended_ ABSL_GUARDED_BY(mutex_);
};

// One call, with its channel. Its members are guarded by the link's mutex, except `in_`, which
// belongs to the read that is under way. It is destroyed by the ticker, never in a callback: the
// last channel of a process joins the threads that callbacks run on.
class GrpcCoordinatorLinks::Link::Call final
    : public grpc::ClientBidiReactor<v1alpha1::ControllerMessage, v1alpha1::CoordinatorReport>,
      public std::enable_shared_from_this<Call> {
 public:
  explicit Call(std::shared_ptr<Link> link)
      : link_(std::move(link)),
        channel_(Dial(link_->address_, link_->peer_, link_->credentials_)),
        stub_(v1alpha1::CoordinatorControl::NewStub(channel_)) {}

  void Start(absl::Time now) {
    self_ = shared_from_this();
    dialled = now;
    stub_->async()->Supervise(&context_, this);
    AddHold();  // for writes from outside, until the last read
    StartRead(&in_);
    grpc::ClientBidiReactor<v1alpha1::ControllerMessage, v1alpha1::CoordinatorReport>::StartCall();
  }

  void Write(v1alpha1::ControllerMessage message) {
    out_ = std::move(message);
    writing = true;
    StartWrite(&out_);
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (ok) {
      if (!link_->TakeReport(*this, in_)) Cancel();
      StartRead(&in_);
      return;
    }
    {
      sync::MutexLock lock(link_->mutex_);
      over = true;
    }
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    sync::MutexLock lock(link_->mutex_);
    writing = false;
    if (ok && link_->call_.get() == this) link_->Send();
  }

  void OnDone(const grpc::Status& status) override {
    if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
        status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
      log::Warning("coordinator refuses the controller",
                   {{"job", link_->job_.ToString()}, {"why", status.error_message()}});
    }
    link_->CallEnded(std::move(self_));
  }

  absl::Time dialled;
  bool answered = false;
  std::string boot_id;        // of the process at the other end
  std::uint64_t granted = 0;  // the incarnation that it was told of last
  bool writing = false;
  bool over = false;

 private:
  const std::shared_ptr<Link> link_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1alpha1::CoordinatorControl::Stub> stub_;
  grpc::ClientContext context_;
  v1alpha1::ControllerMessage out_;
  v1alpha1::CoordinatorReport in_;
  std::shared_ptr<Call> self_;
};

void GrpcCoordinatorLinks::Link::Want(const Supervision& supervision) {
  sync::MutexLock lock(mutex_);
  const auto same = [](const auto& a, const auto& b) {
    return a.has_value() == b.has_value() && (!a.has_value() || MessageDifferencer::Equals(*a, *b));
  };
  if (!same(wanted_.desired, supervision.desired) || wanted_.boot_id != supervision.boot_id ||
      !same(wanted_.grant, supervision.grant)) {
    news_ = true;
  }
  wanted_ = supervision;
  Send();
}

ObservedLink GrpcCoordinatorLinks::Link::Look() const {
  sync::MutexLock lock(mutex_);
  ObservedLink seen;
  seen.pod_uid = pod_uid_;
  seen.heard = heard_.has_value();
  seen.silent = clock_.Now() - heard_.value_or(started_);
  seen.report = report_;
  seen.former_boot_id = former_boot_id_;
  seen.outage = outage_;
  return seen;
}

void GrpcCoordinatorLinks::Link::StartCall() {
  ++calls_;
  call_ = std::make_shared<Call>(shared_from_this());
  call_->Start(clock_.Now());
}

void GrpcCoordinatorLinks::Link::CallEnded(std::shared_ptr<Call> call) {
  sync::MutexLock lock(mutex_);
  if (call_ == call) {
    call_ = nullptr;
    next_dial_ = clock_.Now() + options_.redial;
  }
  ended_.push_back(std::move(call));
  --calls_;
  idle_.NotifyAll();
}

bool GrpcCoordinatorLinks::Link::Sweep() {
  std::vector<std::shared_ptr<Call>> ended;
  sync::MutexLock lock(mutex_);
  ended.swap(ended_);
  return calls_ == 0;
}

void GrpcCoordinatorLinks::Link::Tick() {
  Sweep();
  sync::MutexLock lock(mutex_);
  if (closed_) return;
  const absl::Time now = clock_.Now();
  if (call_ == nullptr) {
    if (now >= next_dial_ && credentials_ != nullptr) StartCall();
    return;
  }
  const absl::Time last = call_->answered ? heard_.value_or(call_->dialled) : call_->dialled;
  if (now - last > (call_->answered ? options_.silence : options_.answer)) {
    call_->Cancel();
    StartCall();  // the old call ends by itself and is no longer listened to
    return;
  }
  Send();
}

void GrpcCoordinatorLinks::Link::Send() {
  if (call_ == nullptr || call_->writing || call_->over || !call_->answered) return;
  // A process that started in between is told nothing that was meant for its predecessor.
  if (wanted_.boot_id.empty() || call_->boot_id != wanted_.boot_id) return;
  v1alpha1::ControllerMessage message;
  if (wanted_.grant.has_value() && wanted_.grant->incarnation() > call_->granted) {
    *message.mutable_grant() = *wanted_.grant;
    call_->granted = wanted_.grant->incarnation();
    news_ = true;
  } else if (wanted_.desired.has_value() && (news_ || clock_.Now() - sent_ >= options_.repeat)) {
    v1alpha1::Desired& desired = *message.mutable_desired();
    desired = *wanted_.desired;
    desired.set_lease_transition(options_.lease_transition);
    desired.set_sequence(++sequence_);
    sent_ = clock_.Now();
    news_ = false;
  } else {
    return;
  }
  call_->Write(std::move(message));
}

bool GrpcCoordinatorLinks::Link::TakeReport(Call& call, const v1alpha1::CoordinatorReport& report) {
  bool notify = false;
  {
    sync::MutexLock lock(mutex_);
    if (call_.get() != &call || closed_) return false;
    const absl::Time now = clock_.Now();
    if (!call.answered || call.boot_id != report.boot_id()) {
      call.answered = true;
      call.boot_id = report.boot_id();
      call.granted = 0;
      news_ = true;
    }
    if (heard_.has_value() && report_.boot_id() != report.boot_id()) {
      former_boot_id_ = report_.boot_id();
      outage_ = now - *heard_;
    }
    heard_ = now;
    report_ = report;
    std::string essence = Essence(report);
    notify = essence != essence_ || now - notified_ >= options_.notify;
    if (notify) {
      essence_ = std::move(essence);
      notified_ = now;
    }
    Send();
  }
  if (notify) on_report_(job_);
  return true;
}

void GrpcCoordinatorLinks::Link::Close() {
  sync::MutexLock lock(mutex_);
  closed_ = true;
  if (call_ != nullptr) call_->Cancel();
  call_ = nullptr;
}

void GrpcCoordinatorLinks::Link::AwaitCalls(absl::Duration timeout) {
  sync::MutexLock lock(mutex_);
  while (calls_ > 0) {
    if (!idle_.WaitFor(mutex_, timeout)) return;
  }
}

GrpcCoordinatorLinks::GrpcCoordinatorLinks(const clock::Clock& clock, GrpcLinkOptions options,
                                           std::function<void(const runtime::Key&)> on_report)
    : clock_(clock),
      options_(std::move(options)),
      on_report_(std::move(on_report)),
      ticker_([this] { Tick(); }) {}

GrpcCoordinatorLinks::~GrpcCoordinatorLinks() {
  {
    sync::MutexLock lock(mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  ticker_.join();
  Links links;
  {
    sync::MutexLock lock(mutex_);
    links = AllLinks();
    links.insert(links.end(), closing_.begin(), closing_.end());
    links_.clear();
    closing_.clear();
  }
  for (const std::shared_ptr<Link>& link : links) link->Close();
  for (const std::shared_ptr<Link>& link : links) {
    link->AwaitCalls(absl::Seconds(2));
    link->Sweep();
  }
}

GrpcCoordinatorLinks::Links GrpcCoordinatorLinks::AllLinks() const {
  Links all;
  for (const auto& [job, links] : links_) all.insert(all.end(), links.begin(), links.end());
  return all;
}

void GrpcCoordinatorLinks::Supervise(const runtime::Key& job,
                                     const std::vector<Supervision>& supervisions,
                                     std::string_view job_uid) {
  Links kept;
  Links old;
  {
    sync::MutexLock lock(mutex_);
    if (const auto known = links_.find(job); known != links_.end()) {
      old = std::move(known->second);
      links_.erase(known);
    }
    for (const Supervision& supervision : supervisions) {
      const auto found = std::find_if(old.begin(), old.end(),
                                      [&](const auto& link) { return link->Serves(supervision); });
      if (found == old.end()) {
        kept.push_back(std::make_shared<Link>(*this, job, supervision, job_uid));
      } else {
        kept.push_back(*found);
        old.erase(found);
      }
    }
    closing_.insert(closing_.end(), old.begin(), old.end());
    if (kept.empty() && old.empty()) return;
    if (!kept.empty()) links_[job] = kept;
    changed_.NotifyAll();
  }
  for (const std::shared_ptr<Link>& link : old) link->Close();
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i]->Want(supervisions[i]);
}

std::vector<ObservedLink> GrpcCoordinatorLinks::Look(const runtime::Key& job) const {
  Links links;
  {
    sync::MutexLock lock(mutex_);
    const auto found = links_.find(job);
    if (found != links_.end()) links = found->second;
  }
  std::vector<ObservedLink> seen;
  seen.reserve(links.size());
  for (const std::shared_ptr<Link>& link : links) seen.push_back(link->Look());
  return seen;
}

GrpcCoordinatorLinks::Counts GrpcCoordinatorLinks::Count() const {
  Links links;
  {
    sync::MutexLock lock(mutex_);
    links = AllLinks();
  }
  Counts counts;
  for (const std::shared_ptr<Link>& link : links) {
    const ObservedLink seen = link->Look();
    ++(seen.heard && seen.silent <= options_.silence ? counts.reporting : counts.silent);
  }
  return counts;
}

void GrpcCoordinatorLinks::Tick() {
  while (true) {
    Links links;
    Links closing;
    {
      sync::MutexLock lock(mutex_);
      while (!stopped_ && links_.empty() && closing_.empty()) changed_.Wait(mutex_);
      if (stopped_) return;
      links = AllLinks();
      closing.swap(closing_);
    }
    for (const std::shared_ptr<Link>& link : links) link->Tick();
    std::erase_if(closing, [](const std::shared_ptr<Link>& link) { return link->Sweep(); });
    sync::MutexLock lock(mutex_);
    closing_.insert(closing_.end(), closing.begin(), closing.end());
    if (!stopped_) changed_.WaitFor(mutex_, options_.tick);
  }
}

}  // namespace starling::trainingjob
