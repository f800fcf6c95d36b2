// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/selector.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/macros.h"
#include "trainer/collectives/collectives.h"
#include "trainer/collectives/reduce_op.h"

namespace starling::collectives {
namespace {

constexpr std::uint64_t kNoEnd = std::numeric_limits<std::uint64_t>::max();

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// --- Measuring a link. The lower rank leads: it says how many messages of which size both are to
// send at the same time, and times them until it has the other's. No messages: that was all.

constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::size_t kMostMessages = 8;
constexpr std::size_t kBulks[] = {std::size_t{1} << 14, std::size_t{1} << 17, kMostBytes};
constexpr int kPings = 4;
// What takes so long is not repeated: the machine's own noise is less. Nor does it matter then what
// a message costs beside its delay.
constexpr double kLongPings = 10e-3;
constexpr double kLongBulk = 1e-3, kLongBulks = 20e-3;
// No link is faster than memory. Without a bound, noise could make bytes seem free.
constexpr double kLeastSecondsPerByte = 1 / 50e9;

class Probe {
 public:
  Probe(const Communicator& communicator, int peer, std::size_t largest)
      : communicator_(communicator),
        mesh_(communicator.mesh),
        peer_(peer),
        largest_(std::clamp(largest, kBulks[0], kMostBytes)),
        room_(communicator.workspace.Bytes(2 * kMostBytes)) {}

  absl::StatusOr<LinkCost> Lead() {
    // The first also waits until the other is there.
    RETURN_IF_ERROR(Timed(kWord, 1).status());
    double ping = std::numeric_limits<double>::infinity(), all = 0;
    for (int i = 0; i < kPings && all < kLongPings; ++i) {
      ASSIGN_OR_RETURN(const double seconds, Timed(kWord, 1));
      ping = std::min(ping, seconds);
      all += seconds;
    }
    double together = ping;
    if (ping < kLongPings) {
      ASSIGN_OR_RETURN(together, Timed(kWord, kMostMessages));
    }
    ASSIGN_OR_RETURN(const double per_byte, LeadBulks(ping));
    RETURN_IF_ERROR(Pass());
    return LinkCost{.latency_seconds = ping / 2,
                    .seconds_per_byte = per_byte,
                    .seconds_per_byte_added = 0,
                    .seconds_per_message = std::max(0.0, (together - ping) / (kMostMessages - 1))};
  }

  // Instead of Lead(), or at its end: the other goes on.
  absl::Status Pass() { return Order({0, 0}); }

  absl::Status Follow() {
    while (true) {
      std::uint64_t order[2] = {};
      RETURN_IF_ERROR(mesh_.Receive(peer_, communicator_.tag,
                                    std::as_writable_bytes(std::span(order)),
                                    communicator_.deadline));
      const auto [bytes, messages] = order;
      if (messages == 0) return absl::OkStatus();
      if (bytes > kMostBytes || messages > kMostMessages || bytes * messages > kMostBytes) {
        return absl::InternalError(absl::StrCat(
            "rank ", peer_, " measures its link with ", messages, " messages of ", bytes,
            " bytes, which is more than is ever sent for that: it is of another version"));
      }
      Post(bytes, messages);
      RETURN_IF_ERROR(Finish());
    }
  }

 private:
  struct Amount {
    std::uint64_t bytes = 0, messages = 0;
  };

  // Larger ones until they take longer than a delay that is measured a little wrong.
  absl::StatusOr<double> LeadBulks(double ping) {
    double seconds = 0, all = 0;
    std::size_t bytes = 0;
    for (const std::size_t bulk : kBulks) {
      bytes = std::min(bulk, largest_);
      ASSIGN_OR_RETURN(seconds, Timed(bytes, 1));
      if (bytes == largest_ || seconds - ping > std::max(kLongBulk, ping / 2)) break;
    }
    for (int again = 0; again < 2 && all + seconds < kLongBulks; ++again) {
      ASSIGN_OR_RETURN(const double once_more, Timed(bytes, 1));
      all += once_more;
      seconds = std::min(seconds, once_more);
    }
    return std::max(kLeastSecondsPerByte, (seconds - ping) / static_cast<double>(bytes));
  }

  absl::Status Order(const Amount& amount) {
    const std::uint64_t order[2] = {amount.bytes, amount.messages};
    return mesh_.Send(peer_, communicator_.tag, std::as_bytes(std::span(order)),
                      communicator_.deadline);
  }

  absl::StatusOr<double> Timed(std::size_t bytes, std::size_t messages) {
    const double begin = Now();
    RETURN_IF_ERROR(Order({bytes, messages}));
    Post(bytes, messages);
    RETURN_IF_ERROR(Finish());
    return Now() - begin;
  }

