// SPDX-License-Identifier: Apache-2.0
#include "api/spec/reader.h"

#include <string>
#include <string_view>
#include <vector>

#include "api/spec/contract.h"
#include "api/spec/test_job.h"
#include "api/spec/writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// What reading DigitsJob says when the value at a JSON pointer is replaced.
std::string ErrorsWith(const std::string& pointer, std::string_view value) {
  Json job = DigitsJob();
  job[Json::json_pointer(pointer)] = Json::parse(value);
  v1alpha1::TrainingJob out;
  return Format(ReadJob(job, out));
}

TEST(Reader, ReadsAWholeJob) {
  v1alpha1::TrainingJob job;
  ASSERT_THAT(ReadJob(DigitsJob(), job), ElementsAre());
  EXPECT_EQ(job.metadata().name(), "digits");
  EXPECT_THAT(job.spec().workload().classification().model().mlp().hidden(), ElementsAre(128, 64));
  EXPECT_EQ(job.spec().replica_specs().worker().replicas(), 2);
  EXPECT_FALSE(job.spec().has_seed());
}

struct Wrong {
  std::string pointer;
  std::string value;
  std::string says;  // the whole answer
};

class WrongField : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongField, IsAnsweredWithItsPathAndRemedy) {
  EXPECT_EQ(ErrorsWith(GetParam().pointer, GetParam().value), GetParam().says);
}

INSTANTIATE_TEST_SUITE_P(
    Names, WrongField,
    ::testing::Values(
        Wrong{"/spec/replicaSpecs/worker/replcas", "1",
              "spec.replicaSpecs.worker.replcas: unknown field, did you mean \"replicas\"?"},
        Wrong{"/spec/optimiser", "{}",
              "spec.optimiser: unknown field, did you mean \"optimizer\"?"},
        Wrong{"/spec/qqqqqq", "1", "spec.qqqqqq: unknown field"},
        Wrong{"/spec/replica_specs", "{}",
              "spec.replica_specs: unknown field, did you mean \"replicaSpecs\"?"},
        Wrong{"/spec/a.b", "1", "spec[a.b]: unknown field"},
        Wrong{"/metadata/name", "\"Digits\"",
              "metadata.name: must begin with a lower-case letter and go on with lower-case "
              "letters, digits and '-'"},
        Wrong{"/kind", "\"Job\"", "kind: write TrainingJob"},
        Wrong{"/apiVersion", "\"v1\"", "apiVersion: write starling.dev/v1alpha1"}));

INSTANTIATE_TEST_SUITE_P(
    Types, WrongField,
    ::testing::Values(
        Wrong{"/spec", "[]", "spec: must be an object, not a list"},
        Wrong{"/spec/seed", "\"1\"", "spec.seed: must be a whole number, not the text \"1\""},
        Wrong{"/spec/seed", "3.7", "spec.seed: must be a whole number, not the number 3.7"},
        Wrong{"/spec/seed", "3.0", "spec.seed: must be a whole number, not the number 3.0"},
        Wrong{"/spec/seed", "true", "spec.seed: must be a whole number, not true"},
        Wrong{"/spec/reproducible", "\"no\"",
              "spec.reproducible: must be true or false, not the text \"no\""},
        Wrong{"/spec/reproducible", "1",
              "spec.reproducible: must be true or false, not the number 1"},
        Wrong{"/spec/dataset/train/csv/uri", "5",
              "spec.dataset.train.csv.uri: must be text, not the number 5; put it in quotes: "
              "\"5\""},
        Wrong{"/spec/dataset/train/csv/shape", "8",
              "spec.dataset.train.csv.shape: must be a list, not the number 8"},
        Wrong{"/spec/dataset/train/csv/shape", "[1, \"8\"]",
              "spec.dataset.train.csv.shape[1]: must be a whole number, not the text \"8\""},
        Wrong{"/spec/dataset/train/csv/shape", "[1, null]",
              "spec.dataset.train.csv.shape[1]: must be a whole number, not null"},
        Wrong{"/metadata/labels", "[]", "metadata.labels: must be an object, not a list"},
        Wrong{"/metadata/labels", "{\"a\": 1}",
              "metadata.labels.a: must be text, not the number 1; put it in quotes: \"1\""},
        Wrong{"/spec/replicaSpecs/worker/template", "\"x\"",
              "spec.replicaSpecs.worker.template: must be an object, not the text \"x\""},
        Wrong{"/spec/checkpoint", "{\"interval\": 30}",
              "spec.checkpoint.interval: must be a duration such as 500ms, 30s or 1h30m, not the "
              "number 30"},
        Wrong{"/spec/checkpoint", "{\"interval\": \"30\"}",
              "spec.checkpoint.interval: must be a duration such as 500ms, 30s or 1h30m, not the "
              "text \"30\""},
        Wrong{"/spec/replicaSpecs/worker/restartPolicy", "\"onFailure\"",
              "spec.replicaSpecs.worker.restartPolicy: must be one of OnFailure, ExitCode, Never, "
              "not the text \"onFailure\", did you mean \"OnFailure\"?"},
        Wrong{"/spec/replicaSpecs/worker/restartPolicy", "1",
              "spec.replicaSpecs.worker.restartPolicy: must be one of OnFailure, ExitCode, Never, "
              "not the number 1"},
        Wrong{"/spec/replicaSpecs/worker/restartPolicy", "\"Unspecified\"",
              "spec.replicaSpecs.worker.restartPolicy: must be one of OnFailure, ExitCode, Never, "
              "not the text \"Unspecified\""}));

