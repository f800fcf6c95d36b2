// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/stream_transport.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/transport/stream_mesh.h"

namespace starling::transport {
namespace {

absl::Status CheckMemberId(const std::string& member) {
  const bool printable =
      std::all_of(member.begin(), member.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!member.empty() && member.size() <= kMaxMemberIdBytes && printable) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("member id \"", member, "\" must have 1 to ",
                                                 kMaxMemberIdBytes,
                                                 " printable characters without spaces"));
}

absl::Status CheckMembers(const std::vector<Peer>& members, int rank, const std::string& self) {
  std::set<std::string> seen;
  for (const Peer& peer : members) {
    RETURN_IF_ERROR(CheckMemberId(peer.member));
    if (!seen.insert(peer.member).second) {
      return absl::InvalidArgumentError(absl::StrCat("the view names ", peer.member, " twice"));
    }
  }
  if (rank < 0 || rank >= static_cast<int>(members.size()) || members[rank].member != self) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " of the view is not this member, ", self));
  }
  return absl::OkStatus();
}

absl::Status About(const std::string& who, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(who, ": ", std::string(status.message())));
}

}  // namespace

absl::Status CheckOptions(const Options& options) {
  RETURN_IF_ERROR(CheckMemberId(options.member));
  if (options.secret.empty()) {
    return absl::InvalidArgumentError("the job's data-plane secret is empty");
  }
  if (options.max_half_open < 1 || options.max_parked < 1) {
    return absl::InvalidArgumentError("a transport needs room for at least one Hello");
  }
  return absl::OkStatus();
}

// Confined to Open.
class StreamTransport::Assembly {
 public:
  Assembly(StreamTransport& transport, std::uint64_t view, const std::vector<Peer>& members,
           int rank, net::Deadline deadline, Cancellation* cancellation)
      : transport_(transport),
        view_(view),
        members_(members),
        rank_(rank),
        deadline_(deadline),
        cancellation_(cancellation),
        streams_(members.size()) {}
  ~Assembly() {
    if (opening_ != nullptr) transport_.acceptor_.Finish(opening_);
  }
  Assembly(const Assembly&) = delete;
  Assembly& operator=(const Assembly&) = delete;

  // All links, by rank. Later ranks dial us, we dial earlier ones.
  absl::StatusOr<std::vector<std::unique_ptr<Stream>>> Run() {
    std::map<std::string, int> expected;
    for (int rank = rank_ + 1; rank < static_cast<int>(members_.size()); ++rank) {
      expected.emplace(members_[rank].member, rank);
    }
    ASSIGN_OR_RETURN(opening_, transport_.acceptor_.Open(view_, std::move(expected)));
    StartDialing();
    while (true) {
      RETURN_IF_ERROR(Step());
      if (missing_ == 0) return std::move(streams_);
      RETURN_IF_ERROR(CheckStillWanted());
      RETURN_IF_ERROR(Sleep());
    }
  }

 private:
  void StartDialing() {
    missing_ = static_cast<int>(members_.size()) - 1;
    const auto dial_deadline = net::Deadline::After(transport_.options_.dial_timeout);
    const std::string key = Handshake::Key(transport_.options_.secret, transport_.options_.job);
    for (int rank = 0; rank < rank_; ++rank) {
      Hello hello{transport_.options_.encrypted,
                  view_,
                  NetworkOf(transport_.options_.shaping),
                  {},
                  transport_.options_.member,
                  members_[rank].member};
      dialings_.emplace(std::piecewise_construct, std::forward_as_tuple(rank),
                        std::forward_as_tuple(*transport_.connector_, members_[rank].address,
                                              std::move(hello), key, dial_deadline));
    }
  }

  absl::Status Step() {
    for (auto& [rank, connection] : transport_.acceptor_.Take(*opening_)) {
      StartFitting(rank, std::move(connection));
    }
    for (auto dialing = dialings_.begin(); dialing != dialings_.end();) {
      const int rank = dialing->first;
      if (const absl::Status stepped = dialing->second.Step(); !stepped.ok()) {
        return WithUnreachableRanks(
            About(absl::StrCat(PeerName(rank, members_[rank]), " in view ", view_), stepped),
            {rank});
      }
      if (dialing->second.done()) {
        StartFitting(rank, dialing->second.TakeConnection());
        dialing = dialings_.erase(dialing);
      } else {
        ++dialing;
      }
    }
    return Fit();
  }

  void StartFitting(int rank, Connection connection) {
    fittings_.emplace(rank, transport_.connector_->Fit(std::move(connection), members_.size()));
  }

  absl::Status Fit() {
    for (auto fitting = fittings_.begin(); fitting != fittings_.end();) {
      const int rank = fitting->first;
      auto stream = fitting->second->Step();
      if (!stream.ok()) {
        const auto about = About(absl::StrCat(PeerName(rank, members_[rank]), " in view ", view_),
                                 stream.status());
        // Our own lack of memory says nothing of the peer.
        return absl::IsResourceExhausted(about) ? about : WithUnreachableRanks(about, {rank});
      }
      if (*stream == nullptr) {
        ++fitting;
        continue;
      }
      streams_[rank] = *std::move(stream);
      --missing_;
      fitting = fittings_.erase(fitting);
    }
    return absl::OkStatus();
  }