  void Post(std::size_t bytes, std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i) {
      tickets_.push_back(mesh_.PostSend(peer_, communicator_.tag, room_.subspan(i * bytes, bytes)));
      tickets_.push_back(mesh_.PostReceive(peer_, communicator_.tag,
                                           room_.subspan(kMostBytes + i * bytes, bytes)));
    }
  }

  absl::Status Finish() {
    for (const transport::Ticket ticket : std::exchange(tickets_, {})) {
      RETURN_IF_ERROR(mesh_.Wait(ticket, communicator_.deadline));
    }
    return absl::OkStatus();
  }

  const Communicator& communicator_;
  transport::Mesh& mesh_;
  const int peer_;
  const std::size_t largest_;
  const std::span<std::byte> room_;  // what is sent, then what is received
  std::vector<transport::Ticket> tickets_;
};

// Of arrays that lie in a cache, as the pieces of a sum do.
absl::StatusOr<double> MeasureAdding(const Communicator& communicator) {
  constexpr std::size_t kCount = 16 * 1024;
  ASSIGN_OR_RETURN(const Reducer reducer, ReducerOf(ReduceOp::kMaximum, buffer::DType::kF32));
  const std::span<float> arrays = communicator.workspace.Floats(2 * kCount);
  std::ranges::fill(arrays, 0.0F);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) {
    const double begin = Now();
    reducer.combine(arrays.data(), arrays.data() + kCount, kCount);
    best = std::min(best, Now() - begin);
  }
  return best / (kCount * sizeof(float));
}

// --- Telling the choice.

constexpr std::size_t kMostClasses = 32;
constexpr std::size_t kFigures = 5;
// Number of classes, two words a class, and the figures.
constexpr std::size_t kWords = 1 + 2 * kMostClasses + kFigures;
using Words = std::vector<std::int64_t>;

Words Encode(const Selection& selection) {
  Words words(kWords);
  words[0] = static_cast<std::int64_t>(selection.classes.size());
  for (std::size_t i = 0; i < selection.classes.size(); ++i) {
    words[1 + 2 * i] = static_cast<std::int64_t>(selection.classes[i].most_bytes);
    words[2 + 2 * i] = static_cast<std::int64_t>(selection.classes[i].algorithm);
  }
  const LinkCost& link = selection.link;
  const double figures[] = {link.latency_seconds, link.seconds_per_byte,
                            link.seconds_per_byte_added, link.seconds_per_message};
  for (std::size_t i = 0; i < std::size(figures); ++i) {
    words[kWords - kFigures + i] = std::bit_cast<std::int64_t>(figures[i]);
  }
  words[kWords - 1] = selection.links;
  return words;
}

absl::StatusOr<Selection> Decode(const Words& words) {
  Selection selection;
  selection.classes.clear();
  const auto count = static_cast<std::uint64_t>(words[0]);
  for (std::size_t i = 0; i < std::min<std::uint64_t>(count, kMostClasses); ++i) {
    const auto number = static_cast<std::uint64_t>(words[2 + 2 * i]);
    const std::optional<Algorithm> algorithm = AlgorithmOf(number);
    if (!algorithm) {
      return absl::InternalError(absl::StrCat("rank 0 has chosen allreduce algorithm ", number,
                                              ", which this worker does not know: give all "
                                              "workers of the job the same image"));
    }
    selection.classes.push_back({static_cast<std::uint64_t>(words[1 + 2 * i]), *algorithm});
  }
  if (selection.classes.empty()) return absl::InternalError("rank 0 has chosen no algorithm");
  const auto figure = [&](std::size_t i) {
    return std::bit_cast<double>(words[kWords - kFigures + i]);
  };
  selection.link = {figure(0), figure(1), figure(2), figure(3)};
  selection.links = words[kWords - 1];
  return selection;
}

}  // namespace

Algorithm Selection::Of(std::size_t bytes) const {
  for (const SizeClass& one : classes) {
    if (bytes <= one.most_bytes) return one.algorithm;
  }
  return classes.back().algorithm;
}

Selection Always(Algorithm algorithm) { return {.classes = {{kNoEnd, algorithm}}}; }

