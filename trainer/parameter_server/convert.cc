// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/convert.h"

#include <algorithm>

#include "starling/v1alpha1/membership.pb.h"
#include "trainer/membership/convert.h"

namespace starling::parameter_server {

namespace pb = v1alpha1;

void Put(const Layout& from, pb::ModelLayout& to) {
  to.set_parameters(from.parameters);
  to.set_samples(from.samples);
  to.set_fingerprint(from.fingerprint);
  to.set_sparse(from.sparse);
  to.clear_held();
  for (const RowRange& range : from.held) {
    pb::FloatRange& added = *to.add_held();
    added.set_begin(static_cast<std::int64_t>(range.begin));
    added.set_end(static_cast<std::int64_t>(range.end));
  }
}

Layout FromProto(const pb::ModelLayout& from) {
  Layout layout{from.parameters(), from.samples(), from.fingerprint(), from.sparse()};
  for (const pb::FloatRange& range : from.held()) {
    // What is below 0 is refused with the layout: it becomes larger than any model.
    layout.held.push_back(
        {static_cast<std::uint64_t>(range.begin()), static_cast<std::uint64_t>(range.end())});
  }
  return layout;
}

void Put(const ShardReport& from, pb::ShardReport& to) {
  to.Clear();
  if (from.state) Put(*from.state, *to.mutable_state());
  to.set_cached(from.cached);
  to.set_lost(from.lost);
  to.set_load(from.load);
}

ShardReport FromProto(const pb::ShardReport& from) {
  ShardReport report;
  if (from.has_state()) report.state = membership::FromProto(from.state());
  report.cached = from.cached();
  report.lost = from.lost();
  report.load = std::max<std::int64_t>(0, from.load());
  return report;
}

void Put(const LeaseLedger& from, pb::ShardLedger& to) {
  to.clear_done();
  for (const auto& [first, end] : from.intervals()) {
    pb::LeaseRange& range = *to.add_done();
    range.set_first(first);
    range.set_end(end);
  }
}

LeaseLedger FromProto(const pb::ShardLedger& from) {
  LeaseLedger ledger;
  for (const pb::LeaseRange& range : from.done()) ledger.Add(range.first(), range.end());
  return ledger;
}

}  // namespace starling::parameter_server
