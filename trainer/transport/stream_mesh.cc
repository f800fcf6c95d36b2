// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/stream_mesh.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "trainer/transport/cores.h"

namespace starling::transport {
namespace {

timespec ToTimespec(std::int64_t nanoseconds) {
  return {static_cast<time_t>(nanoseconds / 1'000'000'000),
          static_cast<long>(nanoseconds % 1'000'000'000)};
}

// By rank; false for our own.
std::vector<bool> EachOf(const std::vector<std::unique_ptr<Stream>>& streams,
                         bool (Stream::*is)() const) {
  std::vector<bool> each;
  each.reserve(streams.size());
  for (const auto& stream : streams) each.push_back(stream != nullptr && ((*stream).*is)());
  return each;
}

int RanksHere(const std::vector<bool>& near) {
  return 1 + static_cast<int>(std::count(near.begin(), near.end(), true));
}

// Transfers that are kept in the order of their tickets; older ones that are open go to a map.
constexpr std::size_t kMostInOrder = 256;

}  // namespace

std::string PeerName(int rank, const Peer& peer) {
  return absl::StrCat("rank ", rank, " (", peer.member, " at ", peer.address, ")");
}

bool OnOneHost(const Peer& a, const Peer& b, const Shaping& shaping) {
  if (!shaping.enabled() || shaping.pods_per_host <= 1) return false;
  const std::string host = HostOf(a.pod, shaping.pods_per_host);
  return !host.empty() && host == HostOf(b.pod, shaping.pods_per_host);
}

StreamMesh::Drive::Drive(StreamMesh& mesh) : mesh_(mesh) {
  sync::MutexLock lock(mesh_.mutex_);
  STARLING_CHECK(!mesh_.driving_, "one thread at a time uses a mesh");
  mesh_.driving_ = true;
}

StreamMesh::Drive::~Drive() {
  sync::MutexLock lock(mesh_.mutex_);
  mesh_.driving_ = false;
  // A Cancel came while this thread was on its way out.
  if (!mesh_.failure_.ok()) mesh_.CloseLinks(kAborted);
}

StreamMesh::StreamMesh(std::uint64_t view, std::vector<Peer> members, int rank,
                       std::vector<std::unique_ptr<Stream>> streams, const Options& options,
                       Ledger& ledger, std::shared_ptr<HostCard> card)
    : view_(view),
      members_(std::move(members)),
      rank_(rank),
      near_(EachOf(streams, &Stream::shares_cores)),
      encrypted_(EachOf(streams, &Stream::encrypted)),
      datagrams_(EachOf(streams, &Stream::datagrams)),
      shaping_(options.shaping),
      spin_(LimitsOf(options.spin, RanksHere(near_), CoresHere())),
      window_(options.window) {
  shaper = Shaper(options.shaping, std::move(card));
  early_allowance = options.max_early_bytes;
  LinkOwner& owner = *this;
  for (int peer = 0; peer < size(); ++peer) {
    counters_.push_back(std::make_unique<TrafficCounter>());
    links_.push_back(nullptr);
    if (peer == rank_) continue;
    std::optional<Wire> wire;
    if (!OnOneHost(members_[rank_], members_[peer], shaping_)) {
      wire = WireBetween(members_[rank_].pod, members_[peer].pod, shaping_);
    }
    links_.back() =
        std::make_unique<Link>(std::move(streams[peer]), view_, PeerName(peer, members_[peer]),
                               wire, owner, *counters_.back(), ledger.Counter(member(peer)));
  }
}

StreamMesh::~StreamMesh() {
  const auto is_done = [](const Transfer& transfer) { return transfer.done; };
  const bool idle =
      std::all_of(transfers_.begin(), transfers_.end(), is_done) &&
      std::all_of(kept_.begin(), kept_.end(), [&](const auto& one) { return is_done(one.second); });
  // A peer that drops transfers without a farewell is treated as dead.
  CloseLinks(idle ? kOrderly : kSilent);
}

void StreamMesh::OnReceived(Ticket ticket, std::int64_t ready) {
  Transfer& transfer = At(ticket);
  transfer.done = true;
  transfer.ready = ready;
}

StreamMesh::Transfer& StreamMesh::At(Ticket ticket) {
  return ticket < first_ticket_ ? kept_.at(ticket) : transfers_[ticket - first_ticket_];
}

const StreamMesh::Transfer& StreamMesh::At(Ticket ticket) const {
  return ticket < first_ticket_ ? kept_.at(ticket) : transfers_[ticket - first_ticket_];
}

Ticket StreamMesh::NewTicket(int peer, bool receive, std::size_t bytes) {
  transfers_.push_back({peer, receive, bytes});
  return first_ticket_ + transfers_.size() - 1;
}

Link& StreamMesh::LinkTo(int peer) {
  STARLING_CHECK(peer >= 0 && peer < size() && peer != rank_, "a peer is another rank of the view");
  return *links_[peer];
}

Ticket StreamMesh::PostSend(int peer, Tag tag, std::span<const std::byte> data) {
  Link& link = LinkTo(peer);
  const Ticket ticket = NewTicket(peer, false, data.size());
  Drive drive(*this);
  if (failed_.load(std::memory_order_acquire)) return ticket;
  const bool first = !link.WantsWrite();
  link.PostSend(ticket, tag, data);
  if (first) {
    if (const auto written = link.Write(); !written.ok()) (void)Fail(peer, written.status());
  }
  return ticket;
}

Ticket StreamMesh::PostReceive(int peer, Tag tag, std::span<std::byte> data) {
  Link& link = LinkTo(peer);
  const Ticket ticket = NewTicket(peer, true, data.size());
  Drive drive(*this);
  if (failed_.load(std::memory_order_acquire)) return ticket;
  if (const auto posted = link.PostReceive(ticket, tag, data); !posted.ok()) {
    (void)Fail(peer, posted);
  }
  return ticket;
}

void StreamMesh::CheckUnwaited(Ticket ticket) const {
  const bool waited = ticket < first_ticket_
                          ? !kept_.contains(ticket)
                          : ticket >= first_ticket_ + transfers_.size() || At(ticket).waited;
  STARLING_CHECK(!waited, "a ticket is waited for once");
}

absl::Status StreamMesh::Wait(Ticket ticket, net::Deadline deadline) {
  CheckUnwaited(ticket);
  Drive drive(*this);
  RETURN_IF_ERROR(DriveUntilDone(ticket, deadline));
  Forget(ticket);
  return absl::OkStatus();
}

std::optional<Ticket> StreamMesh::Next(std::span<const Ticket> tickets) const {
  if (tickets.empty()) return std::nullopt;
  Ticket next = tickets.front();
  for (const Ticket ticket : tickets) {
    const Transfer& transfer = At(ticket);
    const Transfer& best = At(next);
    if (transfer.done && (!best.done || transfer.ready < best.ready)) next = ticket;
  }
  return next;
}

absl::StatusOr<std::optional<Ticket>> StreamMesh::WaitAny(std::span<const Ticket> tickets,
                                                          net::Deadline deadline) {
  for (const Ticket ticket : tickets) CheckUnwaited(ticket);
  std::int64_t idle_since = 0;
  Drive drive(*this);
  while (true) {
    if (failed_.load(std::memory_order_acquire)) return Fail(-1, absl::OkStatus());
    const auto done =
        std::find_if(tickets.begin(), tickets.end(), [&](Ticket one) { return IsDone(one); });
    if (done != tickets.end()) {
      const Ticket ticket = *done;
      Forget(ticket);
      return ticket;
    }
    if (woken_.load(std::memory_order_relaxed) && woken_.exchange(false)) return std::nullopt;
    ASSIGN_OR_RETURN(const bool moved, Progress());
    if (moved) {
      idle_since = 0;
      continue;
    }
    if (deadline.Expired()) return std::nullopt;
    if (Spin(idle_since)) continue;
    RETURN_IF_ERROR(Sleep(Next(tickets), deadline));
  }
}

absl::Status StreamMesh::WaitAll(net::Deadline deadline) {
  Drive drive(*this);
  while (!kept_.empty() || !transfers_.empty()) {
    const Ticket ticket = kept_.empty() ? first_ticket_ : kept_.begin()->first;
    RETURN_IF_ERROR(DriveUntilDone(ticket, deadline));
    Forget(ticket);
  }
  return status();
}

absl::StatusOr<std::string> StreamMesh::ReceiveMessage(int peer, Tag tag, std::size_t limit,
                                                       net::Deadline deadline) {
  Link& link = LinkTo(peer);
  const Ticket ticket = NewTicket(peer, true, 0);
  std::string message;
  Drive drive(*this);
  if (!failed_.load(std::memory_order_acquire)) {
    if (const auto posted = link.PostReceiveMessage(ticket, tag, &message, limit); !posted.ok()) {
      return Fail(peer, posted);
    }
  }
  RETURN_IF_ERROR(DriveUntilDone(ticket, deadline));
  Forget(ticket);
  return message;
}

void StreamMesh::Wake() {
  if (!woken_.exchange(true)) wake_.Signal();
}

void StreamMesh::Cancel(const absl::Status& reason) {
  STARLING_CHECK(!reason.ok(), "a cancellation has a reason");
  sync::MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = reason;
  failed_.store(true, std::memory_order_release);
  if (driving_) {
    wake_.Signal();
  } else {
    CloseLinks(kAborted);
  }
}

absl::Status StreamMesh::status() const {
  sync::MutexLock lock(mutex_);
  return failure_;
}

Traffic StreamMesh::traffic(int peer) const { return counters_[peer]->Read(); }

bool StreamMesh::IsDone(Ticket ticket) const {
  const Transfer& transfer = At(ticket);
  return transfer.done && (transfer.ready == 0 || transfer.ready <= MonotonicNanoseconds());
}

// A receive may stay open for the whole view; those that were posted after it must not stay as
// well.
void StreamMesh::Forget(Ticket ticket) {
  if (ticket < first_ticket_) {
    kept_.erase(ticket);
    return;
  }
  At(ticket).waited = true;
  while (!transfers_.empty() && (transfers_.front().waited || transfers_.size() > kMostInOrder)) {
    if (!transfers_.front().waited) kept_.emplace(first_ticket_, transfers_.front());
    transfers_.pop_front();
    ++first_ticket_;
  }
}

absl::Status StreamMesh::DriveUntilDone(Ticket ticket, net::Deadline deadline) {
  std::int64_t idle_since = 0;
  bool looked_again = false;
  while (true) {
    if (failed_.load(std::memory_order_acquire)) return Fail(-1, absl::OkStatus());
    if (IsDone(ticket)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool moved, Progress());
    if (moved) {
      idle_since = 0;
      continue;
    }
    if (deadline.Expired()) {
      if (looked_again) return Fail(At(ticket).peer, DeadlineError(ticket));
      // This thread may not have run for long: has anybody died meanwhile?
      looked_again = true;
      RETURN_IF_ERROR(Sleep(ticket, deadline));
      continue;
    }
    if (Spin(idle_since)) continue;
    RETURN_IF_ERROR(Sleep(ticket, deadline));
  }
}

bool StreamMesh::Spin(std::int64_t& idle_since, bool at_sum) {
  const std::int64_t now = MonotonicNanoseconds();
  if (idle_since == 0) idle_since = now;
  switch (spin_.Decide(idle_since, now, at_sum)) {
    case SpinWait::Next::kSleep:
      return false;
    case SpinWait::Next::kPoll:
      return true;
    case SpinWait::Next::kYield:
      (void)::sched_yield();
      spin_.Yielded(now, MonotonicNanoseconds());
      return true;
  }
  return false;
}

absl::StatusOr<bool> StreamMesh::Progress() {
  bool moved = false;
  for (int peer = 0; peer < size(); ++peer) {
    if (links_[peer] == nullptr) continue;
    Link& link = *links_[peer];
    if (link.WantsWrite()) {
      const auto written = link.Write();
      if (!written.ok()) return Fail(peer, written.status());
      moved = moved || *written;
    }
    if (link.WantsRead()) {
      const auto read = link.Read();
      if (!read.ok()) return Fail(peer, read.status());
      moved = moved || *read;
    }
    if (link.WaitsInVain()) {
      return Fail(peer, absl::UnavailableError(absl::StrCat(link.name(), " has left view ", view_,
                                                            " while transfers were pending")));
    }
  }
  return moved;
}

absl::Status StreamMesh::Sleep(std::optional<Ticket> ticket, net::Deadline deadline) {
  polls_.clear();
  polled_.clear();
  bool ready_now = false;
  const bool bell = arena_.has_value() && *arena_ != nullptr;
  for (int peer = 0; peer < size(); ++peer) {
    if (links_[peer] == nullptr) continue;
    const Attention attention = links_[peer]->Await(bell);
    ready_now = ready_now || attention.ready;
    if (attention.events == 0) continue;  // a broken one would wake us for ever
    polls_.push_back({links_[peer]->fd(), attention.events, 0});
    polled_.push_back(peer);
  }
  polls_.push_back({wake_.get(), POLLIN, 0});

  std::int64_t wait = -1;
  if (deadline != net::Deadline::Never()) wait = absl::ToInt64Nanoseconds(deadline.Remaining());
  if (ticket.has_value() && At(*ticket).done) {
    const std::int64_t arrives = At(*ticket).ready;
    const std::int64_t arrival = std::max<std::int64_t>(arrives - MonotonicNanoseconds(), 0);
    wait = wait < 0 ? arrival : std::min(wait, arrival);
  }
  if (ready_now) wait = 0;
  const timespec timeout = ToTimespec(std::max<std::int64_t>(wait, 0));
  const int ready = ::ppoll(polls_.data(), polls_.size(), wait < 0 ? nullptr : &timeout, nullptr);
  if (ready < 0 && errno != EINTR) {
    return Fail(-1, net::ErrnoStatus(errno, absl::StrCat("cannot poll the links of view ", view_)));
  }
  return OnPolled();
}

absl::Status StreamMesh::OnPolled() {
  // A wake-up is kept in woken_; a cancellation in failed_.
  if ((polls_.back().revents & POLLIN) != 0) wake_.Drain();
  for (std::size_t i = 0; i < polled_.size(); ++i) {
    links_[polled_[i]]->OnWoken(polls_[i].revents);
  }
  for (std::size_t i = 0; i < polled_.size(); ++i) {
    if ((polls_[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) == 0) continue;
    const auto drained = links_[polled_[i]]->Drain();
    if (!drained.ok()) return Fail(polled_[i], drained);
  }
  return absl::OkStatus();
}

absl::Status StreamMesh::DeadlineError(Ticket ticket) const {
  const Transfer& transfer = At(ticket);
  return absl::DeadlineExceededError(absl::StrCat(
      links_[transfer.peer]->name(), " in view ", view_, ": ",
      transfer.receive ? "sent nothing" : "took nothing", " in time while this rank waited to ",
      transfer.receive ? "receive " : "send ", transfer.bytes, " bytes"));
}

std::vector<int> StreamMesh::LostRanks(int peer) {
  std::set<int> lost;
  const auto add = [&](int rank) {
    const Link& link = *links_[rank];
    const int blamed = link.blamed().value_or(rank);
    // A peer that lost *us* is one that we cannot reach.
    if (blamed != rank && blamed >= 0 && blamed < size() && blamed != rank_) {
      lost.insert(blamed);
    } else if (!link.gave_up() || link.blamed().has_value()) {
      lost.insert(rank);
    }
  };
  add(peer);
  // One death closes many links. Look at the others, so that a neighbour that gave up is not blamed
  // alone.
  for (int other = 0; other < size(); ++other) {
    if (other == peer || links_[other] == nullptr) continue;
    pollfd poll{links_[other]->fd(), POLLRDHUP, 0};
    if (::poll(&poll, 1, 0) == 1 && !links_[other]->Drain().ok()) add(other);
  }
  return {lost.begin(), lost.end()};
}

absl::Status StreamMesh::Fail(int peer, absl::Status status) {
  std::uint64_t farewell = kAborted;
  if (peer >= 0 && !failed_.load(std::memory_order_acquire)) {
    const std::vector<int> lost = LostRanks(peer);
    status = WithUnreachableRanks(std::move(status), lost);
    if (!lost.empty()) farewell = kBlaming + static_cast<std::uint64_t>(lost.front());
  }
  {
    sync::MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = std::move(status);
    failed_.store(true, std::memory_order_release);
    status = failure_;
  }
  CloseLinks(farewell);
  return status;
}

void StreamMesh::CloseLinks(std::uint64_t farewell) {
  if (std::exchange(closed_, true)) return;
  for (const auto& link : links_) {
    if (link != nullptr) link->Close(farewell);
  }
}

}  // namespace starling::transport
