// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/convert.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "starling/v1alpha1/membership.pb.h"

namespace starling::membership {
namespace {

namespace pb = v1alpha1;

template <typename Repeated>
void PutIds(const std::vector<MemberId>& from, Repeated* to) {
  for (const MemberId& id : from) Put(id, *to->Add());
}
template <typename Repeated>
std::vector<MemberId> GetIds(const Repeated& from) {
  std::vector<MemberId> ids;
  ids.reserve(static_cast<std::size_t>(from.size()));
  for (const pb::MemberId& id : from) ids.push_back(FromProto(id));
  return ids;
}

void Put(const ViewMember& from, pb::ViewMember& to) {
  Put(from.id, *to.mutable_id());
  to.set_address(from.address);
  to.set_joined(from.joined);
  to.set_pod(from.pod);
  to.set_node(from.node);
  to.set_role(static_cast<pb::ViewMember::Role>(from.role));
}
ViewMember Get(const pb::ViewMember& from) {
  const Role role = from.role() == pb::ViewMember::SERVER ? Role::kServer : Role::kWorker;
  return {FromProto(from.id()), from.address(), from.joined(), from.pod(), from.node(), role};
}

void Put(const PastView& from, pb::PastView& to) {
  to.set_number(from.number);
  PutIds(from.members, to.mutable_members());
}
PastView Get(const pb::PastView& from) { return {from.number(), GetIds(from.members())}; }

void Put(const ReplicaGroup& from, pb::ReplicaGroup& to) {
  to.set_epoch(from.epoch);
  PutIds(from.members, to.mutable_members());
  for (const PastView& past : from.since) Put(past, *to.add_since());
  to.mutable_waived()->Add(from.waived.begin(), from.waived.end());
  to.set_restore(from.restore);
  to.set_by_load(from.by_load);
}
ReplicaGroup Get(const pb::ReplicaGroup& from) {
  ReplicaGroup group;
  group.epoch = from.epoch();
  group.members = GetIds(from.members());
  for (const pb::PastView& past : from.since()) group.since.push_back(Get(past));
  group.waived.assign(from.waived().begin(), from.waived().end());
  group.restore = from.restore();
  group.by_load = from.by_load();
  return group;
}

void Put(const View& from, pb::View& to) {
  to.set_number(from.number);
  to.set_at_boundary(from.at_boundary);
  to.set_from(from.from);
  for (const ViewMember& member : from.members) Put(member, *to.add_members());
  for (const ReplicaGroup& group : from.groups) Put(group, *to.add_groups());
}
View Get(const pb::View& from) {
  View view;
  view.number = from.number();
  view.at_boundary = from.at_boundary();
  view.from = from.from();
  for (const pb::ViewMember& member : from.members()) view.members.push_back(Get(member));
  for (const pb::ReplicaGroup& group : from.groups()) view.groups.push_back(Get(group));
  return view;
}

void Put(const Settings& from, pb::Settings& to) {
  to.ParseFromString(from.values);
  to.set_generation(from.generation);
  to.set_halt(from.halt);
}

void Put(const Agreed& from, pb::Agreed& to) {
  Put(from.settings, *to.mutable_settings());
  to.set_checkpoint_turn(from.checkpoint_turn);
}
Agreed Get(const pb::Agreed& from) { return {FromProto(from.settings()), from.checkpoint_turn()}; }

void Put(const LastExit& from, pb::LastExit& to) {
  to.set_exit_code(from.exit_code);
  to.set_signal(from.signal);
  to.set_log_tail(from.log_tail);
  to.set_unix_nanos(from.unix_nanos);
}

void Put(const Standing& from, pb::Standing& to) {
  to.set_kind(static_cast<pb::Standing::Kind>(from.kind));
  to.set_where(from.where);
  to.set_seconds(absl::ToDoubleSeconds(from.since));
  to.set_usual_seconds(absl::ToDoubleSeconds(from.usual));
  to.set_stretches(from.stretches);
  to.set_thread(from.thread);
}
Standing Get(const pb::Standing& from) {
  return {.kind = static_cast<Standing::Kind>(from.kind()),
          .where = from.where(),
          .since = absl::Seconds(from.seconds()),
          .usual = absl::Seconds(from.usual_seconds()),
          .stretches = from.stretches(),
          .thread = from.thread()};
}

void Put(const Pod& from, pb::Pod& to) {
  to.set_uid(from.uid);
  to.set_name(from.name);
  to.set_role(from.role);
  to.set_index(from.index);
  to.set_ip(from.ip);
  to.set_state(static_cast<pb::Pod::State>(from.state));
  to.set_node(from.node);
}
Pod Get(const pb::Pod& from) {
  const PodState state = from.state() == pb::Pod::TERMINATED ? PodState::kTerminated
                         : from.state() == pb::Pod::DRAINING ? PodState::kDraining
                                                             : PodState::kLive;
  return {from.uid(), from.name(), from.role(), from.index(), from.ip(), state, from.node()};
}

// Whom a shadow is for is not its standby's to know.
void Put(const Desired& from, pb::Desired& to) {
  to.set_workers(from.workers);
  to.set_min_workers(from.min_workers);
  to.set_servers(from.servers);
  to.set_min_servers(from.min_servers);
  for (const Pod& pod : from.pods) Put(pod, *to.add_pods());
  Put(from.settings, *to.mutable_settings());
  to.set_checkpoint_request(from.checkpoint_request);
  to.set_trace_request(from.trace_request);
  to.set_finished(from.finished);
}

void Put(absl::Time from, google::protobuf::Timestamp& to) {
  const std::int64_t nanos = absl::ToUnixNanos(from);
  to.set_seconds(nanos / 1'000'000'000);
  to.set_nanos(static_cast<std::int32_t>(nanos % 1'000'000'000));
}

// The supervisor knows best when the process ended; what it says is believed as far as our own
// observation allows, since its clock may be another machine's.
absl::Duration DetectionOf(const IncidentRecord& incident, absl::Duration wall_minus_machine) {
  if (!incident.exit || incident.exit->unix_nanos == 0) return incident.detection;
  const absl::Duration since =
      incident.time + wall_minus_machine - absl::FromUnixNanos(incident.exit->unix_nanos);
  return since > absl::ZeroDuration() && since <= incident.silence ? since : incident.detection;
}

void Put(const IncidentRecord& from, absl::Duration wall_minus_machine, pb::Incident& to) {
  Put(from.time + wall_minus_machine, *to.mutable_time());
  to.set_reason(from.reason);
  to.set_pod(from.pod);
  if (from.exit) {
    if (from.exit->signal != 0)
      to.set_signal(from.exit->signal);
    else
      to.set_exit_code(from.exit->exit_code);
    to.set_log_tail(from.exit->log_tail);
  }
  to.set_message(from.message);
  to.set_detection_seconds(absl::ToDoubleSeconds(DetectionOf(from, wall_minus_machine)));
  if (from.recovery) to.set_recovery_seconds(absl::ToDoubleSeconds(*from.recovery));
  // Until training goes on nobody knows what is repeated: a coordinator that dies before has not
  // said that nothing is.
  if (from.recovery || from.repeated_steps > 0) to.set_repeated_steps(from.repeated_steps);
  if (from.resumed_step) to.set_resumed_step(*from.resumed_step);
}

void Put(const Training& from, pb::TrainingReport& to) {
  to.ParseFromString(from.bytes);
  if (!from.failure.empty()) to.set_failure(from.failure);
}

template <typename Message>
bool Parse(std::string_view bytes, Message& message) {
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

void Put(const MemberId& from, pb::MemberId& to) {
  to.set_pod_uid(from.pod_uid);
  to.set_start(from.start);
}
pb::MemberId ToProto(const MemberId& from) {
  pb::MemberId to;
  Put(from, to);
  return to;
}

MemberId FromProto(const pb::MemberId& from) { return {from.pod_uid(), from.start()}; }

void Put(const StateId& from, pb::StateId& to) {
  to.set_view(from.view);
  to.set_step(from.step);
}
StateId FromProto(const pb::StateId& from) { return {from.view(), from.step()}; }

pb::Report ToProto(const Report& report) {
  pb::Report to;
  Put(report.id, *to.mutable_id());
  to.set_highest_incarnation(report.highest_incarnation);
  to.set_fence(report.fence);
  if (report.installed) Put(*report.installed, *to.mutable_installed());
  if (report.candidate) Put(*report.candidate, *to.mutable_candidate());
  if (report.state) Put(*report.state, *to.mutable_state());
  to.set_phase(static_cast<pb::Phase>(report.phase));
  to.set_settled_step(report.settled_step);
  PutIds(report.unreachable, to.mutable_unreachable());
  to.set_leaving(report.leaving);
  if (report.last_exit) Put(*report.last_exit, *to.mutable_last_exit());
  to.set_numeric_identity(report.numeric_identity);
  Put(report.training, *to.mutable_training());
  to.set_settings_generation(report.settings_generation);
  to.set_checkpoint_turn(report.checkpoint_turn);
  to.set_stopped(report.stopped);
  to.set_base_step(report.base_step);
  to.set_stepped(report.stepped);
  if (!report.parameter_server.empty()) {
    to.mutable_parameter_server()->ParseFromString(report.parameter_server);
  }
  Put(report.standing, *to.mutable_standing());
  return to;
}

Report FromProto(const pb::Report& from) {
  Report report;
  report.id = FromProto(from.id());
  report.highest_incarnation = from.highest_incarnation();
  report.fence = from.fence();
  if (from.has_installed()) report.installed = Get(from.installed());
  if (from.has_candidate()) report.candidate = Get(from.candidate());
  if (from.has_state()) report.state = FromProto(from.state());
  report.phase = static_cast<Phase>(from.phase());
  report.settled_step = from.settled_step();
  report.unreachable = GetIds(from.unreachable());
  report.leaving = from.leaving();
  if (from.has_last_exit()) {
    report.last_exit = {from.last_exit().exit_code(), from.last_exit().signal(),
                        from.last_exit().log_tail(), from.last_exit().unix_nanos()};
  }
  report.numeric_identity = from.numeric_identity();
  report.training.bytes = from.training().SerializeAsString();
  report.training.has_result = from.training().has_result();
  report.training.failure = from.training().failure();
  report.settings_generation = from.settings_generation();
  report.checkpoint_turn = from.checkpoint_turn();
  report.stopped = from.stopped();
  report.base_step = from.base_step();
  report.stepped = from.stepped();
  report.parameter_server = from.parameter_server().SerializeAsString();
  report.standing = Get(from.standing());
  return report;
}

pb::Directive ToProto(const Directive& directive) {
  pb::Directive to;
  to.set_incarnation(directive.incarnation);
  if (directive.view) Put(*directive.view, *to.mutable_view());
  to.set_released(directive.released);
  to.set_superseded(directive.superseded);
  Put(directive.settings, *to.mutable_settings());
  to.set_checkpoint_turn(directive.checkpoint_turn);
  to.set_finished(directive.finished);
  if (!directive.parameter_server.empty()) {
    to.mutable_parameter_server()->ParseFromString(directive.parameter_server);
  }
  if (directive.hung) Put(*directive.hung, *to.mutable_hung());
  return to;
}

Directive FromProto(const pb::Directive& from) {
  Directive directive;
  directive.incarnation = from.incarnation();
  if (from.has_view()) directive.view = Get(from.view());
  directive.released = from.released();
  directive.superseded = from.superseded();
  directive.settings = FromProto(from.settings());
  directive.checkpoint_turn = from.checkpoint_turn();
  directive.finished = from.finished();
  directive.parameter_server = from.parameter_server().SerializeAsString();
  if (from.has_hung()) directive.hung = FromProto(from.hung());
  return directive;
}

Settings FromProto(const pb::Settings& from) {
  if (from.generation() == 0) return {};
  return {from.generation(), from.halt(), from.SerializeAsString()};
}

Grant FromProto(const pb::Grant& from) {
  Grant grant;
  grant.incarnation = from.incarnation();
  grant.boot_id = from.boot_id();
  for (const pb::Pod& pod : from.roster()) grant.roster.push_back(Get(pod));
  grant.newest_view = from.newest_view();
  grant.settled_step = from.settled_step();
  grant.follows = from.follows();
  return grant;
}

Desired FromProto(const pb::Desired& from) {
  Desired desired;
  desired.lease_transition = from.lease_transition();
  desired.sequence = from.sequence();
  desired.workers = from.workers();
  desired.min_workers = from.min_workers();
  desired.servers = from.servers();
  desired.min_servers = from.min_servers();
  for (const pb::Pod& pod : from.pods()) desired.pods.push_back(Get(pod));
  desired.settings = FromProto(from.settings());
  const google::protobuf::Duration& interval = from.settings().checkpoint().interval();
  desired.checkpoint_interval_ms = interval.seconds() * 1000 + interval.nanos() / 1'000'000;
  desired.checkpoint_request = from.checkpoint_request();
  desired.trace_request = from.trace_request();
  desired.finished = from.finished();
  if (from.has_standby()) {
    desired.standby = {from.standby().incarnation(), from.standby().uid(), from.standby().ip()};
  }
  return desired;
}

pb::Shadow ToProto(const Shadow& shadow) {
  pb::Shadow to;
  to.set_incarnation(shadow.incarnation);
  to.set_standby(shadow.standby);
  to.set_newest_view(shadow.newest_view);
  if (shadow.view) Put(*shadow.view, *to.mutable_view());
  to.set_settled_step(shadow.settled_step);
  Put(shadow.desired, *to.mutable_desired());
  return to;
}

Shadow FromProto(const pb::Shadow& from) {
  Shadow shadow;
  shadow.incarnation = from.incarnation();
  shadow.standby = from.standby();
  shadow.newest_view = from.newest_view();
  if (from.has_view()) shadow.view = Get(from.view());
  shadow.settled_step = from.settled_step();
  shadow.desired = FromProto(from.desired());
  return shadow;
}

pb::ShadowReply ToProto(const ShadowReply& reply) {
  pb::ShadowReply to;
  to.set_standby(reply.standby);
  to.set_incarnation(reply.incarnation);
  to.set_view(reply.view);
  to.set_leads(reply.leads);
  return to;
}

ShadowReply FromProto(const pb::ShadowReply& from) {
  return {from.standby(), from.incarnation(), from.view(), from.leads()};
}

pb::CoordinatorReport ToProto(const Summary& summary, absl::Duration wall_minus_machine) {
  pb::CoordinatorReport to;
  to.set_boot_id(summary.boot_id);
  to.set_incarnation(summary.incarnation);
  to.set_newest_view(summary.newest_view);
  to.set_settled_step(summary.settled_step);
  Put(summary.training, *to.mutable_training());
  for (const IncidentRecord& incident : summary.incidents) {
    Put(incident, wall_minus_machine, *to.add_incidents());
  }
  for (const MemberState& member : summary.members) {
    pb::MemberStatus& added = *to.add_members();
    Put(member.id, *added.mutable_id());
    added.set_pod(member.pod);
    added.set_phase(static_cast<pb::Phase>(member.phase));
    added.set_connected(member.connected);
    added.set_silent_seconds(absl::ToDoubleSeconds(member.silent));
    added.set_settled_step(member.settled_step);
    added.set_in_view(member.in_view);
    added.set_drained(member.drained);
    added.set_refused(member.refused);
  }
  to.set_view_synced(summary.view_synced);
  to.set_stopped(summary.stopped);
  to.set_settings_generation(summary.settings_generation);
  to.set_superseded(summary.superseded);
  to.set_waiting(summary.waiting);
  to.set_checkpoint_request(summary.checkpoint_request);
  to.set_checkpoint_request_step(summary.checkpoint_request_step);
  return to;
}

std::string EncodeSyncId(const SyncId& sync_id) {
  pb::SyncId to;
  to.set_view(sync_id.view);
  Put(sync_id.member, *to.mutable_member());
  if (sync_id.state) Put(*sync_id.state, *to.mutable_state());
  Put(sync_id.agreed, *to.mutable_agreed());
  if (sync_id.checkpoint) {
    Put(sync_id.checkpoint->name, *to.mutable_checkpoint()->mutable_name());
    Put(sync_id.checkpoint->agreed, *to.mutable_checkpoint()->mutable_agreed());
  }
  return to.SerializeAsString();
}

absl::StatusOr<SyncId> DecodeSyncId(std::string_view bytes) {
  pb::SyncId from;
  if (!Parse(bytes, from) || from.view() == 0 || from.member().pod_uid().empty()) {
    return absl::InvalidArgumentError("not a sync id: the peer speaks another version");
  }
  SyncId sync_id;
  sync_id.view = from.view();
  sync_id.member = FromProto(from.member());
  if (from.has_state()) sync_id.state = FromProto(from.state());
  sync_id.agreed = Get(from.agreed());
  if (from.has_checkpoint()) {
    sync_id.checkpoint =
        CheckpointOffer{FromProto(from.checkpoint().name()), Get(from.checkpoint().agreed())};
  }
  return sync_id;
}

std::string EncodeAgreed(const Agreed& agreed) {
  pb::Agreed to;
  Put(agreed, to);
  return to.SerializeAsString();
}

absl::StatusOr<Agreed> DecodeAgreed(std::string_view bytes) {
  pb::Agreed from;
  if (!Parse(bytes, from)) {
    return absl::InvalidArgumentError("the agreed settings of a checkpoint cannot be read");
  }
  return Get(from);
}

absl::StatusOr<pb::Settings> ParseSettings(const Settings& settings) {
  pb::Settings to;
  if (!Parse(settings.values, to)) {
    return absl::InvalidArgumentError("the settings of a directive cannot be read");
  }
  return to;
}

}  // namespace starling::membership
