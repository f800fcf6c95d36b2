// SPDX-License-Identifier: Apache-2.0
#include "api/spec/validate.h"

#include <ostream>
#include <string>
#include <vector>

#include "api/spec/test_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::spec {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kWorker = "spec.replicaSpecs.worker.";
const std::string kLenet = "spec.workload.classification.model.lenet5={}";
const std::string kTarget = "spec.stop.target.metric=";

struct Combination {
  std::vector<std::string> settings;
  std::string path;  // of the one error; empty: none
};

class Combined : public ::testing::TestWithParam<Combination> {};

TEST_P(Combined, IsAllowedOrRefusedAtItsField) {
  const std::string errors = ErrorsOf(DigitsJobWith(GetParam().settings));
  if (GetParam().path.empty()) {
    EXPECT_EQ(errors, "");
  } else {
    EXPECT_THAT(errors, StartsWith(GetParam().path + ": "));
    EXPECT_EQ(errors.find('\n'), std::string::npos) << errors;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Workers, Combined,
    ::testing::Values(
        Combination{{}, ""}, Combination{{"spec.preset=horovod"}, ""},
        Combination{{"spec.preset=hovorod"}, "spec.preset"},
        Combination{{kWorker + "replicas=8"}, ""},
        Combination{{kWorker + "replicas=9"}, kWorker + "replicas"},
        Combination{{kWorker + "minReplicas=9"}, kWorker + "minReplicas"},
        Combination{{kWorker + "minReplicas=2"}, ""},
        Combination{{kWorker + "minReplicas=3"}, kWorker + "replicas"},
        Combination{{kWorker + "replicas=0"}, kWorker + "replicas"},
        Combination{{kWorker + "replicas=0", "spec.runPolicy.suspend=true"}, ""},
        Combination{{"spec.reproducible=true"}, ""},
        Combination{{"spec.reproducible=true", kWorker + "maxReplicas=16"}, ""},
        Combination{{"spec.reproducible=true", kWorker + "maxReplicas=17"},
                    kWorker + "maxReplicas"},
        Combination{{"spec.reproducible=true", "spec.dataset.globalBatchSize=7"},
                    kWorker + "maxReplicas"},
        Combination{
            {"spec.reproducible=true", kWorker + "maxReplicas=null", kWorker + "replicas=17"},
            kWorker + "replicas"},
        Combination{{"spec.reproducible=true", kWorker + "maxReplicas=null"}, ""},
        Combination{{"spec.exchange.none={}", kWorker + "replicas=1", kWorker + "maxReplicas=1"},
                    ""},
        Combination{{"spec.exchange.none={}", kWorker + "replicas=1"}, kWorker + "maxReplicas"},
        Combination{{"spec.exchange.none={}", kWorker + "maxReplicas=null"},
                    kWorker + "replicas"}));

INSTANTIATE_TEST_SUITE_P(
    Training, Combined,
    ::testing::Values(
        Combination{{"spec.optimizer.sgd.nesterov=true"}, "spec.optimizer.sgd.nesterov"},
        Combination{{"spec.optimizer.sgd.nesterov=true", "spec.optimizer.sgd.momentum=0.9"}, ""},
        Combination{{"spec.stop.steps=10", "spec.optimizer.schedule.warmupSteps=10"},
                    "spec.optimizer.schedule.warmupSteps"},
        Combination{{"spec.stop.steps=11", "spec.optimizer.schedule.warmupSteps=10"}, ""},
        Combination{{"spec.validation.patience=3"}, ""},
        Combination{{"spec.validation.patience=3", "spec.dataset.validation=null"},
                    "spec.validation.patience"},
        Combination{{"spec.validation.keepBest=true", "spec.dataset.validation=null"},
                    "spec.validation.keepBest"},
        Combination{{kTarget + "validation/loss", "spec.stop.target.atMost=1",
                     "spec.dataset.validation=null"},
                    "spec.stop.target"},
        Combination{{kTarget + "validation/loss", "spec.stop.target.atMost=1"}, ""},
        Combination{{kTarget + "validation/loss", "spec.stop.target.atLeast=1"},
                    "spec.stop.target.atLeast"},
        Combination{{kTarget + "validation/accuracy", "spec.stop.target.atMost=1"},
                    "spec.stop.target.atMost"},
        Combination{{kTarget + "validation/accuracy", "spec.stop.target.atLeast=0.95"}, ""},
        Combination{{kTarget + "validation/accuracy", "spec.stop.target.atLeast=95"},
                    "spec.stop.target.atLeast"},
        Combination{{kTarget + "train/loss", "spec.stop.target.atLeast=1"},
                    "spec.stop.target.metric"}));

const std::string kTrainCsv = "spec.dataset.train.csv.shape=";
const std::string kNoValidation = "spec.dataset.validation=null";
const std::string kSynthetic = "spec.dataset.train.synthetic.";

INSTANTIATE_TEST_SUITE_P(
    Data, Combined,
    ::testing::Values(
        Combination{{kTrainCsv + "[64]"}, "spec.dataset.validation.csv.shape"},
        Combination{{kTrainCsv + "null"}, ""},
        Combination{{kTrainCsv + "[1048576,1048576,1048576,1048576]", kNoValidation},
                    "spec.dataset.train.csv.shape"},
        Combination{{kSynthetic + "shape=[4096,4096]", kSynthetic + "samples=1000", kNoValidation},
                    "spec.dataset.train.synthetic.samples"},
        Combination{{kSynthetic + "shape=[4096]", kSynthetic + "samples=1000", kNoValidation}, ""},
        Combination{{"spec.dataset.train.csv.classes=10", "spec.dataset.validation.csv.classes=9"},
                    "spec.dataset.validation"},
        Combination{{"spec.dataset.train.csv.classes=10"}, ""},
        Combination{{"spec.dataset.train.idx.imagesUri=a", "spec.dataset.train.idx.labelsUri=a"},
                    "spec.dataset.train.idx.labelsUri"},
        Combination{
            {"spec.dataset.train.idx.imagesUri=a", "spec.dataset.train.idx.labelsUri=b", kLenet},
            ""},
        Combination{{kLenet}, "spec.dataset.train.csv.shape"},
        Combination{{kLenet, kTrainCsv + "[1,28,28]", kNoValidation}, ""},
        Combination{{kLenet, kTrainCsv + "[3,20,20]", kNoValidation}, ""},
        Combination{{kLenet, kTrainCsv + "[1,19,28]", kNoValidation},
                    "spec.dataset.train.csv.shape"},
        Combination{{kLenet, kTrainCsv + "[784]", kNoValidation}, "spec.dataset.train.csv.shape"},
        Combination{{kLenet, kTrainCsv + "null", kNoValidation}, "spec.dataset.train.csv.shape"}));

const std::string kTemplate = "spec.replicaSpecs.worker.template";

INSTANTIATE_TEST_SUITE_P(
    Templates, Combined,
    ::testing::Values(
        Combination{{kTemplate + R"(={"metadata":{"labels":{"a":"b"}},"spec":{"containers":[
                       {"name":"trainer"},{"name":"side"}]}})"},
                    ""},
        Combination{{kTemplate + R"(={})"}, ""},
        Combination{{kTemplate + R"(={"sepc":{}})"}, kTemplate + ".sepc"},
        Combination{{kTemplate + R"(={"metadata":{"name":"x"}})"}, kTemplate + ".metadata.name"},
        Combination{{kTemplate + R"(={"spec":[]})"}, kTemplate + ".spec"},
        Combination{{kTemplate + R"(={"spec":{"containers":{}}})"}, kTemplate + ".spec.containers"},
        Combination{{kTemplate + R"(={"spec":{"containers":[{}]}})"},
                    kTemplate + ".spec.containers[0].name"},
        Combination{{kTemplate + R"(={"spec":{"containers":[{"name":"a"},{"name":"a"}]}})"},
                    kTemplate + ".spec.containers[1].name"},
        Combination{{kTemplate + R"(={"spec":{"restartPolicy":"Always"}})"},
                    kTemplate + ".spec.restartPolicy"},
        Combination{{R"(spec.replicaSpecs.coordinator.template={"x":1})"},
                    "spec.replicaSpecs.coordinator.template.x"}));

TEST(Validate, MessagesNameTheRemedy) {
  EXPECT_EQ(ErrorsOf(DigitsJobWith({kWorker + "minReplicas=9"})),
            "spec.replicaSpecs.worker.minReplicas: must be at most maxReplicas (8), not 9; lower "
            "it or raise maxReplicas");
  EXPECT_THAT(ErrorsOf(DigitsJobWith({"spec.preset=hovorod"})),
              HasSubstr("there are horovod, pytorchDdp, did you mean \"horovod\"?"));
}

TEST(Validate, TellsErrorsOfSeveralRulesAtOnce) {
  const std::string errors =
      ErrorsOf(DigitsJobWith({kWorker + "minReplicas=9", "spec.optimizer.sgd.nesterov=true"}));
  EXPECT_THAT(errors, HasSubstr("minReplicas"));
  EXPECT_THAT(errors, HasSubstr("nesterov"));
}

}  // namespace
}  // namespace starling::spec
