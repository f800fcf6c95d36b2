// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/schedule.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace starling::collectives {
namespace {

int Floor2(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n))); }
int CeilLog2(int n) { return std::bit_width(static_cast<unsigned>(n) - 1); }

void Append(Schedule& to, Schedule more) {
  for (Round& round : more) to.push_back(std::move(round));
}

// n-1 rounds in which a chunk goes on to the right each; this rank sends that of `first` first.
Schedule RingHalf(Place place, const Parts& parts, int first, bool combine) {
  const int n = place.size;
  Schedule schedule;
  for (int k = 0; k + 1 < n; ++k) {
    Round round;
    const int sent = ((first - k) % n + n) % n;
    const int received = ((first - k - 1) % n + n) % n;
    round.sends.push_back({(place.rank + 1) % n, parts(sent)});
    round.receipts.push_back({{(place.rank + n - 1) % n, parts(received)}, combine});
    schedule.push_back(std::move(round));
  }
  return schedule;
}

// What the ranks that take part have, when others have folded: `rank` among `size`.
struct Folded {
  int size = 1;
  int rank = 0;
  bool takes_part = true;
  int extra = 0;  // ranks that fold

  explicit Folded(Place place) : size(Floor2(place.size)), extra(place.size - size) {
    takes_part = place.rank >= 2 * extra || place.rank % 2 == 1;
    rank = place.rank >= 2 * extra ? place.rank - extra : place.rank / 2;
  }
  // Of one that takes part, its rank among all.
  int Among(int part) const { return part < extra ? 2 * part + 1 : part + extra; }
};

// `inner` of the ranks that take part, between the rounds by which others fold.
Schedule Fold(Place place, const Folded& folded, std::size_t length, Schedule inner,
              std::size_t inner_rounds) {
  if (folded.extra == 0) return inner;
  Round give, give_back;
  if (place.rank < 2 * folded.extra) {
    const int partner = place.rank ^ 1;
    if (folded.takes_part) {
      give.receipts.push_back({{partner, {0, length}}, true});
      give_back.sends.push_back({partner, {0, length}});
    } else {
      give.sends.push_back({partner, {0, length}});
      give_back.receipts.push_back({{partner, {0, length}}, false});
    }
  }
  Schedule schedule = {std::move(give)};
  inner.resize(inner_rounds);
  Append(schedule, std::move(inner));
  schedule.push_back(std::move(give_back));
  return schedule;
}

// The binomial tree of `size` ranks that are counted from the root: a rank's parent lacks its
// lowest bit, and round k joins those whose lowest bit is the k-th.
struct Tree {
  Place place;
  int root = 0;

  int Counted() const { return (place.rank - root + place.size) % place.size; }
  int Real(int counted) const { return (counted + root) % place.size; }
  int rounds() const { return CeilLog2(place.size); }
};

// `up`: to the root, else from it. range(counted, width) is what travels between the rank `counted`
// and its parent: it stands for the ranks [counted, counted + width).
template <typename RangeOf>
Schedule TreeRounds(const Tree& tree, bool up, bool combine, const RangeOf& range) {
  Schedule schedule(static_cast<std::size_t>(tree.rounds()));
  const int me = tree.Counted();
  for (int k = 0; k < tree.rounds(); ++k) {
    const int bit = 1 << k;
    if (me % bit != 0) continue;
    Round& round = schedule[static_cast<std::size_t>(up ? k : tree.rounds() - 1 - k)];
    const int child = (me & bit) != 0 ? me : me + bit;
    if (child >= tree.place.size) continue;
    const int width = std::min(bit, tree.place.size - child);
    const int peer = tree.Real(child == me ? me - bit : child);
    for (const Elements& part : range(child, width)) {
      if (up == (child == me)) {
        round.sends.push_back({peer, part});
      } else {
        round.receipts.push_back({{peer, part}, combine});
      }
    }
  }
  return schedule;
}

auto Whole(std::size_t length) {
  return [length](int, int) { return std::vector<Elements>{{0, length}}; };
}

// The parts of the ranks that `counted` stands for, which may wrap around the end of the array.
auto PartsOf(const Tree& tree, const Parts& parts) {
  return [&tree, &parts](int counted, int width) {
    std::vector<Elements> all;
    for (int i = 0; i < width; ++i) {
      const Elements part = parts(tree.Real(counted + i));
      if (!all.empty() && all.back().end == part.begin) {
        all.back().end = part.end;
      } else {
        all.push_back(part);
      }
    }
    return all;
  };
}

}  // namespace

Parts EvenParts(std::size_t length, int size) {
  return [length, size](int rank) {
    return ranges::PartOf(length, static_cast<std::size_t>(rank), static_cast<std::size_t>(size));
  };
}