  absl::Status CheckStillWanted() const {
    if (cancellation_ != nullptr) RETURN_IF_ERROR(cancellation_->status());
    if (const auto fence = transport_.fence(); fence > view_) {
      return absl::FailedPreconditionError(absl::StrCat(
          "view ", view_, " was superseded while it was opened: the fence is ", fence));
    }
    if (!deadline_.Expired()) return absl::OkStatus();
    std::vector<int> ranks;
    for (const auto& [rank, dialing] : dialings_) ranks.push_back(rank);
    for (const int rank : transport_.acceptor_.Missing(*opening_)) ranks.push_back(rank);
    for (const auto& [rank, fitting] : fittings_) ranks.push_back(rank);
    std::sort(ranks.begin(), ranks.end());
    std::string names;
    for (const int rank : ranks) absl::StrAppend(&names, " ", PeerName(rank, members_[rank]));
    return WithUnreachableRanks(absl::DeadlineExceededError(absl::StrCat(
                                    "view ", view_, " was not opened in time by:", names)),
                                ranks);
  }

  absl::Status Sleep() const {
    std::vector<pollfd> polls = {{opening_->event.get(), POLLIN, 0}};
    if (cancellation_ != nullptr) polls.push_back({cancellation_->event(), POLLIN, 0});
    for (const auto& [rank, fitting] : fittings_) {
      polls.push_back({fitting->fd(), fitting->events(), 0});
    }
    net::Deadline wake = deadline_;
    for (const auto& [rank, dialing] : dialings_) {
      if (dialing.events() != 0) polls.push_back({dialing.fd(), dialing.events(), 0});
      wake = std::min(wake, dialing.wake());
    }
    if (::poll(polls.data(), polls.size(), wake.PollTimeout()) < 0 && errno != EINTR) {
      return net::ErrnoStatus(errno, absl::StrCat("cannot poll the links of view ", view_));
    }
    return absl::OkStatus();
  }

  StreamTransport& transport_;
  const std::uint64_t view_;
  const std::vector<Peer>& members_;
  const int rank_;
  const net::Deadline deadline_;
  Cancellation* const cancellation_;
  std::shared_ptr<Opening> opening_;
  std::map<int, Dialing> dialings_;
  std::map<int, std::unique_ptr<Fitting>> fittings_;  // connections that are no streams yet
  std::vector<std::unique_ptr<Stream>> streams_;
  int missing_ = 0;
};

StreamTransport::StreamTransport(std::vector<net::FileDescriptor> listeners, std::string address,
                                 std::unique_ptr<Connector> connector, Options options)
    : address_(std::move(address)),
      options_(std::move(options)),
      connector_(std::move(connector)),
      acceptor_(std::move(listeners), options_) {}

absl::StatusOr<std::unique_ptr<Mesh>> StreamTransport::Open(std::uint64_t view,
                                                            const std::vector<Peer>& members,
                                                            int rank, net::Deadline deadline,
                                                            Cancellation* cancellation) {
  RETURN_IF_ERROR(CheckMembers(members, rank, options_.member));
  ASSIGN_OR_RETURN(std::shared_ptr<HostCard> card, CardOf(members, rank));
  Assembly assembly(*this, view, members, rank, deadline, cancellation);
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Stream>> streams, assembly.Run());
  if (card != nullptr) RETURN_IF_ERROR(CheckCard(*card, members, rank));
  return std::make_unique<StreamMesh>(view, members, rank, std::move(streams), options_, *ledger_,
                                      std::move(card));
}

absl::StatusOr<std::shared_ptr<HostCard>> StreamTransport::CardOf(const std::vector<Peer>& members,
                                                                  int rank) const {
  const Peer& self = members[static_cast<std::size_t>(rank)];
  const auto beside = [&](const Peer& peer) {
    return peer.member != self.member && OnOneHost(peer, self, options_.shaping);
  };
  if (std::ranges::none_of(members, beside)) return nullptr;
  ASSIGN_OR_RETURN(auto card, HostCard::Open(options_.shaping.card_folder,
                                             HostOf(self.pod, options_.shaping.pods_per_host)));
  card->SitDown(self.member);
  return card;
}

// All have sat down before their links stood.
absl::Status StreamTransport::CheckCard(HostCard& card, const std::vector<Peer>& members,
                                        int rank) const {
  for (int peer = 0; peer < static_cast<int>(members.size()); ++peer) {
    if (!OnOneHost(members[peer], members[rank], options_.shaping)) continue;
    if (card.Sits(members[peer].member)) continue;
    return absl::UnimplementedError(absl::StrCat(
        PeerName(peer, members[peer]), " does not see ", options_.shaping.card_folder,
        ", where members of one emulated host share a card: run the job on one machine without "
        "containers, or leave spec.experiment.network.podsPerHost out"));
  }
  return absl::OkStatus();
}

}  // namespace starling::transport
