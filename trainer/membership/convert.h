// SPDX-License-Identifier: Apache-2.0
// Between the plain values of types.h and the messages of membership.proto: the only file to change
// when a field is added to both. Nothing is checked here but what would break a machine: names of
// pods, sizes and numbers are judged where they are used.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/membership/summary.h"
#include "trainer/membership/types.h"

namespace starling::v1alpha1 {
class ControllerMessage;
class CoordinatorReport;
class Desired;
class Directive;
class Grant;
class MemberId;
class Report;
class Settings;
class Shadow;
class ShadowReply;
class StateId;
class View;
}  // namespace starling::v1alpha1

namespace starling::membership {

v1alpha1::Report ToProto(const Report& report);
v1alpha1::Directive ToProto(const Directive& directive);
// `wall_minus_machine`: added to the machine's times to get the time of day.
v1alpha1::CoordinatorReport ToProto(const Summary& summary, absl::Duration wall_minus_machine);
v1alpha1::Shadow ToProto(const Shadow& shadow);
v1alpha1::ShadowReply ToProto(const ShadowReply& reply);

// What other messages hold too.
void Put(const MemberId& from, v1alpha1::MemberId& to);
v1alpha1::MemberId ToProto(const MemberId& from);
void Put(const StateId& from, v1alpha1::StateId& to);
MemberId FromProto(const v1alpha1::MemberId& from);
StateId FromProto(const v1alpha1::StateId& from);

Report FromProto(const v1alpha1::Report& report);
Directive FromProto(const v1alpha1::Directive& directive);
Grant FromProto(const v1alpha1::Grant& grant);
Desired FromProto(const v1alpha1::Desired& desired);
Settings FromProto(const v1alpha1::Settings& settings);
Shadow FromProto(const v1alpha1::Shadow& shadow);
ShadowReply FromProto(const v1alpha1::ShadowReply& reply);

// Bytes for the data plane and for a checkpoint's manifest. Decoding answers InvalidArgument to
// anything that is not what the encoder wrote.
std::string EncodeSyncId(const SyncId& sync_id);
absl::StatusOr<SyncId> DecodeSyncId(std::string_view bytes);
std::string EncodeAgreed(const Agreed& agreed);
absl::StatusOr<Agreed> DecodeAgreed(std::string_view bytes);

// The values of `settings` as the message that they were made from; of an empty string, an empty
// message: the job file's own values are in force.
absl::StatusOr<v1alpha1::Settings> ParseSettings(const Settings& settings);

}  // namespace starling::membership