INSTANTIATE_TEST_SUITE_P(
    Bounds, WrongField,
    ::testing::Values(
        Wrong{"/spec/dataset/globalBatchSize", "-64",
              "spec.dataset.globalBatchSize: must be at least 1, not -64"},
        Wrong{"/spec/replicaSpecs/worker/replicas", "2000",
              "spec.replicaSpecs.worker.replicas: must be at most 1024, not 2000"},
        Wrong{"/spec/seed", "9007199254740993",
              "spec.seed: must be a whole number from 0 to 9007199254740991"},
        Wrong{"/spec/seed", "1e300",
              "spec.seed: must be a whole number from 0 to 9007199254740991"},
        Wrong{"/spec/seed", "18446744073709551615",
              "spec.seed: must be a whole number from 0 to 9007199254740991"},
        Wrong{"/spec/optimizer", "{\"sgd\": {\"learningRate\": 0}}",
              "spec.optimizer.sgd.learningRate: must be more than 0, not 0"},
        Wrong{"/spec/optimizer", "{\"sgd\": {\"momentum\": 1}}",
              "spec.optimizer.sgd.momentum: must be at most 0.9999, not 1"},
        Wrong{"/spec/checkpoint", "{\"interval\": \"1ms\"}",
              "spec.checkpoint.interval: must be at least 100ms, not 1ms"},
        Wrong{"/spec/checkpoint", "{\"interval\": \"25h\"}",
              "spec.checkpoint.interval: must be at most 24h, not 25h"},
        Wrong{"/spec/dataset/train/csv/shape", "[1, 2, 3, 4, 5]",
              "spec.dataset.train.csv.shape: must have at most 4 entries, not 5"},
        Wrong{"/spec/dataset/train", "{\"synthetic\": {\"shape\": []}}",
              "spec.dataset.train.synthetic.shape: must have at least 1 entries, not 0"},
        Wrong{"/spec/dataset/train/csv/delimiter", "\";;\"",
              "spec.dataset.train.csv.delimiter: must be at most 1 characters long, not 2"},
        Wrong{"/spec/dataset/train/csv/delimiter", "\"\\n\"",
              "spec.dataset.train.csv.delimiter: must be one ASCII character that is no quote or "
              "line break"},
        Wrong{"/metadata/labels", "{\"a b\": \"x\"}",
              "metadata.labels[a b]: the key must be a name of at most 63 letters, digits, '-', "
              "'_' and '.', perhaps after a domain and '/'"},
        Wrong{"/metadata/labels", "{\"a\": \"x y\"}",
              "metadata.labels.a: must be at most 63 letters, digits, '-', '_' and '.', beginning "
              "and ending with a letter or digit"},
        Wrong{"/spec/dataset/train/csv/uri", "\"gs://bucket/x.csv\"",
              "spec.dataset.train.csv.uri: has the scheme gs, which is not known; write a path, "
              "file:///path, s3://bucket/key or https://host/path"},
        Wrong{"/spec/checkpoint", "{\"uri\": \"https://host/x\"}",
              "spec.checkpoint.uri: has the scheme https, which cannot be used here; write a path, "
              "file:///path or s3://bucket/prefix"},
        Wrong{"/spec/dataset/train/csv/uri", "\"a\\u0000b\"",
              "spec.dataset.train.csv.uri: must not hold a NUL character"}));