Selection SelectBy(const LinkCost& link, int size) {
  constexpr int kMostLog2 = 36;
  Selection selection{.classes = {}, .link = link};
  const auto choose = [&](std::uint64_t bytes) { return Choose(size, bytes, link); };
  std::uint64_t begin = 0;
  for (int log2 = 6; log2 <= kMostLog2; ++log2) {
    const std::uint64_t edge = std::uint64_t{1} << log2;
    while (choose(edge) != choose(begin) && selection.classes.size() + 1 < kMostClasses) {
      std::uint64_t last = begin, next = edge;  // of this class, of another
      while (next - last > 1) {
        const std::uint64_t middle = last + (next - last) / 2;
        (choose(middle) == choose(begin) ? last : next) = middle;
      }
      selection.classes.push_back({last, choose(begin)});
      begin = next;
    }
  }
  selection.classes.push_back({kNoEnd, choose(begin)});
  return selection;
}

std::string AlgorithmsOf(const Selection& selection) {
  std::string text;
  for (std::size_t i = 0; i < selection.classes.size(); ++i) {
    const SizeClass& one = selection.classes[i];
    const bool last = i + 1 == selection.classes.size();
    absl::StrAppend(&text, i == 0 ? "" : ", ", std::string(NameOf(one.algorithm)),
                    !last    ? absl::StrCat(" up to ", one.most_bytes, " bytes")
                    : i == 0 ? ""
                             : " beyond");
  }
  return text;
}

std::string MeasuredOf(const Selection& selection) {
  const double speed = selection.link.seconds_per_byte;
  return absl::StrFormat("a message takes %.0f us%s on the slowest of %d measured links",
                         selection.link.latency_seconds * 1e6,
                         speed > 0 ? absl::StrFormat(" and %.3g MB/s", 1e-6 / speed) : "",
                         selection.links);
}

int PartnerIn(int round, Place place) {
  // Rank `circle` stands in the middle (of an odd number of ranks nobody does), and the others
  // around it: a round turns them by one, and those who are then opposite each other meet.
  const int circle = place.size - 1 + place.size % 2;
  if (circle == 0) return -1;
  const int turned = round % circle;
  int partner = ((2 * turned - place.rank) % circle + circle) % circle;
  if (place.rank == circle) partner = turned;
  if (place.rank == turned) partner = circle;
  return partner < place.size ? partner : -1;
}

absl::StatusOr<Measured> MeasureLinks(const Communicator& communicator, const Effort& effort) {
  const Place place{communicator.size(), communicator.rank()};
  Measured measured;
  LinkCost& slowest = measured.slowest;
  ASSIGN_OR_RETURN(slowest.seconds_per_byte_added, MeasureAdding(communicator));
  const double end = Now() + absl::ToDoubleSeconds(effort.most);
  const int rounds = std::min(kMostLinks, place.size - 1 + place.size % 2);
  bool first = true;
  for (int round = 0; round < rounds; ++round) {
    const int peer = PartnerIn(round, place);
    if (peer < 0) continue;
    Probe probe(communicator, peer, effort.largest);
    if (place.rank > peer) {
      RETURN_IF_ERROR(probe.Follow());
    } else if (first || Now() < end) {
      ASSIGN_OR_RETURN(const LinkCost link, probe.Lead());
      slowest.latency_seconds = std::max(slowest.latency_seconds, link.latency_seconds);
      slowest.seconds_per_byte = std::max(slowest.seconds_per_byte, link.seconds_per_byte);
      slowest.seconds_per_message = std::max(slowest.seconds_per_message, link.seconds_per_message);
      ++measured.links;
    } else {
      RETURN_IF_ERROR(probe.Pass());
    }
    first = false;
  }
  return measured;
}

absl::StatusOr<Selection> AgreeOnSelection(const Communicator& communicator, const Effort& effort) {
  const int size = communicator.size();
  if (size == 1) return Always(Algorithm::kRing);
  ASSIGN_OR_RETURN(const transport::Arena* const arena,
                   communicator.mesh.ShareArena(communicator.deadline));
  if (arena != nullptr) return Always(Algorithm::kSharedMemory);
  ASSIGN_OR_RETURN(const Measured mine, MeasureLinks(communicator, effort));
  const LinkCost& link = mine.slowest;
  std::vector<double> figures = {link.latency_seconds, link.seconds_per_byte,
                                 link.seconds_per_byte_added, link.seconds_per_message};
  RETURN_IF_ERROR(Reduce(communicator, figures, ReduceOp::kMaximum, 0));
  std::vector<std::int64_t> links = {mine.links};
  RETURN_IF_ERROR(Reduce(communicator, links, ReduceOp::kSum, 0));
  Words words(kWords);
  if (communicator.rank() == 0) {
    Selection selection = SelectBy({figures[0], figures[1], figures[2], figures[3]}, size);
    selection.links = links[0];
    words = Encode(selection);
  }
  RETURN_IF_ERROR(Broadcast(communicator, words, 0));
  return Decode(words);
}

}  // namespace starling::collectives
