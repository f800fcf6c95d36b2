// SPDX-License-Identifier: Apache-2.0
// An emulated network as every kind of transport has it: hosts whose members share a card, and who
// is refused.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"

namespace starling::transport {
namespace {

using ::starling::transport::testing::Kind;
using ::starling::transport::testing::KindName;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::Soon;

constexpr Tag kPassed{1, 20};

class EmulatedHosts : public ::testing::TestWithParam<Kind> {
 protected:
  EmulatedHosts() : folder_(absl::StrCat(::testing::TempDir(), "/hosts-", ::getpid())) {
    std::filesystem::create_directories(folder_);
    options_.shaping.pods_per_host = 2;
    options_.shaping.card_folder = folder_;
  }
  ~EmulatedHosts() override { std::filesystem::remove_all(folder_); }

  static absl::Status Pass(Mesh& mesh, int from, int to, std::span<std::byte> bytes) {
    if (mesh.rank() == from) return mesh.Send(to, kPassed, bytes, Soon());
    return mesh.rank() == to ? mesh.Receive(from, kPassed, bytes, Soon()) : absl::OkStatus();
  }

  const std::string folder_;
  Options options_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, EmulatedHosts,
                         ::testing::Values(Kind::kTcp, Kind::kInproc, Kind::kShm, Kind::kMixed),
                         [](const auto& one) { return KindName(one.param); });

TEST_P(EmulatedHosts, ShareTheBandwidthOfTheirCard) {
  options_.shaping.bytes_per_second = 10e6;
  Members members(GetParam(), 6, options_);
  auto meshes = members.OpenAll(1);
  const absl::Time begin = absl::Now();
  OnEachRank(6, [&](int rank) {
    std::vector<std::byte> buffer(500'000);  // 50 ms, and as many for the other of the host
    EXPECT_EQ(Pass(*meshes[rank], 0, 2, buffer), absl::OkStatus());
    EXPECT_EQ(Pass(*meshes[rank], 1, 4, buffer), absl::OkStatus());
  });
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(99));
}

// What is between the hosts takes an hour.
TEST_P(EmulatedHosts, EmulateNothingBetweenTheirOwn) {
  options_.shaping.delay = absl::Hours(1);
  Members members(GetParam(), 3, options_);
  auto meshes = members.OpenAll(1);
  OnEachRank(3, [&](int rank) {
    std::vector<std::byte> buffer(500'000);
    EXPECT_EQ(Pass(*meshes[rank], 0, 1, buffer), absl::OkStatus());
    EXPECT_EQ(Pass(*meshes[rank], 1, 0, buffer), absl::OkStatus());
    if (rank == 0) {
      EXPECT_EQ(meshes[0]->Send(2, kPassed, buffer, Soon()), absl::OkStatus());
    }
    if (rank == 2) {
      EXPECT_EQ(
          meshes[2]->Receive(0, kPassed, buffer, net::Deadline::After(absl::Seconds(1))).code(),
          absl::StatusCode::kDeadlineExceeded);
    }
  });
}

TEST_P(EmulatedHosts, RefuseMembersThatDoNotSeeTheirCard) {
  options_.shaping.delay = absl::Milliseconds(1);
  Members members(GetParam(), 1, options_);
  options_.member = "member-1";
  options_.shaping.card_folder = folder_ + "/other";
  std::filesystem::create_directories(options_.shaping.card_folder);
  members.Add(options_);
  OnEachRank(2, [&](int rank) {
    EXPECT_EQ(members.Open(1, rank).status().code(), absl::StatusCode::kUnimplemented);
  });
}

TEST_P(EmulatedHosts, RefuseMembersThatEmulateAnotherNetwork) {
  Options options;
  options.shaping.delay = absl::Milliseconds(1);
  Members members(GetParam(), 1, options);
  options.member = "member-1";
  options.shaping.machine = ThisMachine() + 1;
  members.Add(options);
  OnEachRank(2, [&](int rank) {
    const auto soon = net::Deadline::After(absl::Milliseconds(rank == 0 ? 500 : 20'000));
    EXPECT_EQ(members.Open(1, rank, soon).status().code(),
              rank == 0 ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kUnimplemented);
  });
}

// Two members are an hour apart, and no others.
TEST_P(EmulatedHosts, HaveLinksOfTheirOwn) {
  options_.shaping.pods_per_host = 1;
  options_.shaping.bytes_per_second = 10e6;
  options_.shaping.links = {{.from = "member-0", .to = "member-1", .delay = absl::Hours(1)},
                            {.to = "member-2", .bytes_per_second = 1e6}};
  Members members(GetParam(), 4, options_);
  auto meshes = members.OpenAll(1);
  const absl::Time begin = absl::Now();
  OnEachRank(4, [&](int rank) {
    std::vector<std::byte> buffer(50'000);  // 5 ms by a card, 50 by the slow link
    EXPECT_EQ(Pass(*meshes[rank], 0, 3, buffer), absl::OkStatus());
    EXPECT_EQ(Pass(*meshes[rank], 1, 2, buffer), absl::OkStatus());
    if (rank == 2) {
      EXPECT_GE(absl::Now() - begin, absl::Milliseconds(49));
    }
    if (rank == 0) {
      EXPECT_EQ(meshes[0]->Send(1, kPassed, buffer, Soon()), absl::OkStatus());
    }
    if (rank == 1) {
      EXPECT_EQ(
          meshes[1]->Receive(0, kPassed, buffer, net::Deadline::After(absl::Seconds(1))).code(),
          absl::StatusCode::kDeadlineExceeded);
    }
  });
}

}  // namespace
}  // namespace starling::transport
