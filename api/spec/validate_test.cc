// SPDX-License-Identifier: Apache-2.0
#include "api/spec/validate.h"

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/spec/test_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::spec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Worker(const std::string& rest) { return "spec.replicaSpecs.worker." + rest; }
constexpr char kLenet[] = "spec.workload.classification.model.lenet5={}";
constexpr char kLink[] = "spec.experiment.network.links[0]";
std::string Link(const std::string& fields) {
  return absl::StrCat("spec.experiment.network.links=[{", fields, "}]");
}
std::string Target(const std::string& rest) { return "spec.stop.target.metric=" + rest; }

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
        Combination{{Worker("replicas=8")}, ""},
        Combination{{Worker("replicas=9")}, Worker("replicas")},
        Combination{{Worker("minReplicas=9")}, Worker("minReplicas")},
        Combination{{Worker("minReplicas=2")}, ""},
        Combination{{Worker("minReplicas=3")}, Worker("replicas")},
        Combination{{Worker("replicas=0")}, Worker("replicas")},
        Combination{{Worker("replicas=0"), "spec.runPolicy.suspend=true"}, ""},
        Combination{{"spec.reproducible=true"}, ""},
        Combination{{"spec.reproducible=true", Worker("maxReplicas=16")}, ""},
        Combination{{"spec.reproducible=true", Worker("maxReplicas=17")}, Worker("maxReplicas")},
        Combination{{"spec.reproducible=true", "spec.dataset.globalBatchSize=7"},
                    Worker("maxReplicas")},
        Combination{{"spec.reproducible=true", Worker("maxReplicas=null"), Worker("replicas=17")},
                    Worker("replicas")},
        Combination{{"spec.reproducible=true", Worker("maxReplicas=null")}, ""},
        Combination{{"spec.exchange.none={}", Worker("replicas=1"), Worker("maxReplicas=1")}, ""},
        Combination{{"spec.exchange.none={}", Worker("replicas=1")}, Worker("maxReplicas")},
        Combination{{"spec.exchange.none={}", Worker("maxReplicas=null")}, Worker("replicas")}));

INSTANTIATE_TEST_SUITE_P(
    Training, Combined,
    ::testing::Values(
        Combination{{"spec.optimizer.sgd.nesterov=true"}, "spec.optimizer.sgd.nesterov"},
        Combination{{"spec.optimizer.sgd.nesterov=true", "spec.optimizer.sgd.momentum=0.9"}, ""},
        Combination{{"spec.stop.steps=10", "spec.optimizer.schedule.warmupSteps=10"},
                    "spec.optimizer.schedule.warmupSteps"},
        Combination{{"spec.stop.steps=11", "spec.optimizer.schedule.warmupSteps=10"}, ""},
        Combination{{"spec.experiment.network.bandwidth=1G", "spec.experiment.network.delay=200us"},
                    ""},
        Combination{{"spec.experiment.network.bandwidth=1M"}, ""},
        Combination{{"spec.experiment.network.bandwidth=1T"}, ""},
        Combination{{"spec.experiment.network.bandwidth=999k"},
                    "spec.experiment.network.bandwidth"},
        Combination{{"spec.experiment.network.bandwidth=2T"}, "spec.experiment.network.bandwidth"},
        Combination{{"spec.experiment.network.bandwidth=-1G"}, "spec.experiment.network.bandwidth"},
        Combination{{"spec.experiment.network={}"}, "spec.experiment.network"},
        Combination{{Link(R"("from": "worker-0", "to": "worker-1", "bandwidth": "10M")")}, ""},
        Combination{{Link(R"("to": "parameter-server-0", "delay": "5ms")")}, ""},
        Combination{{Link(R"("to": "worker-1")")}, kLink},
        Combination{{Link(R"("from": "worker-1", "to": "worker-1", "delay": "5ms")")},
                    "spec.experiment.network.links[0].to"},
        Combination{{Link(R"("to": "worker-1", "bandwidth": "10k")")},
                    "spec.experiment.network.links[0].bandwidth"},
        Combination{{Link(R"("to": "coordinator-0", "delay": "5ms")")},
                    "spec.experiment.network.links[0].to"},
        Combination{{"spec.validation.patience=3"}, ""},
        Combination{{"spec.validation.patience=3", "spec.dataset.validation=null"},
                    "spec.validation.patience"},
        Combination{{"spec.validation.keepBest=true", "spec.dataset.validation=null"},
                    "spec.validation.keepBest"},
        Combination{{Target("validation/loss"), "spec.stop.target.atMost=1",
                     "spec.dataset.validation=null"},
                    "spec.stop.target"},
        Combination{{Target("validation/loss"), "spec.stop.target.atMost=1"}, ""},
        Combination{{Target("validation/loss"), "spec.stop.target.atLeast=1"},
                    "spec.stop.target.atLeast"},
        Combination{{Target("validation/accuracy"), "spec.stop.target.atMost=1"},
                    "spec.stop.target.atMost"},
        Combination{{Target("validation/accuracy"), "spec.stop.target.atLeast=0.95"}, ""},
        Combination{{Target("validation/accuracy"), "spec.stop.target.atLeast=95"},
                    "spec.stop.target.atLeast"},
        Combination{{Target("train/loss"), "spec.stop.target.atLeast=1"},
                    "spec.stop.target.metric"},
        Combination{{Target("Validation Loss"), "spec.stop.target.atLeast=1"},
                    "spec.stop.target.metric"}));

