// SPDX-License-Identifier: Apache-2.0
// What of a pod's mounts and volumes counts when it is asked whether checkpoints outlive it; the
// plain cases stand in observe_test.cc.
#include "controller/trainingjob/durability.h"

#include <string>

#include "controller/kube/objects.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::trainingjob {
namespace {

using kube::Json;

// In a pod with one claim and one volume that goes with it, "claim" and "scratch".
bool Durable(const std::string& uri, const Json& mounts, Json volumes = Json::parse(R"([
               {"name": "claim", "persistentVolumeClaim": {"claimName": "store"}},
               {"name": "scratch", "emptyDir": {}}])")) {
  const Json container = {{"name", "trainer"}, {"volumeMounts", mounts}};
  const Json pod = {
      {"spec", {{"containers", Json::array({container})}, {"volumes", std::move(volumes)}}}};
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_checkpoint()->set_uri(uri);
  spec.mutable_replica_specs()->mutable_worker()->set_template_(pod.dump());
  return IsCheckpointDurable(spec, {.jobs_folder = "", .image = "starling"});
}

Json Mount(const char* volume, const char* folder) {
  return {{"name", volume}, {"mountPath", folder}};
}

TEST(IsCheckpointDurable, ARelativePathLiesInTheImagesFolder) {
  EXPECT_TRUE(Durable("checkpoints", Json::array({Mount("claim", "/opt/starling")})));
  EXPECT_TRUE(Durable("file://checkpoints", Json::array({Mount("claim", "/opt/starling")})));
  EXPECT_FALSE(Durable("checkpoints", Json::array({Mount("claim", "/opt/starling/data")})));
}

TEST(IsCheckpointDurable, WithoutAPlaceNothingIsKeptWhateverIsMounted) {
  EXPECT_TRUE(Durable("/checkpoints", Json::array({Mount("claim", "/")})));
  EXPECT_FALSE(Durable("", Json::array({Mount("claim", "/")})));
}

TEST(IsCheckpointDurable, SlashesBehindAFolderDoNotMatter) {
  for (const char* folder : {"/data", "/data/", "/data//"}) {
    EXPECT_TRUE(Durable("/data/a", Json::array({Mount("claim", folder)}))) << folder;
    EXPECT_TRUE(Durable("/data", Json::array({Mount("claim", folder)}))) << folder;
    EXPECT_FALSE(Durable("/database", Json::array({Mount("claim", folder)}))) << folder;
  }
  for (const char* root : {"/", "//", "///"}) {
    EXPECT_TRUE(Durable("/data", Json::array({Mount("claim", root)}))) << root;
  }
}

TEST(IsCheckpointDurable, SlashesDoNotMakeAFolderTheInnerOne) {
  EXPECT_FALSE(
      Durable("/data/x/a", Json::array({Mount("scratch", "/data/x"), Mount("claim", "/data///")})));
}

TEST(IsCheckpointDurable, AMountWithoutAFolderHoldsNothing) {
  EXPECT_FALSE(Durable("/data", Json::array({{{"name", "claim"}}})));
  EXPECT_FALSE(Durable("/data", Json::array({Mount("claim", "")})));
}

TEST(IsCheckpointDurable, AVolumeWithoutANameHoldsNothing) {
  const Json nameless = Json::parse(R"([{"persistentVolumeClaim": {"claimName": "store"}}])");
  EXPECT_FALSE(Durable("/data", Json::array(), nameless)) << "the container's own disk";
}

TEST(IsCheckpointDurable, OfTwoMountsOfOneFolderTheLastHoldsIt) {
  const Json claim = Mount("claim", "/data"), scratch = Mount("scratch", "/data");
  EXPECT_TRUE(Durable("/data/a", Json::array({scratch, claim})));
  EXPECT_FALSE(Durable("/data/a", Json::array({claim, scratch})));
}

}  // namespace
}  // namespace starling::trainingjob