INSTANTIATE_TEST_SUITE_P(
    Presence, WrongField,
    ::testing::Values(
        Wrong{"/spec/exchange", "{\"allReduce\": {}, \"none\": {}}",
              "spec.exchange: holds allReduce and none; leave one of them, they exclude one "
              "another"},
        Wrong{
            "/spec/workload/classification/model", "{}",
            "spec.workload.classification.model: must hold exactly one of mlp, lenet5, "
            "linear, alexnet, vgg11, vgg16, resnet18, resnet50, transformer, autoencoder, layers"},
        Wrong{"/spec/workload", "{}",
              "spec.workload: must hold exactly one of classification, container, "
              "sparseLogisticRegression, linearRegression, pytorch, languageModel, regression, "
              "autoencoder"},
        Wrong{"/spec/workload", "null", "spec.workload: is required and missing"},
        Wrong{"/spec/stop", "{\"target\": {\"metric\": \"validation/accuracy\"}}",
              "spec.stop.target: must hold exactly one of atLeast, atMost"},
        Wrong{"/spec/optimizer", "{\"schedule\": {\"step\": {}}}",
              "spec.optimizer.schedule.step.every: is required and missing"},
        Wrong{"/metadata", "{}", "metadata.name: is required and missing"}));

TEST(Reader, TellsAllErrorsAtOnce) {
  const Json job = Json::parse(R"({
    "kind": "TrainingJob", "metadata": {"name": "x"},
    "spec": {"sed": 1, "dataset": {"globalBatchSize": 0, "train": {}},
             "exchange": {"none": {}, "allReduce": {"algorithm": "Rign"}}}})");
  v1alpha1::TrainingJob out;
  std::vector<std::string> paths;
  for (const FieldError& error : ReadJob(job, out)) paths.push_back(error.path);
  EXPECT_THAT(
      paths, ::testing::UnorderedElementsAre("apiVersion", "spec.sed", "spec.workload",
                                             "spec.dataset.globalBatchSize", "spec.dataset.train",
                                             "spec.exchange", "spec.exchange.allReduce.algorithm"));
}

TEST(Reader, NullMeansNotGiven) {
  EXPECT_EQ(ErrorsWith("/spec/seed", "null"), "");
  EXPECT_EQ(ErrorsWith("/spec/exchange", R"({"allReduce": {}, "none": null})"), "");
}

TEST(Reader, BoundsThemselvesAreAllowed) {
  EXPECT_EQ(ErrorsWith("/spec/seed", "9007199254740991"), "");
  EXPECT_EQ(ErrorsWith("/spec/seed", "0"), "");
  EXPECT_EQ(ErrorsWith("/spec/checkpoint", R"({"interval": "24h"})"), "");
  EXPECT_EQ(ErrorsWith("/metadata/labels", R"({"example.com/a": "", "b": "x_y.z"})"), "");
}

TEST(Reader, RefusesWholeNumbersBeyondTwoToThe53EvenWithoutABound) {
  v1alpha1::TrainingJobStatus status;
  EXPECT_THAT(ReadMessage(Json::parse(R"({"newestView": 9007199254740992})"), "", status),
              ElementsAre());
  EXPECT_EQ(status.newest_view(), std::int64_t{1} << 53);
  EXPECT_THAT(Format(ReadMessage(Json::parse(R"({"newestView": 9007199254740993})"), "", status)),
              HasSubstr("2^53"));
  EXPECT_THAT(Format(ReadMessage(Json::parse(R"({"newestView": -9007199254740993})"), "", status)),
              HasSubstr("2^53"));
}

TEST(Reader, LenientlyPassesOverWhatANewerProgramWrote) {
  const Json value = Json::parse(R"({"state": "Running", "invented": {"a": 1}, "progress": {
      "step": 7, "also": 1}, "newestView": 9223372036854775807})");
  v1alpha1::TrainingJobStatus status;
  EXPECT_THAT(ReadMessage(value, "status", status, kLenient), ElementsAre());
  EXPECT_EQ(status.progress().step(), 7);
  EXPECT_EQ(status.newest_view(), std::int64_t{9223372036854775807});
  EXPECT_THAT(Format(ReadMessage(value, "status", status)), HasSubstr("status.invented"));
}