constexpr char kRegression[] =
    R"(spec.workload={"regression": {"model": {"mlp": {"hidden": [8]}}}})";
constexpr char kAutoencoder[] =
    R"(spec.workload={"autoencoder": {"model": {"autoencoder": {"hidden": [8, 2]}}}})";
constexpr char kTwoColumns[] = R"(spec.dataset.train.csv.labelColumns=["a", "b"])";
constexpr char kLabelColumn[] = "spec.dataset.train.csv.labelColumn=label";
constexpr char kNoOtherSet[] = "spec.dataset.validation=null";

INSTANTIATE_TEST_SUITE_P(
    Numbers, Combined,
    ::testing::Values(
        Combination{{kRegression}, ""}, Combination{{kAutoencoder}, ""},
        Combination{{kRegression, "spec.reproducible=true", "spec.dataset.microBatchSize=4"}, ""},
        Combination{{kRegression, Target("validation/r2"), "spec.stop.target.atLeast=-1"}, ""},
        Combination{{kRegression, Target("validation/r2"), "spec.stop.target.atMost=1"},
                    "spec.stop.target.atMost"},
        Combination{{kRegression, Target("validation/rmse"), "spec.stop.target.atMost=1"}, ""},
        Combination{{kAutoencoder, Target("validation/r2"), "spec.stop.target.atLeast=1"},
                    "spec.stop.target.metric"},
        Combination{{kRegression, kTwoColumns, kNoOtherSet}, ""},
        Combination{{kAutoencoder, kTwoColumns, kNoOtherSet}, ""},
        Combination{{kRegression, kTwoColumns, kLabelColumn, kNoOtherSet},
                    "spec.dataset.train.csv.labelColumns"},
        Combination{{kTwoColumns, kNoOtherSet}, "spec.dataset.train.csv.labelColumns"},
        Combination{{kRegression, kTwoColumns}, "spec.dataset.validation.csv.labelColumns"},
        Combination{{kRegression, R"(spec.dataset.train={"synthetic": {}})", kNoOtherSet},
                    "spec.dataset.train.synthetic"},
        Combination{{kAutoencoder, R"(spec.dataset.train={"synthetic": {}})", kNoOtherSet}, ""},
        Combination{{R"(spec.workload={"regression": {"model": {"lenet5": {}}}})"},
                    "spec.dataset.train.csv.shape"},
        Combination{
            {R"(spec.workload={"regression": {"model": {"autoencoder": {"hidden": [2]}}}})"},
            "spec.workload.regression.model.autoencoder"},
        Combination{{R"(spec.workload={"regression": {"model": {"layers": [{"flatten": {}},
                        {"dense": {"units": 3}}]}}})"},
                    "spec.workload.regression.model.layers"},
        Combination{{kAutoencoder, "spec.workload.autoencoder.loss=BinaryCrossEntropy"},
                    "spec.dataset.normalize"},
        Combination{{kAutoencoder, "spec.workload.autoencoder.loss=BinaryCrossEntropy",
                     "spec.dataset.normalize=false", R"(spec.dataset.train={"synthetic": {}})",
                     kNoOtherSet},
                    "spec.dataset.train.synthetic"},
        Combination{{kAutoencoder, "spec.workload.autoencoder.loss=BinaryCrossEntropy",
                     "spec.dataset.normalize=false"},
                    ""},
        Combination{{"spec.dataset.microBatchSize=4"}, ""},
        Combination{{R"(spec.workload={"linearRegression": {}})", "spec.dataset.microBatchSize=4"},
                    "spec.dataset.microBatchSize"}));

