// SPDX-License-Identifier: Apache-2.0
// Between the plain values of this folder and the messages of membership.proto: the only file to
// change when a field is added to both.
#pragma once

#include "absl/status/statusor.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/parameter_server/shard_placement.h"

namespace starling::v1alpha1 {
class ModelLayout;
class ShardLedger;
class ShardReport;
}  // namespace starling::v1alpha1

namespace starling::parameter_server {

void Put(const Layout& from, v1alpha1::ModelLayout& to);
void Put(const ShardReport& from, v1alpha1::ShardReport& to);
void Put(const LeaseLedger& from, v1alpha1::ShardLedger& to);
Layout FromProto(const v1alpha1::ModelLayout& from);
ShardReport FromProto(const v1alpha1::ShardReport& from);
LeaseLedger FromProto(const v1alpha1::ShardLedger& from);

}  // namespace starling::parameter_server
