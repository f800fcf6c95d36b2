// SPDX-License-Identifier: Apache-2.0
#include "trainer/control/data_plane.h"

#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::control {
namespace {

TEST(ShapingOf, IsNothingWhereTheJobSaysNothing) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_experiment();
  const auto shaping = ShapingOf(spec, "/job");
  ASSERT_TRUE(shaping.ok());
  EXPECT_FALSE(shaping->enabled());
}

TEST(ShapingOf, ReadsBitsASecondAndHosts) {
  v1alpha1::TrainingJobSpec spec;
  auto& network = *spec.mutable_experiment()->mutable_network();
  network.set_bandwidth("1G");
  network.mutable_delay()->set_nanos(200'000);
  auto shaping = ShapingOf(spec, "/job");
  ASSERT_TRUE(shaping.ok());
  EXPECT_EQ(shaping->bytes_per_second, 125e6);
  EXPECT_EQ(shaping->delay, absl::Microseconds(200));
  EXPECT_EQ(shaping->pods_per_host, 1);

  network.set_pods_per_host(4);
  shaping = ShapingOf(spec, "/job");
  ASSERT_TRUE(shaping.ok());
  EXPECT_EQ(shaping->pods_per_host, 4);
  EXPECT_EQ(shaping->card_folder, "/job");
}

TEST(ShapingOf, ReadsLinks) {
  v1alpha1::TrainingJobSpec spec;
  auto& network = *spec.mutable_experiment()->mutable_network();
  auto& slow = *network.add_links();
  slow.set_from("worker-0");
  slow.set_to("worker-1");
  slow.set_bandwidth("100M");
  auto& far = *network.add_links();
  far.set_to("worker-2");
  far.mutable_delay()->set_nanos(5'000'000);
  const auto shaping = ShapingOf(spec, "/job");
  ASSERT_TRUE(shaping.ok());
  ASSERT_EQ(shaping->links.size(), 2U);
  EXPECT_EQ(shaping->links[0].from, "worker-0");
  EXPECT_EQ(shaping->links[0].to, "worker-1");
  EXPECT_EQ(shaping->links[0].bytes_per_second, 12.5e6);
  EXPECT_EQ(shaping->links[0].delay, std::nullopt);
  EXPECT_EQ(shaping->links[1].from, "");
  EXPECT_EQ(shaping->links[1].delay, absl::Milliseconds(5));
  EXPECT_TRUE(shaping->enabled());

  slow.set_bandwidth("fast");
  EXPECT_EQ(ShapingOf(spec, "/job").status().message(),
            "spec.experiment.network.links[0].bandwidth must be a quantity such as 1G, not "
            "\"fast\"");
}

TEST(ShapingOf, RefusesWhatIsNoBandwidth) {
  v1alpha1::TrainingJobSpec spec;
  for (const char* wrong : {"", "fast", "-1G", "0"}) {
    spec.mutable_experiment()->mutable_network()->set_bandwidth(wrong);
    EXPECT_EQ(ShapingOf(spec, "/job").status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(Spec, EncryptsOnlyWhereItSaysSo) {
  v1alpha1::TrainingJobSpec spec;
  EXPECT_FALSE(Encrypts(spec)) << "as jobs of before have it";
  spec.mutable_data_plane()->set_encryption(v1alpha1::DATA_PLANE_ENCRYPTION_NONE);
  EXPECT_FALSE(Encrypts(spec));
  spec.mutable_data_plane()->set_encryption(v1alpha1::DATA_PLANE_ENCRYPTION_TLS);
  EXPECT_TRUE(Encrypts(spec));
}

}  // namespace
}  // namespace starling::control