std::string TrainShape(const std::string& rest) { return "spec.dataset.train.csv.shape=" + rest; }
constexpr char kNoValidation[] = "spec.dataset.validation=null";
std::string Synthetic(const std::string& rest) { return "spec.dataset.train.synthetic." + rest; }

INSTANTIATE_TEST_SUITE_P(
    Data, Combined,
    ::testing::Values(
        Combination{{TrainShape("[64]")}, "spec.dataset.validation.csv.shape"},
        Combination{{TrainShape("null")}, ""},
        Combination{{TrainShape("[1048576,1048576,1048576,1048576]"), kNoValidation},
                    "spec.dataset.train.csv.shape"},
        Combination{{Synthetic("shape=[4096,4096]"), Synthetic("samples=1000"), kNoValidation},
                    "spec.dataset.train.synthetic.samples"},
        Combination{{Synthetic("shape=[4096]"), Synthetic("samples=1000"), kNoValidation}, ""},
        Combination{{"spec.dataset.train.csv.classes=10", "spec.dataset.validation.csv.classes=9"},
                    "spec.dataset.validation"},
        Combination{{"spec.dataset.train.csv.classes=10"}, ""},
        Combination{{"spec.dataset.train.idx.imagesUri=a", "spec.dataset.train.idx.labelsUri=a"},
                    "spec.dataset.train.idx.labelsUri"},
        Combination{
            {"spec.dataset.train.idx.imagesUri=a", "spec.dataset.train.idx.labelsUri=b", kLenet},
            ""},
        Combination{{kLenet}, "spec.dataset.train.csv.shape"},
        Combination{{kLenet, TrainShape("[1,28,28]"), kNoValidation}, ""},
        Combination{{kLenet, TrainShape("[3,20,20]"), kNoValidation}, ""},
        Combination{{kLenet, TrainShape("[1,19,28]"), kNoValidation},
                    "spec.dataset.train.csv.shape"},
        Combination{{kLenet, TrainShape("[784]"), kNoValidation}, "spec.dataset.train.csv.shape"},
        Combination{{kLenet, TrainShape("null"), kNoValidation}, "spec.dataset.train.csv.shape"}));

constexpr char kLanguage[] = "spec.workload.languageModel";
constexpr char kText[] = R"(spec.dataset={"train": {"text": {"uri": "a"}}})";
std::string Transformer(const std::string& fields) {
  return absl::StrCat(kLanguage, "={\"model\": {\"transformer\": {", fields, "}}}");
}
std::string Symbols(const std::string& units) {
  return absl::StrCat(kLanguage, R"(={"symbols": "Bytes", "model": {"layers": [)",
                      R"({"embedding": {"width": 4}}, {"dense": {"units": )", units, "}}]}}");
}

INSTANTIATE_TEST_SUITE_P(
    LanguageModels, Combined,
    ::testing::Values(
        Combination{{Transformer(""), kText}, ""},
        Combination{{Transformer(R"("width": 10, "heads": 4)"), kText},
                    absl::StrCat(kLanguage, ".model.transformer")},
        Combination{{Symbols("256"), kText}, ""},
        Combination{{Symbols("255"), kText}, absl::StrCat(kLanguage, ".model.layers")},
        Combination{{Transformer(""), kText, "spec.dataset.train.text.begin=0.9"}, ""},
        Combination{{Transformer(""), kText, "spec.dataset.train.text.begin=0.9",
                     "spec.dataset.train.text.end=0.9"},
                    "spec.dataset.train.text.end"},
        Combination{{Transformer(""), kText,
                     R"(spec.dataset.validation={"text": {"uri": "b", "begin": 1}})"},
                    "spec.dataset.validation.text.end"},
        Combination{{Transformer(""), kText, "spec.reproducible=true"}, ""},
        Combination{
            {Transformer(""), kText, "spec.stop.target.metric=validation/perplexity",
             "spec.stop.target.atMost=9", R"(spec.dataset.validation={"text": {"uri": "b"}})"},
            ""},
        Combination{
            {Transformer(""), kText, "spec.stop.target.metric=validation/accuracy",
             "spec.stop.target.atLeast=0.5", R"(spec.dataset.validation={"text": {"uri": "b"}})"},
            "spec.stop.target.metric"}));