TEST(Reader, LenientReadingStillRefusesWrongTypes) {
  v1alpha1::TrainingJobStatus status;
  EXPECT_THAT(
      Format(ReadMessage(Json::parse(R"({"progress": {"step": "7"}})"), "", status, kLenient)),
      HasSubstr("progress.step"));
}

TEST(Reader, StoredJobsMayHoldWhatTheServerAddsAndNothingElse) {
  Json job = DigitsJob();
  job["metadata"]["uid"] = "1";
  job["metadata"]["ownerReferences"] = Json::array();
  job["status"] = {{"invented", 1}, {"state", "Running"}};
  v1alpha1::TrainingJob out;
  EXPECT_EQ(Format(ReadStoredJob(job, out)), "");
  EXPECT_EQ(out.status().state(), "Running");
  job["spec"]["sed"] = 1;
  EXPECT_EQ(Format(ReadStoredJob(job, out)), "spec.sed: unknown field, did you mean \"seed\"?");
}

TEST(Reader, AFileMayBeWhatGetPrinted) {
  Json job = DigitsJob();
  job["metadata"]["uid"] = "1";
  job["metadata"]["resourceVersion"] = "12";
  job["status"] = {{"state", "Running"}};
  v1alpha1::TrainingJob out;
  EXPECT_EQ(Format(ReadJob(job, out)), "");
  EXPECT_FALSE(out.has_status());
}

TEST(Durations, FollowGo) {
  const auto nanos = [](std::string_view text) {
    const auto duration = ParseDuration(text);
    return duration.ok() ? duration->seconds() * 1'000'000'000 + duration->nanos() : -1;
  };
  EXPECT_EQ(nanos("0"), 0);
  EXPECT_EQ(nanos("0s"), 0);
  EXPECT_EQ(nanos("1h30m"), 5400'000'000'000);
  EXPECT_EQ(nanos("500ms"), 500'000'000);
  EXPECT_EQ(nanos("1.5s"), 1'500'000'000);
  EXPECT_EQ(nanos("1h0m0.25s"), 3600'250'000'000);
  EXPECT_EQ(nanos("7ns"), 7);
  EXPECT_EQ(nanos("2us3ns"), 2003);
  for (const char* text : {"", "1", "s", "1d", "-1s", "+1s", "1 s", "1s ", "1.s", ".5s", "inf",
                           "1e3s", "1H", "99999999999999h"}) {
    EXPECT_EQ(nanos(text), -1) << text;
  }
  for (const char* text : {"1h30m", "500ms", "1.5s", "7ns", "24h"}) {
    EXPECT_EQ(FormatDuration(ParseDuration(text).value()), text);
  }
}

TEST(Timestamps, AreRfc3339) {
  const auto time = ParseTimestamp("2026-01-31T13:00:00.25+01:00");
  ASSERT_TRUE(time.ok());
  EXPECT_EQ(FormatTimestamp(*time), "2026-01-31T12:00:00.25Z");
  EXPECT_EQ(FormatTimestamp(ParseTimestamp("1969-12-31T23:59:59.5Z").value()),
            "1969-12-31T23:59:59.5Z");
  for (const char* text : {"", "2026-01-31", "now", "infinite-future", "2026-13-01T00:00:00Z"}) {
    EXPECT_FALSE(ParseTimestamp(text).ok()) << text;
  }
}

TEST(Suggestions, NameTheNearestWordOnly) {
  EXPECT_EQ(DidYouMean("replcas", {"replicas", "template"}), ", did you mean \"replicas\"?");
  EXPECT_EQ(DidYouMean("RING", {"Ring", "Naive"}), ", did you mean \"Ring\"?");
  EXPECT_EQ(DidYouMean("hovorod", {"horovod"}), ", did you mean \"horovod\"?");
  EXPECT_EQ(DidYouMean("banana", {"replicas", "template"}), "");
  EXPECT_EQ(DidYouMean(std::string(1'000'000, 'a'), {"replicas"}), "");
  EXPECT_EQ(DidYouMean("x", {}), "");
}

}  // namespace
}  // namespace starling::spec
