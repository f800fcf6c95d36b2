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