constexpr char kModel[] = "spec.workload.classification.model";
std::string Layers(const std::string& layers) {
  return absl::StrCat(kModel, "={\"layers\": [", layers, "]}");
}
constexpr char kNormalised[] = R"({"flatten": {}}, {"batchNorm": {}}, {"dense": {}})";
constexpr char kEmbedded[] =
    R"({"embedding": {"rows": 9, "width": 2}}, {"flatten": {}}, {"dense": {}})";

INSTANTIATE_TEST_SUITE_P(
    Models, Combined,
    ::testing::Values(
        Combination{{Layers(R"({"flatten": {}}, {"dense": {"units": 4}}, {"dense": {}})")}, ""},
        Combination{{Layers(R"({"flatten": {}}, {"dense": {}}, {"dense": {}})")},
                    absl::StrCat(kModel, ".layers[1].dense")},
        Combination{{Layers(R"({"dense": {}})")}, absl::StrCat(kModel, ".layers[0].dense")},
        Combination{{Layers(R"({"convolution": {"channels": 2, "kernel": 9}})")},
                    absl::StrCat(kModel, ".layers[0].convolution")},
        Combination{{Layers("{}")}, absl::StrCat(kModel, ".layers[0]")},
        Combination{{Layers("")}, absl::StrCat(kModel, ".layers")},
        // Without a shape in the file only the data can tell.
        Combination{{Layers(R"({"dense": {}})"), TrainShape("null"), kNoValidation}, ""},
        Combination{{absl::StrCat(kModel, "={\"resnet18\": {}}")}, "spec.dataset.train.csv.shape"},
        Combination{{absl::StrCat(kModel, ".resnet18={}"), TrainShape("[3,32,32]"), kNoValidation},
                    ""},
        Combination{{absl::StrCat(kModel, "={}")}, kModel}, Combination{{Layers(kNormalised)}, ""},
        Combination{{Layers(kNormalised), "spec.reproducible=true"}, ""},
        Combination{
            {Layers(kNormalised), "spec.reproducible=true", "spec.dataset.globalBatchSize=31"},
            absl::StrCat(kModel, ".layers[1]")},
        Combination{{Layers(kNormalised), "spec.compression.codec.float16={}"}, ""},
        Combination{{Layers(kNormalised), "spec.compression.codec.int8={}"},
                    absl::StrCat(kModel, ".layers[1]")},
        Combination{{Layers(kNormalised), "spec.exchange.parameterServer={}"},
                    absl::StrCat(kModel, ".layers[1]")},
        Combination{{absl::StrCat(kModel, ".resnet18={}"), TrainShape("[3,32,32]"), kNoValidation,
                     "spec.exchange.parameterServer={}"},
                    absl::StrCat(kModel, ".resnet18")},
        Combination{{Layers(kEmbedded), TrainShape("[64]"), kNoValidation},
                    "spec.dataset.normalize"},
        Combination{
            {Layers(kEmbedded), TrainShape("[64]"), kNoValidation, "spec.dataset.normalize=false"},
            ""}));

TEST(Models, AListOfLayersIsOneOfTheKinds) {
  EXPECT_THAT(ErrorsOf(DigitsJobWith(
                  {absl::StrCat(kModel, "={\"mlp\": {}, \"layers\": [{\"relu\": {}}]}")})),
              StartsWith(absl::StrCat(kModel, ": holds mlp and layers; leave one of them")));
  // Whoever sets one takes the other away.
  EXPECT_EQ(ErrorsOf(DigitsJobWith({absl::StrCat(kModel,
                                                 ".layers=[{\"flatten\": {}}, "
                                                 "{\"dense\": {}}]")})),
            "");
}

std::string Template(const std::string& rest) { return "spec.replicaSpecs.worker.template" + rest; }

