// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/convert.h"

#include <algorithm>

#include "starling/v1alpha1/membership.pb.h"
#include "trainer/membership/convert.h"

namespace starling::parameter_server {
namespace {

namespace pb = v1alpha1;

void Put(const SlotPart& from, pb::SlotPart& to) {
  for (const MemberId& id : from.chain) Put(id, *to.add_chain());
  for (const membership::PastView& past : from.since) Put(past, *to.add_since());
  to.mutable_waived()->Add(from.waived.begin(), from.waived.end());
  to.set_restore(from.restore);
  to.set_by_load(from.by_load);
}
SlotPart Get(const pb::SlotPart& from) {
  SlotPart part;
  for (const pb::MemberId& id : from.chain()) part.chain.push_back(membership::FromProto(id));
  for (const pb::PastView& past : from.since()) {
    part.since.push_back(membership::FromProto(past));
  }
  part.waived.assign(from.waived().begin(), from.waived().end());
  part.restore = from.restore();
  part.by_load = from.by_load();
  return part;
}

}  // namespace

void Put(const JobView& from, pb::JobView& to) {
  to.Clear();
  to.set_number(from.number);
  for (const membership::ViewMember& server : from.servers) Put(server, *to.add_servers());
  for (const membership::ViewMember& client : from.clients) Put(client, *to.add_clients());
  for (const SlotPart& slot : from.slots) Put(slot, *to.add_slots());
}

JobView FromProto(const pb::JobView& from) {
  JobView view;
  view.number = from.number();
  for (const pb::ViewMember& server : from.servers())
    view.servers.push_back(membership::FromProto(server));
  for (const pb::ViewMember& client : from.clients())
    view.clients.push_back(membership::FromProto(client));
  for (const pb::SlotPart& slot : from.slots()) view.slots.push_back(Get(slot));
  return view;
}

void Put(const Layout& from, pb::ModelLayout& to) {
  to.set_parameters(from.parameters);
  to.set_samples(from.samples);
  to.set_fingerprint(from.fingerprint);
}

Layout FromProto(const pb::ModelLayout& from) {
  return {from.parameters(), from.samples(), from.fingerprint()};
}

void Put(const SlotReport& from, pb::SlotReport& to) {
  to.Clear();
  if (from.state) Put(*from.state, *to.mutable_state());
  to.set_cached(from.cached);
  to.set_lost(from.lost);
  to.set_load(from.load);
}

SlotReport FromProto(const pb::SlotReport& from) {
  SlotReport report;
  if (from.has_state()) report.state = membership::FromProto(from.state());
  report.cached = from.cached();
  report.lost = from.lost();
  report.load = std::max<std::int64_t>(0, from.load());
  return report;
}

void Put(const LeaseLedger& from, pb::SlotLedger& to) {
  to.clear_done();
  for (const auto& [first, end] : from.intervals()) {
    pb::LeaseRange& range = *to.add_done();
    range.set_first(first);
    range.set_end(end);
  }
}

LeaseLedger FromProto(const pb::SlotLedger& from) {
  LeaseLedger ledger;
  for (const pb::LeaseRange& range : from.done()) ledger.Add(range.first(), range.end());
  return ledger;
}

}  // namespace starling::parameter_server