Schedule RingAllreducePlan(Place place, std::size_t length) {
  return RingInSegmentsPlan(place, length, std::max<std::size_t>(1, length), 0);
}

Schedule RingInSegmentsPlan(Place place, std::size_t length, std::size_t segment,
                            std::size_t ahead) {
  const Parts chunks = EvenParts(length, place.size);
  const std::size_t segments = std::max<std::size_t>(1, (length + segment - 1) / segment);
  const auto parts_of = [&](std::size_t i) {
    return [&chunks, i, segments](int rank) {
      const Elements chunk = chunks(rank);
      const Elements part = ranges::PartOf(chunk.size(), i, segments);
      return Elements{chunk.begin + part.begin, chunk.begin + part.end};
    };
  };
  Schedule schedule;
  for (std::size_t i = 0; i < segments + ahead; ++i) {
    if (i < segments) {
      Append(schedule, RingHalf(place, parts_of(i), place.rank, /*combine=*/true));
    }
    if (i >= ahead) {
      Append(schedule, RingHalf(place, parts_of(i - ahead), place.rank + 1, /*combine=*/false));
    }
  }
  return schedule;
}

Schedule HalvingDoublingPlan(Place place, std::size_t length) {
  const Folded folded(place);
  const Parts parts = EvenParts(length, folded.size);
  Schedule halving, doubling;
  for (int bit = folded.size / 2; bit >= 1; bit /= 2) {
    const int partner = folded.Among(folded.rank ^ bit);
    // Both have reduced the same 2 * bit chunks so far; each goes on with the half that it is in.
    const int mine = folded.rank / bit * bit;
    const int theirs = mine ^ bit;
    const Elements kept{parts(mine).begin, parts(mine + bit - 1).end};
    const Elements given{parts(theirs).begin, parts(theirs + bit - 1).end};
    halving.push_back({{{partner, given}}, {{{partner, kept}, true}}});
    doubling.insert(doubling.begin(), {{{partner, kept}}, {{{partner, given}, false}}});
  }
  const std::size_t rounds = 2 * halving.size();
  Append(halving, std::move(doubling));
  if (!folded.takes_part) halving.clear();
  return Fold(place, folded, length, std::move(halving), rounds);
}

Schedule RecursiveDoublingPlan(Place place, std::size_t length) {
  const Folded folded(place);
  Schedule doubling;
  for (int bit = 1; bit < folded.size; bit *= 2) {
    const int partner = folded.Among(folded.rank ^ bit);
    doubling.push_back({{{partner, {0, length}}}, {{{partner, {0, length}}, true}}});
  }
  const std::size_t rounds = doubling.size();
  if (!folded.takes_part) doubling.clear();
  return Fold(place, folded, length, std::move(doubling), rounds);
}

Schedule TreePlan(Place place, std::size_t length) {
  Schedule schedule = ReducePlan(place, length, 0);
  Append(schedule, BroadcastPlan(place, length, 0));
  return schedule;
}

Schedule ReduceScatterPlan(Place place, const Parts& parts) {
  return RingHalf(place, parts, place.rank - 1, /*combine=*/true);
}

Schedule AllgatherPlan(Place place, const Parts& parts) {
  return RingHalf(place, parts, place.rank, /*combine=*/false);
}

Schedule BroadcastPlan(Place place, std::size_t length, int root) {
  return TreeRounds(Tree{place, root}, /*up=*/false, /*combine=*/false, Whole(length));
}

Schedule ReducePlan(Place place, std::size_t length, int root) {
  return TreeRounds(Tree{place, root}, /*up=*/true, /*combine=*/true, Whole(length));
}

Schedule GatherPlan(Place place, const Parts& parts, int root) {
  const Tree tree{place, root};
  return TreeRounds(tree, /*up=*/true, /*combine=*/false, PartsOf(tree, parts));
}

Schedule ScatterPlan(Place place, const Parts& parts, int root) {
  const Tree tree{place, root};
  return TreeRounds(tree, /*up=*/false, /*combine=*/false, PartsOf(tree, parts));
}

Schedule AllToAllPlan(Place place, const Parts& parts) {
  Schedule schedule;
  for (int k = 1; k < place.size; ++k) {
    const int to = (place.rank + k) % place.size;
    const int from = (place.rank - k + place.size) % place.size;
    schedule.push_back({{{to, parts(to)}}, {{{from, parts(from)}, false}}});
  }
  return schedule;
}

Schedule BarrierPlan(Place place) {
  Schedule schedule;
  for (int bit = 1; bit < place.size; bit *= 2) {
    Round round;
    round.sends.push_back({(place.rank + bit) % place.size, {0, 0}});
    round.receipts.push_back({{(place.rank - bit + place.size) % place.size, {0, 0}}, false});
    schedule.push_back(std::move(round));
  }
  return schedule;
}

}  // namespace starling::collectives