INSTANTIATE_TEST_SUITE_P(
    Templates, Combined,
    ::testing::Values(
        Combination{{Template(R"(={"metadata":{"labels":{"a":"b"}},"spec":{"containers":[
                       {"name":"trainer"},{"name":"side"}]}})")},
                    ""},
        Combination{{Template(R"(={})")}, ""},
        Combination{{Template(R"(={"sepc":{}})")}, Template(".sepc")},
        Combination{{Template(R"(={"metadata":{"name":"x"}})")}, Template(".metadata.name")},
        Combination{{Template(R"(={"spec":[]})")}, Template(".spec")},
        Combination{{Template(R"(={"spec":{"containers":{}}})")}, Template(".spec.containers")},
        Combination{{Template(R"(={"spec":{"containers":[{}]}})")},
                    Template(".spec.containers[0].name")},
        Combination{{Template(R"(={"spec":{"containers":[{"name":"a"},{"name":"a"}]}})")},
                    Template(".spec.containers[1].name")},
        Combination{{Template(R"(={"spec":{"restartPolicy":"Always"}})")},
                    Template(".spec.restartPolicy")},
        Combination{{R"(spec.replicaSpecs.coordinator.template={"x":1})"},
                    "spec.replicaSpecs.coordinator.template.x"}));

constexpr char kServers[] = "spec.exchange.parameterServer={}";
constexpr char kFactors[] = "spec.update.activations={}";
constexpr char kAsynchronousModel[] = "spec.exchange.parameterServer.consistency.asynchronous={}";
std::string Server(const std::string& rest) { return "spec.replicaSpecs.parameterServer." + rest; }
std::string Exchange(const std::string& rest) { return "spec.exchange.parameterServer." + rest; }

INSTANTIATE_TEST_SUITE_P(
    ParameterServers, Combined,
    ::testing::Values(
        Combination{{kServers}, ""}, Combination{{kServers, Server("replicas=3")}, ""},
        Combination{{Server("replicas=2")}, "spec.replicaSpecs.parameterServer"},
        Combination{{Exchange("replication=2"), Server("replicas=1")}, ""},
        Combination{{Exchange("replication=4")}, Exchange("replication")},
        Combination{{Exchange("replication=2"), Server("replicas=1"), Server("maxReplicas=1")},
                    Server("maxReplicas")},
        Combination{{kServers, Server("maxReplicas=2"), Server("replicas=3")}, Server("replicas")},
        Combination{{kServers, Server("maxReplicas=2"), Server("minReplicas=3")},
                    Server("minReplicas")},
        Combination{{kServers, Server("minReplicas=2")}, Server("replicas")},
        Combination{{kServers, Server("replicas=0")}, Server("replicas")},
        Combination{{kServers, Server("replicas=0"), "spec.runPolicy.suspend=true"}, ""},
        Combination{{kServers, Server(R"(template={"x":1})")}, Server("template.x")},
        Combination{{kServers, "spec.reproducible=true"}, "spec.reproducible"},
        Combination{{"spec.optimizer.adagrad={}"}, "spec.optimizer.adagrad"},
        Combination{{"spec.optimizer.adaRevision={}"}, "spec.optimizer.adaRevision"},
        Combination{{"spec.optimizer.delayCompensated={}"}, "spec.optimizer.delayCompensated"},
        Combination{{"spec.optimizer.ftrl={}"}, "spec.optimizer.ftrl"},
        Combination{{kServers, "spec.optimizer.ftrl={}"}, ""},
        Combination{{"spec.optimizer.proximalGradient={}"}, "spec.optimizer.proximalGradient"},
        Combination{{kServers, "spec.optimizer.proximalGradient.l1=0.01"}, ""},
        Combination{{kServers, "spec.optimizer.proximalGradient.l1=-1"},
                    "spec.optimizer.proximalGradient.l1"},
        Combination{{"spec.update.localSgd.pushEvery=5", Exchange("consistency.asynchronous={}"),
                     "spec.optimizer.proximalGradient={}"},
                    "spec.update.localSgd"},
        Combination{{Exchange("topology.tree={}"), "spec.optimizer.proximalGradient={}"}, ""},
        Combination{{Exchange("topology.tree={}"), Exchange("consistency.asynchronous={}"),
                     "spec.optimizer.proximalGradient={}"},
                    Exchange("topology.tree")},
        Combination{{Exchange("consistency.backupWorkers.backups=1")}, ""},
        Combination{{Exchange("consistency.backupWorkers.backups=2")},
                    Exchange("consistency.backupWorkers.backups")},
        Combination{{"spec.update.localSgd.pushEvery=5", Exchange("consistency.asynchronous={}")},
                    ""},
        Combination{{"spec.update.localSgd.pushEvery=5"}, "spec.update.localSgd"},
        Combination{{"spec.update.localSgd={}", Exchange("consistency.eagerStaleSynchronous={}")},
                    "spec.update.localSgd"},
        Combination{{Exchange("samplesPerPush=16")}, ""},
        Combination{{Exchange("samplesPerPush=64")}, ""},
        Combination{{Exchange("samplesPerPush=48")}, Exchange("samplesPerPush")},
        Combination{{Exchange("samplesPerPush=128")}, Exchange("samplesPerPush")},
        Combination{{Exchange("samplesPerPush=48"), "spec.dataset.globalBatchSize=96"}, ""},
        Combination{{Exchange("samplesPerPush=1"), "spec.dataset.globalBatchSize=1024"}, ""},
        Combination{{Exchange("samplesPerPush=1"), "spec.dataset.globalBatchSize=4096"},
                    Exchange("samplesPerPush")},
        Combination{{Exchange("samplesPerPush=48"), Exchange("consistency.asynchronous={}")}, ""},
        Combination{{Exchange("topology.tree.fanout=2")}, ""},
        Combination{{Exchange("topology.tree.fanout=1")}, Exchange("topology.tree.fanout")},
        Combination{{Exchange("topology.hostReduce={}"), Exchange("consistency.softSync={}")}, ""},
        Combination{{Exchange("topology.tree={}"), Exchange("consistency.backupWorkers.backups=1")},
                    Exchange("topology.tree")},
        Combination{
            {Exchange("topology.hostReduce={}"), Exchange("consistency.eagerStaleSynchronous={}")},
            Exchange("topology.hostReduce")},
        Combination{{Exchange("topology.tree={}"), "spec.update.localSgd.pushEvery=5",
                     Exchange("consistency.asynchronous={}")},
                    Exchange("topology.tree")},
        Combination{{Exchange("topology.hostReduce={}"), "spec.optimizer.adaRevision={}"},
                    Exchange("topology.hostReduce")}));

