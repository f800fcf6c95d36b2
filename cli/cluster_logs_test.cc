// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

using kube::Json;
using testing::HasSubstr;

constexpr const char* kPodName = "digits-worker-0";

// Time passes only where somebody waits.
class PassingTime final : public Interrupts {
 public:
  explicit PassingTime(clock::FakeClock& clock) : clock_(clock) {}
  int count() const override { return clock_.Now() > start_ + absl::Minutes(1) ? 1 : 0; }
  void Wait(absl::Duration timeout) const override { clock_.Advance(timeout); }

 private:
  clock::FakeClock& clock_;
  const absl::Time start_ = clock_.Now();
};

// A log of which one piece comes at each call; between two of them something may happen.
class ScriptedLog final : public kube::LogStream {
 public:
  struct Piece {
    std::string text;
    std::function<void()> then = [] {};
  };
  ScriptedLog(clock::FakeClock& clock, std::deque<Piece> pieces)
      : clock_(clock), pieces_(std::move(pieces)) {}

  absl::StatusOr<std::optional<std::string>> Next(absl::Duration timeout) override {
    clock_.Advance(timeout);
    if (pieces_.empty()) return absl::OutOfRangeError("end of the log");
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    piece.then();
    if (piece.text.empty()) return std::optional<std::string>();
    return std::optional<std::string>(std::move(piece.text));
  }
  void Stop() override {}

 private:
  clock::FakeClock& clock_;
  std::deque<Piece> pieces_;
};

class ClusterLogsTest : public testing::Test, public kube::PodLogs {
 protected:
  ClusterLogsTest() : store_(*kube::OpenEmbeddedKubeClient(clock_, {})) {}

  absl::StatusOr<std::unique_ptr<kube::LogStream>> ReadLogs(const kube::ObjectKey&,
                                                            const kube::LogOptions&) override {
    if (clock_.Now() < starts_at_) {
      return absl::InvalidArgumentError("the container has not started yet");
    }
    return std::make_unique<ScriptedLog>(clock_, pieces_);
  }

  void MakePod() {
    const Json pod = {{"apiVersion", "v1"},
                      {"kind", "Pod"},
                      {"metadata", {{"name", kPodName}, {"namespace", "default"}}},
                      {"spec", {{"containers", {{{"name", "trainer"}, {"image", "x"}}}}}}};
    const auto made = store_->Create(kube::kPod, pod);
    ASSERT_TRUE(made.ok()) << made.status();
  }
  void RemovePod() { ASSERT_TRUE(store_->Delete(kube::kPod, {"default", kPodName}, {}).ok()); }
  // What it printed is in out_.
  absl::Status Follow() {
    std::ostringstream error;
    Terminal terminal(out_, error, {});
    const PassingTime interrupts(clock_);
    Arguments arguments;
    arguments.names = {kPodName};
    arguments.flags["follow"];
    return ClusterLogs({terminal, clock_, interrupts, *store_, *this}, arguments);
  }

  clock::FakeClock clock_;
  const std::unique_ptr<kube::KubeClient> store_;
  absl::Time starts_at_ = absl::InfinitePast();
  std::deque<ScriptedLog::Piece> pieces_;
  std::ostringstream out_;
};

TEST_F(ClusterLogsTest, APodThatIsTakenAwayWhileItIsFollowedHasOnlyComeToItsEnd) {
  MakePod();
  pieces_ = {{"one\ntw"},
             {"",
              [this] {
                RemovePod();
                clock_.Advance(absl::Seconds(2));  // the next look does not find it
              }},
             {""},
             {"o\nlast words"}};

  EXPECT_EQ(Follow(), absl::OkStatus());
  EXPECT_EQ(out_.str(), "one\ntwo\nlast words\n");
}

TEST_F(ClusterLogsTest, APodThatHasNotStartedIsWaitedFor) {
  MakePod();
  starts_at_ = clock_.Now() + absl::Seconds(3);
  pieces_ = {{"one\n"}};

  EXPECT_EQ(Follow(), absl::OkStatus());
  EXPECT_EQ(out_.str(), "one\n");
}

TEST_F(ClusterLogsTest, ANameThatNobodyHasIsNotFound) {
  const absl::Status status = Follow();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(kPodName));
}

}  // namespace
}  // namespace starling::cli
