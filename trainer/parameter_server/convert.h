// SPDX-License-Identifier: Apache-2.0
// Between the plain values of this folder and the messages of membership.proto: the only file to
// change when a field is added to both.
#pragma once

#include "absl/status/statusor.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/parameter_server/slot_plan.h"

namespace starling::v1alpha1 {
class ModelLayout;
class SlotLedger;
class SlotReport;
}  // namespace starling::v1alpha1

namespace starling::parameter_server {

void Put(const Layout& from, v1alpha1::ModelLayout& to);
void Put(const SlotReport& from, v1alpha1::SlotReport& to);
void Put(const LeaseLedger& from, v1alpha1::SlotLedger& to);
Layout FromProto(const v1alpha1::ModelLayout& from);
SlotReport FromProto(const v1alpha1::SlotReport& from);
LeaseLedger FromProto(const v1alpha1::SlotLedger& from);

}  // namespace starling::parameter_server