constexpr char kSparse[] = "spec.workload.sparseLogisticRegression={}";
std::string Libsvm(const std::string& which) {
  return "spec.dataset." + which + ".libsvm.uri=data/a.svm";
}

INSTANTIATE_TEST_SUITE_P(
    Sparse, Combined,
    ::testing::Values(
        Combination{{kSparse, kServers, Libsvm("train"), Libsvm("validation")}, ""},
        Combination{{kSparse, kServers, Libsvm("train"), kNoValidation}, ""},
        Combination{{kSparse, Libsvm("train"), kNoValidation},
                    "spec.workload.sparseLogisticRegression"},
        Combination{{kSparse, kServers, kNoValidation}, "spec.dataset.train.csv"},
        Combination{{kSparse, kServers, Libsvm("train")}, "spec.dataset.validation.csv"},
        Combination{{kServers, Libsvm("train"), kNoValidation}, "spec.dataset.train.libsvm"},
        Combination{{kSparse, kServers, Libsvm("train"), kNoValidation,
                     Exchange("consistency.eagerStaleSynchronous={}")},
                    Exchange("consistency.eagerStaleSynchronous")},
        Combination{{kSparse, kServers, Libsvm("train"), kNoValidation,
                     Exchange("consistency.asynchronous={}"), "spec.update.localSgd.pushEvery=5"},
                    "spec.update.localSgd"},
        Combination{
            {kSparse, kServers, Libsvm("train"), kNoValidation, "spec.optimizer.adaRevision={}"},
            "spec.optimizer.adaRevision"}));

// `changes` of a sparse job whose worker's threads share its weights.
Combination Hogwild(std::vector<std::string> changes, const std::string& path) {
  std::vector<std::string> all = {kSparse, "spec.update.hogwild={}", kAsynchronousModel,
                                  Libsvm("train"), kNoValidation};
  all.insert(all.end(), changes.begin(), changes.end());
  return {all, path};
}
constexpr char kRate[] = "spec.optimizer.sgd.learningRate=0.1";

