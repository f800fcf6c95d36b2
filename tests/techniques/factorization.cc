// SPDX-License-Identifier: Apache-2.0
#include "tests/techniques/factorization.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "tests/techniques/cluster.h"
#include "tests/techniques/problem.h"
#include "trainer/consistency/eager_sender.h"

namespace starling::techniques {
namespace {

using consistency::Clock;

constexpr std::size_t kRank = 4;
constexpr std::int64_t kSamples = 256;
constexpr int kWorkers = 2;
constexpr std::int64_t kStaleness = 2;
constexpr double kTick = 0.001;
constexpr std::int64_t kEntriesATick = 64;
constexpr std::int64_t kTicksAClock = 300;
constexpr double kBudget = 20e3;  // bytes a second, of each worker
constexpr std::int64_t kRowBytes = 8 + 4 * static_cast<std::int64_t>(kRank);
constexpr double kRate = 0.02;
constexpr double kTargetShare = 0.6;  // of the loss of the first values
constexpr std::int64_t kMostTicks = 60000;

using Row = std::array<float, kRank>;
using Rows = std::vector<Row>;

double Norm(const Row& row) {
  double sum = 0;
  for (const float one : row) sum += double{one} * double{one};
  return std::sqrt(sum);
}
double Dot(const Row& a, const Row& b) {
  double sum = 0;
  for (std::size_t k = 0; k < kRank; ++k) sum += double{a[k]} * double{b[k]};
  return sum;
}

struct Member {
  Client client;
  Rows rows;                           // its own copy
  std::map<std::size_t, Row> changes;  // not sent yet
  std::unique_ptr<consistency::EagerSender> sender;
  std::mt19937_64 random;
  Clock clock = 0;
  std::int64_t tick = 0;                             // of the clock; at kTicksAClock it only sends
  bool reads = true;                                 // before it goes on
  std::deque<std::pair<double, std::int64_t>> sent;  // of the last second
  std::int64_t sent_bytes = 0;
};

class Factorization {
 public:
  explicit Factorization(const FactorizationOptions& options)
      : matrix_(DigitPixels(kSamples)),
        pixels_(matrix_.size() / static_cast<std::size_t>(kSamples)),
        model_(consistency::MakeConsistency(
            consistency::EagerStaleSynchronous{kStaleness, kBudget, options.priority})) {
    std::mt19937_64 random(options.seed);
    std::uniform_real_distribution<float> values(-0.3F, 0.3F);
    server_.resize(static_cast<std::size_t>(kSamples) + pixels_);
    for (Row& row : server_) {
      for (float& one : row) one = values(random);
    }
    std::vector<Client> clients;
    for (int i = 0; i < kWorkers; ++i) {
      Member& member = members_.emplace_back();
      member.client = ClientOf(i);
      member.random.seed(options.seed * 31 + static_cast<std::uint64_t>(i));
      consistency::EagerSender::Options sender;
      sender.bytes_per_second = options.budgeted ? kBudget : 1e12;
      sender.priority = options.priority;
      sender.seed = options.seed;
      member.sender = std::make_unique<consistency::EagerSender>(sender);
      clients.push_back(member.client);
    }
    (void)model_->OnView(clients);
  }

  FactorizationResult Play() {
    const double target = kTargetShare * Loss();
    for (std::int64_t tick = 0; tick < kMostTicks; ++tick) {
      now_ = static_cast<double>(tick) * kTick;
      for (Member& member : members_) Advance(member);
      if (tick % 20 == 0 && Loss() <= target) break;
    }
    result_.seconds = now_;
    return result_;
  }

 private:
  void Advance(Member& member) {
    if (member.reads) {
      if (!model_->MayRead(member.client, member.clock)) return;
      for (const Member& other : members_) {
        result_.too_old += other.clock < member.clock - kStaleness ? 1 : 0;
      }
      member.rows = server_;
      member.reads = false;
    }
    if (member.tick < kTicksAClock) {
      for (std::int64_t i = 0; i < kEntriesATick; ++i) Learn(member);
      ++member.tick;
    }
    SendSome(member);
    if (member.tick < kTicksAClock || !member.sender->empty()) return;
    (void)model_->OnPush({member.client, member.clock, true, model_->version(), 1, 0});
    ++member.clock;
    member.tick = 0;
    member.reads = true;
  }
  // One entry of the matrix.
  void Learn(Member& member) {
    ++result_.updates;
    const std::size_t sample = member.random() % static_cast<std::size_t>(kSamples);
    const std::size_t pixel = member.random() % pixels_;
    const std::size_t other = static_cast<std::size_t>(kSamples) + pixel;
    const double miss =
        Dot(member.rows[sample], member.rows[other]) - double{matrix_[sample * pixels_ + pixel]};
    const Row left = member.rows[sample], right = member.rows[other];
    Change(member, sample, miss, right);
    Change(member, other, miss, left);
  }
  static void Change(Member& member, std::size_t row, double miss, const Row& factor) {
    Row& pending = member.changes[row];
    Row step;
    for (std::size_t k = 0; k < kRank; ++k) {
      step[k] = static_cast<float>(-kRate * miss * double{factor[k]});
      member.rows[row][k] += step[k];
      pending[k] += step[k];
    }
    member.sender->OnUpdate(row, Norm(step), Norm(member.rows[row]), kRowBytes);
  }
  void SendSome(Member& member) {
    const absl::Time now = absl::UnixEpoch() + absl::Seconds(now_);
    for (const std::uint64_t row : member.sender->Take(now)) {
      const auto change = member.changes.find(row);
      for (std::size_t k = 0; k < kRank; ++k) server_[row][k] += change->second[k];
      member.changes.erase(change);
      member.sent.emplace_back(now_, kRowBytes);
      member.sent_bytes += kRowBytes;
    }
    while (!member.sent.empty() && member.sent.front().first <= now_ - 1) {
      member.sent_bytes -= member.sent.front().second;
      member.sent.pop_front();
    }
    result_.busiest_second =
        std::max(result_.busiest_second, static_cast<double>(member.sent_bytes) / kBudget);
  }
  double Loss() const {
    double sum = 0;
    for (std::size_t sample = 0; sample < static_cast<std::size_t>(kSamples); ++sample) {
      for (std::size_t pixel = 0; pixel < pixels_; ++pixel) {
        const double miss =
            Dot(server_[sample], server_[static_cast<std::size_t>(kSamples) + pixel]) -
            double{matrix_[sample * pixels_ + pixel]};
        sum += miss * miss;
      }
    }
    return sum / static_cast<double>(matrix_.size());
  }

  const std::vector<float> matrix_;
  const std::size_t pixels_;
  std::unique_ptr<consistency::Consistency> model_;
  Rows server_;
  std::deque<Member> members_;
  double now_ = 0;
  FactorizationResult result_;
};

}  // namespace

FactorizationResult Factorize(const FactorizationOptions& options) {
  return Factorization(options).Play();
}

}  // namespace starling::techniques
