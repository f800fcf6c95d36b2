// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "api/spec/job_file.h"
#include "api/spec/test_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json After(const std::string& path, const std::string& value) {
  Json job = DigitsJob();
  const absl::Status status = SetPath(job, path, value);
  EXPECT_TRUE(status.ok()) << status;
  return job;
}

std::string ErrorOf(const std::string& path, const std::string& value = "1") {
  Json job = DigitsJob();
  const absl::Status status = SetPath(job, path, value);
  EXPECT_EQ(job, DigitsJob()) << "a refused setting changed the job";
  return std::string(status.message());
}

TEST(SetPath, SetsScalarsByTheTypeOfTheirField) {
  EXPECT_EQ(After("spec.stop.epochs", "3")["spec"]["stop"]["epochs"], 3);
  EXPECT_EQ(After("spec.reproducible", "true")["spec"]["reproducible"], true);
  EXPECT_EQ(After("spec.checkpoint.interval", "1s")["spec"]["checkpoint"]["interval"], "1s");
  EXPECT_EQ(After("metadata.name", "123")["metadata"]["name"], "123");
  EXPECT_EQ(After("spec.exchange.allReduce.algorithm",
                  "Ring")["spec"]["exchange"]["allReduce"]["algorithm"],
            "Ring");
}

TEST(SetPath, SetsMapsListsAndForeignObjects) {
  EXPECT_EQ(After("metadata.labels[a.b/c]", "1")["metadata"]["labels"]["a.b/c"], "1");
  EXPECT_EQ(After("metadata.labels.team", "x")["metadata"]["labels"]["team"], "x");
  const std::string shape = "spec.dataset.train.csv.shape";
  EXPECT_EQ(After(shape, "[64]")["spec"]["dataset"]["train"]["csv"]["shape"], Json({64}));
  EXPECT_EQ(After(shape + "[1]", "4")["spec"]["dataset"]["train"]["csv"]["shape"], Json({1, 4, 8}));
  EXPECT_EQ(After(shape + "[3]", "4")["spec"]["dataset"]["train"]["csv"]["shape"],
            Json({1, 8, 8, 4}));
  EXPECT_EQ(After("spec.replicaSpecs.worker.template.spec.containers",
                  R"([{"name":"trainer"}])")["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
                                            ["containers"][0]["name"],
            "trainer");
}

TEST(SetPath, AnotherMemberOfAUnionTakesTheOthersOut) {
  Json job = After("spec.dataset.train.synthetic.samples", "10");
  EXPECT_FALSE(job["spec"]["dataset"]["train"].contains("csv"));
  EXPECT_EQ(job["spec"]["dataset"]["train"]["synthetic"]["samples"], 10);
}

TEST(SetPath, NullTakesAFieldBack) {
  EXPECT_EQ(ErrorsOf(After("spec.dataset.validation", "null")), "");
}

TEST(SetPath, WhatIsNotJsonIsLeftForTheReaderToRefuse) {
  EXPECT_EQ(ErrorsOf(After("spec.seed", "abc")),
            "spec.seed: must be a whole number, not the text \"abc\"");
}

TEST(SetPath, RefusesPathsThatLeadNowhere) {
  EXPECT_EQ(ErrorOf("spec.stop.epoch"), "spec.stop.epoch: unknown field, did you mean \"epochs\"?");
  EXPECT_THAT(ErrorOf("sepc.seed"), HasSubstr("sepc: unknown field, did you mean \"spec\"?"));
  EXPECT_THAT(ErrorOf("spec.seed.x"), HasSubstr("spec.seed: has no field \"x\""));
  EXPECT_THAT(ErrorOf("spec[0]"), HasSubstr("unknown field"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("path is empty"));
  EXPECT_THAT(ErrorOf("spec..seed"), HasSubstr("name is missing"));
  EXPECT_THAT(ErrorOf("metadata.labels[a"), HasSubstr("without its ]"));
  EXPECT_THAT(ErrorOf("spec.dataset.train.csv.shape[9]"), HasSubstr("no index of it"));
  EXPECT_THAT(ErrorOf("spec.dataset.train.csv.shape[x]"), HasSubstr("no index of it"));
  EXPECT_THAT(ErrorOf("status.state"), HasSubstr("written by the controller"));
  EXPECT_THAT(ErrorOf("metadata.name", "\xff"), HasSubstr("UTF-8"));
  std::string deep = "spec.replicaSpecs.worker.template";
  for (int i = 0; i < 40; ++i) deep += ".a";
  EXPECT_THAT(ErrorOf(deep), HasSubstr("too deep"));
}

TEST(SetPath, RefusesToLookIntoWhatHasNoFields) {
  Json job = DigitsJob();
  job["spec"] = 5;
  EXPECT_THAT(std::string(SetPath(job, "spec.seed", "1").message()),
              HasSubstr("spec: holds the number 5"));
}

}  // namespace
}  // namespace starling::spec