INSTANTIATE_TEST_SUITE_P(
    OfHogwild, Combined,
    ::testing::Values(
        Hogwild({kRate}, ""), Hogwild({kRate, "spec.update.hogwild.threads=256"}, ""),
        Hogwild({kRate, "spec.workload.sparseLogisticRegression.l2=0.1"}, ""),
        Hogwild({"spec.update.hogwild.threads=0"}, "spec.update.hogwild.threads"),
        Hogwild({"spec.update.hogwild.threads=257"}, "spec.update.hogwild.threads"),
        Hogwild({Exchange("topology.flat={}")}, ""),
        Hogwild({Exchange("topology.tree={}")}, Exchange("topology.tree")),
        Hogwild({"spec.optimizer.sgd.momentum=0.9"}, "spec.optimizer.sgd.momentum"),
        Hogwild({"spec.optimizer.sgd.weightDecay=0.1"}, "spec.optimizer.sgd.weightDecay"),
        Hogwild({"spec.optimizer.adam={}"}, "spec.optimizer.adam"),
        Hogwild({"spec.optimizer.adamW={}"}, "spec.optimizer.adamW"),
        Hogwild({"spec.optimizer.adagrad={}"}, "spec.optimizer.adagrad"),
        Hogwild({"spec.optimizer.delayCompensated={}"}, "spec.optimizer.delayCompensated"),
        Hogwild({"spec.optimizer.ftrl={}"}, "spec.optimizer.ftrl"),
        Hogwild({"spec.optimizer.proximalGradient={}"}, "spec.optimizer.proximalGradient"),
        Combination{{"spec.update.hogwild={}", kAsynchronousModel}, "spec.update.hogwild"}));

INSTANTIATE_TEST_SUITE_P(
    OfFilters, Combined,
    ::testing::Values(
        Combination{{kServers, "spec.compression={}"}, ""},
        Combination{{kServers, "spec.compression.codec.bfloat16={}"}, ""},
        Combination{{"spec.compression.codec.float16={}", "spec.compression.errorFeedback=true"},
                    ""},
        Combination{{"spec.compression.errorFeedback=true"}, "spec.compression.errorFeedback"},
        Combination{{"spec.compression.codec.int8.sharedScale=true"}, ""},
        Combination{{kServers, "spec.compression.codec.int8.sharedScale=true"},
                    "spec.compression.codec.int8.sharedScale"},
        Combination{{kServers, "spec.compression.codec.ternGrad.sharedScale=true"},
                    "spec.compression.codec.ternGrad.sharedScale"},
        Combination{{"spec.compression.codec.float16={}", "spec.reproducible=true"},
                    "spec.compression.codec.float16"},
        Combination{{kServers, "spec.compression.codec.float16={}",
                     "spec.compression.errorFeedback=true", "spec.update.activations={}"},
                    "spec.compression.errorFeedback"},
        Combination{{kServers, "spec.compression.keyCache=true"}, "spec.compression.keyCache"},
        Combination{{kServers, "spec.compression.keyCache=false"}, "spec.compression.keyCache"},
        Combination{{kSparse, kServers, Libsvm("train"), kNoValidation, "spec.compression={}"}, ""},
        Combination{{kSparse, kServers, Libsvm("train"), kNoValidation,
                     "spec.compression.keyCache=false", "spec.compression.codec.bfloat16={}"},
                    ""},
        Combination{{kSparse, kServers, Libsvm("train"), kNoValidation,
                     R"(spec.compression.codec={"half": {}})"},
                    "spec.compression.codec.half"}));

// `changes` of a sparse job whose workers leave out what cannot change.
Combination Kkt(const std::string& model, std::vector<std::string> changes,
                const std::string& path = "spec.compression.kktFilter") {
  std::vector<std::string> all = {kSparse, Libsvm("train"), kNoValidation,
                                  "spec.compression.kktFilter=true",
                                  Exchange("consistency." + model + "={}")};
  all.insert(all.end(), changes.begin(), changes.end());
  return {all, path};
}
constexpr char kPenalty[] = "spec.optimizer.proximalGradient.l1=0.01";

INSTANTIATE_TEST_SUITE_P(
    OfTheKktFilter, Combined,
    ::testing::Values(Kkt("asynchronous", {kPenalty}, ""), Kkt("boundedDelay", {kPenalty}, ""),
                      Kkt("staleSynchronous", {kPenalty, "spec.compression.codec.bfloat16={}"}, ""),
                      Kkt("bulkSynchronous", {kPenalty}), Kkt("backupWorkers", {kPenalty}),
                      Kkt("softSync", {kPenalty}), Kkt("asynchronous", {}),
                      Kkt("asynchronous", {"spec.optimizer.proximalGradient={}"}),
                      Kkt("asynchronous", {"spec.optimizer.ftrl.l1=0.01"}),
                      Combination{{kSparse, kServers, Libsvm("train"), kNoValidation,
                                   "spec.compression.kktFilter=false"},
                                  ""},
                      Combination{{"spec.compression.kktFilter=true",
                                   Exchange("consistency.asynchronous={}"), kPenalty},
                                  "spec.compression.kktFilter"}));

