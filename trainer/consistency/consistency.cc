// SPDX-License-Identifier: Apache-2.0
#include "trainer/consistency/consistency.h"

#include <algorithm>

namespace starling::consistency {
namespace {

struct Make {
  Rules rules;
  std::unique_ptr<Consistency> operator()(const BulkSynchronous& options) const {
    return MakeBulkSynchronous(options, rules);
  }
  std::unique_ptr<Consistency> operator()(const Asynchronous&) const {
    return MakeStaleSynchronous(std::nullopt, rules);
  }
  std::unique_ptr<Consistency> operator()(const BoundedDelay& options) const {
    return MakeBoundedDelay(options, rules);
  }
  std::unique_ptr<Consistency> operator()(const StaleSynchronous& options) const {
    return MakeStaleSynchronous(options.staleness, rules);
  }
  std::unique_ptr<Consistency> operator()(const EagerStaleSynchronous& options) const {
    return MakeStaleSynchronous(options.staleness, rules);
  }
  std::unique_ptr<Consistency> operator()(const BackupWorkers& options) const {
    return MakeBackupWorkers(options, rules);
  }
  std::unique_ptr<Consistency> operator()(const SoftSync& options) const {
    return MakeSoftSync(options, rules);
  }
};

void Encode(const Contribution& contribution, bytes::Writer& out) {
  Encode(contribution.client, out);
  out.Put(contribution.clock);
  out.Put(static_cast<std::uint8_t>(contribution.completes));
  out.Put(contribution.read);
  out.Put(contribution.weight);
  out.Put(contribution.tag);
  out.Put(static_cast<std::uint64_t>(contribution.others.size()));
  for (const Version read : contribution.others) out.Put(read);
  out.Put(contribution.lease);
  out.Put(contribution.leases);
}

Contribution DecodeContribution(bytes::Reader& in) {
  Contribution contribution;
  contribution.client = DecodeClient(in);
  contribution.clock = in.Get<Clock>();
  contribution.completes = in.Get<std::uint8_t>() != 0;
  contribution.read = in.Get<Version>();
  contribution.weight = in.Get<double>();
  contribution.tag = in.Get<std::int64_t>();
  for (std::uint64_t left = in.GetCount(8); left > 0; --left) {
    contribution.others.push_back(in.Get<Version>());
  }
  contribution.lease = in.Get<Lease>();
  contribution.leases = in.Get<Lease>();
  return contribution;
}

}  // namespace

std::unique_ptr<Consistency> MakeConsistency(const Options& options, Rules rules) {
  return std::visit(Make{rules}, options);
}

std::int64_t Staleness::total() const {
  std::int64_t total = 0;
  for (const auto& [staleness, count] : counts_) total += count;
  return total;
}

double Staleness::Mean() const {
  double sum = 0;
  for (const auto& [staleness, count] : counts_) {
    sum += static_cast<double>(staleness) * static_cast<double>(count);
  }
  return counts_.empty() ? 0 : sum / static_cast<double>(total());
}

std::vector<Batch> Consistency::OnView(const std::vector<Client>& clients) {
  clocks_.OnView(clients);
  ViewChanged();
  std::vector<Batch> ready;
  Gather(ready);
  return ready;
}

std::vector<Batch> Consistency::OnStart(const Client& client, Clock clock) {
  clocks_.Advance(client, clock);
  Started(clock);
  std::vector<Batch> ready;
  Gather(ready);
  return ready;
}

std::vector<Batch> Consistency::OnSkip(const Client& client, Clock clock) {
  clocks_.Advance(client, clock + 1);
  Completed(client);
  Skipped(clock);
  std::vector<Batch> ready;
  Gather(ready);
  return ready;
}

std::vector<Batch> Consistency::OnRest(const Client& client) {
  clocks_.Rest(client);
  Rested(client);
  std::vector<Batch> ready;
  Gather(ready);
  return ready;
}

std::vector<Batch> Consistency::OnWake(const Client& client) {
  if (clocks_.Rests(client)) {
    clocks_.Wake(client);
    Woken(client);
  }
  std::vector<Batch> ready;
  Gather(ready);
  return ready;
}

Verdict Consistency::OnPush(const Contribution& contribution) {
  return OnAggregate({&contribution, 1});
}

Verdict Consistency::OnAggregate(std::span<const Contribution> parts) {
  Verdict verdict;
  Contribution whole = parts.front();
  for (const Contribution& part : parts.subspan(1)) {
    whole.weight += part.weight;
    whole.others.push_back(part.read);
  }
  const Contribution& lowest = *std::ranges::min_element(parts, {}, &Contribution::lease);
  whole.lease = lowest.lease;
  whole.leases = lowest.leases;
  for (const Contribution& part : parts) verdict.accepted = verdict.accepted && Accepts(part);
  if (verdict.accepted) {
    for (const Contribution& part : parts) Taken(part);
    held_.push_back(std::move(whole));
  }
  for (const Contribution& part : parts) {
    if (!part.completes) continue;
    clocks_.Advance(part.client, part.clock + 1);
    Completed(part.client);
  }
  Gather(verdict.ready);
  return verdict;
}

bool Consistency::Accepts(const Contribution& /*contribution*/) const { return true; }

Clock Consistency::StartOf(const Client& client) const { return clocks_.Of(client).value_or(0); }

Batch Consistency::Apply(std::size_t count) {
  Batch batch;
  const auto end = held_.begin() + static_cast<std::ptrdiff_t>(count);
  batch.members.assign(held_.begin(), end);
  held_.erase(held_.begin(), end);
  const auto count_one = [&](Version read) {
    batch.staleness.push_back(version_ - read);
    staleness_.Add(version_ - read);
  };
  for (const Contribution& member : batch.members) {
    count_one(member.read);
    for (const Version read : member.others) count_one(read);
  }
  ++version_;
  return batch;
}

void Consistency::Save(bytes::Writer& out) const {
  clocks_.Save(out);
  out.Put(version_);
  out.Put(static_cast<std::uint64_t>(held_.size()));
  for (const Contribution& contribution : held_) Encode(contribution, out);
  SaveMore(out);
}

void Consistency::Load(bytes::Reader& in) {
  clocks_.Load(in);
  version_ = in.Get<Version>();
  held_.clear();
  for (std::uint64_t left = in.GetCount(81); left > 0; --left) {
    held_.push_back(DecodeContribution(in));
  }
  LoadMore(in);
}

}  // namespace starling::consistency