INSTANTIATE_TEST_SUITE_P(
    OfFullyConnected, Combined,
    ::testing::Values(
        Combination{{kServers, kFactors}, ""},
        Combination{{kServers, kFactors, Exchange("topology.flat={}")}, ""},
        Combination{{kServers, "spec.update.gradient={}", Exchange("topology.tree={}")}, ""},
        Combination{{kFactors}, "spec.update.activations"},
        Combination{{kServers, kFactors, kAsynchronousModel}, ""},
        Combination{{kServers, kFactors, Exchange("topology.tree={}")}, "spec.update.activations"},
        Combination{{kServers, kFactors, Exchange("topology.hostReduce={}")},
                    "spec.update.activations"},
        Combination{{kSparse, kServers, Libsvm("train"), kNoValidation, kFactors},
                    "spec.update.activations"}));

INSTANTIATE_TEST_SUITE_P(
    WithoutEffect, Combined,
    ::testing::Values(
        Combination{{"spec.reproducible=true", "spec.exchange.allReduce.algorithm=Ring"},
                    "spec.exchange.allReduce.algorithm"},
        Combination{{"spec.reproducible=true", "spec.preset=horovod"}, ""},
        Combination{{"spec.reproducible=true", "spec.preset=horovod",
                     "spec.exchange.allReduce.algorithm=Ring"},
                    "spec.exchange.allReduce.algorithm"},
        Combination{{"spec.reproducible=true", "spec.exchange.allReduce.algorithm=Auto"}, ""},
        Combination{{"spec.exchange.allReduce.algorithm=Ring"}, ""},
        Combination{
            {kSparse, kServers, Libsvm("train"), kNoValidation, "spec.dataset.normalize=true"},
            "spec.dataset.normalize"},
        Combination{
            {kSparse, kServers, Libsvm("train"), kNoValidation, "spec.dataset.normalize=false"},
            ""},
        Combination{{kSparse, kServers, Libsvm("train"), kNoValidation,
                     "spec.workload.sparseLogisticRegression.hashedFeatures=268435456"},
                    ""},
        Combination{{kSparse, kServers, Libsvm("train"), kNoValidation,
                     "spec.workload.sparseLogisticRegression.hashedFeatures=268435457"},
                    "spec.workload.sparseLogisticRegression.hashedFeatures"}));

TEST(Validate, AMetricIsOneOfThoseThatTheWorkloadHas) {
  EXPECT_EQ(ErrorsOf(DigitsJobWith({Target("validation/acuracy"), "spec.stop.target.atLeast=0.9"})),
            "spec.stop.target.metric: spec.workload.classification has no metric "
            "\"validation/acuracy\"; it has validation/accuracy, validation/loss, "
            "validation/top5Accuracy, did you mean "
            "\"validation/accuracy\"?");
}

TEST(Validate, MessagesNameTheRemedy) {
  EXPECT_EQ(ErrorsOf(DigitsJobWith({Worker("minReplicas=9")})),
            "spec.replicaSpecs.worker.minReplicas: must be at most maxReplicas (8), not 9; lower "
            "it or raise maxReplicas");
  EXPECT_THAT(ErrorsOf(DigitsJobWith({"spec.preset=hovorod"})),
              HasSubstr("there are horovod, pytorchDdp, did you mean \"horovod\"?"));
  EXPECT_THAT(ErrorsOf(DigitsJobWith({Exchange("samplesPerPush=48")})),
              AllOf(HasSubstr("must divide dataset.globalBatchSize (64), not 48"),
                    HasSubstr("write 32, or leave it out")));
}

TEST(Validate, TellsErrorsOfSeveralRulesAtOnce) {
  const std::string errors =
      ErrorsOf(DigitsJobWith({Worker("minReplicas=9"), "spec.optimizer.sgd.nesterov=true"}));
  EXPECT_THAT(errors, HasSubstr("minReplicas"));
  EXPECT_THAT(errors, HasSubstr("nesterov"));
}

}  // namespace
}  // namespace starling::spec
