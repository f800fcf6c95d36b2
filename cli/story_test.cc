// SPDX-License-Identifier: Apache-2.0
// What is told and shown: story, tables, pages, numbers.
#include "cli/story.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/format.h"
#include "cli/pages.h"

namespace starling::cli {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::int64_t kNow = 1'700'000'000;

class StoryTest : public testing::Test {
 protected:
  std::vector<std::string> Tell() {
    std::vector<std::string> texts;
    for (const Line& line : story_.Tell(status_, now_)) texts.push_back(line.text);
    return texts;
  }

  v1alpha1::Incident& AddIncident(const std::string& pod, std::int64_t seconds) {
    v1alpha1::Incident& incident = *status_.add_incidents();
    incident.set_pod(pod);
    incident.set_reason("WorkerFailed");
    incident.mutable_time()->set_seconds(seconds);
    incident.set_message(pod + " was killed by signal 9");
    return incident;
  }

  Story story_;
  v1alpha1::TrainingJobStatus status_;
  absl::Time now_ = absl::FromUnixSeconds(kNow);
};

TEST_F(StoryTest, AnIncidentIsToldOnceAndItsCostWhenThatIsKnown) {
  v1alpha1::Incident& incident = AddIncident("digits-worker-1", kNow);
  EXPECT_THAT(Tell(), ElementsAre("digits-worker-1 was killed by signal 9"));
  EXPECT_THAT(Tell(), IsEmpty());

  incident.set_detection_seconds(0.012);
  incident.mutable_time()->set_seconds(kNow + 1);  // corrected when the pod's end was read
  EXPECT_THAT(Tell(), IsEmpty()) << "half of the cost is no news";
  incident.set_recovery_seconds(0.031);
  incident.set_repeated_steps(1);
  EXPECT_THAT(Tell(), ElementsAre("digits-worker-1: noticed after 12 ms, training went on after 31 "
                                  "ms, 1 step repeated"));
  EXPECT_THAT(Tell(), IsEmpty());
}

TEST_F(StoryTest, WhereTheNewestStateIsLostTheStepIsToldFromWhichTrainingGoesOn) {
  v1alpha1::Incident& incident = AddIncident("", kNow);
  incident.clear_signal();
  incident.set_message("nobody that lives holds the newest state");
  incident.set_recovery_seconds(0);
  incident.set_resumed_step(67);
  incident.set_repeated_steps(11);
  EXPECT_THAT(Tell(), ElementsAre("nobody that lives holds the newest state: training went on from "
                                  "step 67, 11 steps repeated"));
}

TEST_F(StoryTest, AnIncidentWhoseMessageNamesNobodyIsToldWithItsPod) {
  AddIncident("digits-worker-1", kNow).set_message("it stopped answering");

  EXPECT_THAT(Tell(), ElementsAre("digits-worker-1: it stopped answering"));
}

TEST_F(StoryTest, WhatHappenedBeforeItBeganIsNotTold) {
  AddIncident("digits-worker-0", kNow - 60);
  story_.Begin(status_);
  EXPECT_THAT(Tell(), IsEmpty());

  AddIncident("digits-worker-1", kNow);
  EXPECT_THAT(Tell(), ElementsAre("digits-worker-1 was killed by signal 9"));
}

TEST_F(StoryTest, TheSamePodMayFailTwice) {
  AddIncident("digits-worker-1", kNow);
  Tell();
  AddIncident("digits-worker-1", kNow + 60);

  EXPECT_THAT(Tell(), ElementsAre("digits-worker-1 was killed by signal 9"));
}

TEST_F(StoryTest, IncidentsThatFallOutOfTheListAreNotToldAgain) {
  AddIncident("a", kNow);
  AddIncident("b", kNow);
  Tell();
  status_.mutable_incidents()->DeleteSubrange(0, 1);

  EXPECT_THAT(Tell(), IsEmpty());
}

TEST_F(StoryTest, StatesAreToldWhenTheyChange) {
  status_.set_state("Pending");
  EXPECT_THAT(Tell(), ElementsAre("waiting for the workers"));
  status_.set_state("Running");
  EXPECT_THAT(Tell(), ElementsAre("training"));
  EXPECT_THAT(Tell(), IsEmpty());
  status_.set_state("Restarting");
  EXPECT_THAT(Tell(), ElementsAre("training has stopped and is brought back"));
  status_.set_state("Running");
  EXPECT_THAT(Tell(), ElementsAre("training goes on"));
  status_.set_state("Failed");
  v1alpha1::Condition& failed = *status_.add_conditions();
  failed.set_type("Failed");
  failed.set_message("too many failures");
  EXPECT_THAT(Tell(), ElementsAre("failed: too many failures"));
}

TEST_F(StoryTest, ANewNumberOfWorkersIsTold) {
  status_.mutable_progress()->set_workers(2);
  EXPECT_THAT(Tell(), IsEmpty()) << "the first number is no change";
  status_.mutable_progress()->set_workers(4);
  EXPECT_THAT(Tell(), ElementsAre("now with 4 workers"));
  status_.mutable_progress()->set_workers(1);
  EXPECT_THAT(Tell(), ElementsAre("now with 1 worker"));
}

TEST_F(StoryTest, EpochsAreToldButNotFasterThanOneASecond) {
  v1alpha1::Progress& progress = *status_.mutable_progress();
  progress.set_epoch(1);
  progress.set_step(23);
  progress.set_loss(0.5);
  (*progress.mutable_metrics())["validation/accuracy"] = 0.91;
  EXPECT_THAT(Tell(), ElementsAre("epoch 1, step 23: loss 0.5, validation/accuracy 0.91"));

  progress.set_epoch(2);
  EXPECT_THAT(Tell(), IsEmpty());
  now_ += absl::Seconds(1);
  progress.set_epoch(3);
  EXPECT_THAT(Tell(), ElementsAre(HasSubstr("epoch 3")));
}

TEST_F(StoryTest, ProgressIsToldNowAndThenAndOnlyIfThereIsAny) {
  EXPECT_TRUE(story_.TellProgress(status_, now_).empty()) << "not a step yet";
  status_.mutable_progress()->set_step(10);
  status_.mutable_progress()->set_total_steps(100);
  ASSERT_EQ(story_.TellProgress(status_, now_).size(), 1U);
  now_ += absl::Seconds(60);
  EXPECT_TRUE(story_.TellProgress(status_, now_).empty()) << "no step since";
  status_.mutable_progress()->set_step(11);
  const auto lines = story_.TellProgress(status_, now_);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].text, "step 11 of 100");
  status_.mutable_progress()->set_step(12);
  EXPECT_TRUE(story_.TellProgress(status_, now_).empty()) << "too soon";
}

TEST(FormatTest, NumbersReadWell) {
  EXPECT_EQ(Thousands(0), "0");
  EXPECT_EQ(Thousands(999), "999");
  EXPECT_EQ(Thousands(1'234'567), "1 234 567");
  EXPECT_EQ(Thousands(-1000), "-1 000");
  EXPECT_EQ(Significant(0.96391), "0.9639");
  EXPECT_EQ(Significant(1.2e-7), "1.2e-07");
  EXPECT_EQ(Seconds(0.0012), "1.2 ms");
  EXPECT_EQ(Seconds(0.031), "31 ms");
  EXPECT_EQ(Seconds(4.24), "4.2 s");
  EXPECT_EQ(Seconds(59.7), "1 min 0 s");
  EXPECT_EQ(Seconds(7500), "2 h 5 min");
  EXPECT_EQ(Age(absl::Seconds(90)), "90s");
  EXPECT_EQ(Age(absl::Minutes(5) + absl::Seconds(3)), "5m3s");
  EXPECT_EQ(Age(absl::Hours(30)), "30h");
  EXPECT_EQ(Age(absl::Hours(72)), "3d");
}

TEST(PagesTest, TablesAreAligned) {
  EXPECT_EQ(Table({{"NAME", "AGE"}, {"a", "1s"}, {"longer-é", "2m"}}),
            "NAME       AGE\n"
            "a          1s\n"
            "longer-é   2m\n");
}

Json FinishedJob() {
  return Json::parse(R"({
    "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "digits", "namespace": "default", "uid": "u",
                 "creationTimestamp": "2023-11-14T22:10:00Z"},
    "spec": {"workload": {"classification": {"model": {"mlp": {}}}},
             "dataset": {"train": {"synthetic": {}}},
             "stop": {"epochs": 20, "target": {"metric": "validation/accuracy", "atLeast": 0.95}},
             "replicaSpecs": {"worker": {"replicas": 2}}},
    "status": {"state": "Succeeded",
      "conditions": [{"type": "Succeeded", "status": "True", "reason": "TargetReached"}],
      "replicaStatuses": {"worker": {"ready": 1}},
      "progress": {"epoch": 12, "step": 276, "totalSteps": 460, "loss": 0.0123, "workers": 2,
                   "samplesPerSecond": 4107.3, "metrics": {"validation/accuracy": 0.9639}},
      "incidents": [{"pod": "digits-worker-1", "reason": "WorkerFailed", "detectionSeconds": 0.012,
                     "recoverySeconds": 0.031, "repeatedSteps": 1,
                     "message": "digits-worker-1 was killed by signal 9"}],
      "goodput": {"compute": 6.1, "exchange": 2, "idle": 1.9, "input": 0, "server/idle": 4},
      "lastCheckpoint": {"name": "1-2-276", "step": 276, "uri": "/home/c/1-2-276"},
      "result": {"metrics": {"validation/accuracy": 0.9639, "validation/loss": 0.1213},
                 "steps": 276, "epochs": 12, "samples": 17244, "seconds": 4.2,
                 "targetReached": true,
                 "model": {"uri": "file:///home/model.safetensors", "sha256": "abc123"}}}})");
}

TEST(PagesTest, TheFinalPageHoldsTheNumbersAndTheIncidents) {
  EXPECT_EQ(FinalPage(ToMessage(FinishedJob())),
            "\n"
            "digits: Succeeded\n"
            "\n"
            "  validation accuracy   0.9639\n"
            "  validation loss       0.1213\n"
            "  training loss         0.0123\n"
            "  target                validation/accuracy at least 0.95: reached\n"
            "  epochs                12\n"
            "  steps                 276\n"
            "  samples               17 244\n"
            "  time                  4.2 s\n"
            "  samples a second      4 105\n"
            "  incidents             1\n"
            "                        digits-worker-1 was killed by signal 9: noticed after 12 ms, "
            "training went on after 31 ms, 1 step repeated\n"
            "  model                 /home/model.safetensors\n"
            "  model's SHA-256       abc123\n"
            "  last checkpoint       step 276, /home/c/1-2-276\n");
}

TEST(PagesTest, TheFinalPageOfAFailedJobSaysWhy) {
  Json job = FinishedJob();
  job["status"]["state"] = "Failed";
  job["status"].erase("result");
  job["status"]["conditions"] = Json::parse(R"([{"type": "Failed", "status": "True",
      "reason": "BackoffLimitExceeded", "message": "7 failures without progress"}])");

  const std::string page = FinalPage(ToMessage(job));

  EXPECT_THAT(page, HasSubstr("Failed (BackoffLimitExceeded: 7 failures without progress)"));
  EXPECT_THAT(page, Not(HasSubstr("steps  ")));
}

TEST(PagesTest, TheProgressLineFitsOneLine) {
  Json job = FinishedJob();
  job["status"]["state"] = "Running";
  job["status"]["progress"]["estimatedRemaining"] = "3s";

  EXPECT_EQ(ProgressLine(ToMessage(job)),
            "digits  epoch 12/20  step 276/460 60%  3.0 s left  loss 0.0123  accuracy 0.9639  2 "
            "workers  4 107 samples/s");
}

TEST(PagesTest, JobsPodsAndEventsHaveTables) {
  const absl::Time now = absl::FromUnixSeconds(kNow);
  EXPECT_THAT(JobsTable({FinishedJob()}, false, true, now),
              HasSubstr("default     digits   Succeeded   1/2       12      276    0.0123   0.9639 "
                        "    3m20s"));
  const Json pod = Json::parse(R"({
    "metadata": {"name": "digits-worker-0", "labels": {"starling.dev/role": "worker"},
                 "annotations": {"starling.dev/pid": "4242"},
                 "creationTimestamp": "2023-11-14T22:13:00Z"},
    "spec": {"nodeName": "local"},
    "status": {"phase": "Failed", "podIP": "127.0.0.2", "containerStatuses": [
      {"state": {"terminated": {"exitCode": 137, "signal": 9, "reason": "Error"}}}]}})");
  const std::string pods = PodsTable({pod}, true, false, now);
  EXPECT_THAT(pods, HasSubstr("digits-worker-0   Error    worker   127.0.0.2   4242   20s"));
  EXPECT_THAT(pods, HasSubstr("signal 9"));
  const Json event = Json::parse(R"({
    "eventTime": "2023-11-14T22:13:10.000000Z", "type": "Warning", "reason": "WorkerFailed",
    "regarding": {"kind": "TrainingJob", "name": "digits"}, "note": "a\u001b[31mred\nnote",
    "series": {"count": 3}})");
  const std::string events = EventsTable({event}, false, false, now);
  EXPECT_THAT(events, HasSubstr("10s         Warning   WorkerFailed   TrainingJob/digits"));
  EXPECT_THAT(events, HasSubstr("a [31mred note (3 times)")) << "no control characters";
}

TEST(PagesTest, ADescriptionHoldsEverySection) {
  const std::string page = DescribePage(FinishedJob(), {}, {}, absl::FromUnixSeconds(kNow));

  for (const char* part : {"Name:", "digits", "Conditions:", "TargetReached",
                           "Progress:", "276 of 460", "Result:", "abc123", "Pods:", "Events:"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, HasSubstr("Where the workers' time went:\n"));
  EXPECT_THAT(page, HasSubstr("compute    6.1 s   61.0 %\n"));
  EXPECT_THAT(page, HasSubstr("idle       1.9 s   19.0 %\n"));
  EXPECT_THAT(page, HasSubstr("idle   4.0 s   100.0 %\n")) << "parameter servers'";
  EXPECT_THAT(page, Not(HasSubstr("input ")));
}

TEST(PagesTest, ADescriptionSaysWhoMadeTheJobWhereThatIsKnown) {
  Json job = FinishedJob();
  const absl::Time now = absl::FromUnixSeconds(kNow);
  EXPECT_THAT(DescribePage(job, {}, {}, now), Not(HasSubstr("Created by:")));
  job["metadata"]["annotations"]["starling.dev/created-by"] = "ada@example.org\x1b[2J";
  EXPECT_THAT(DescribePage(job, {}, {}, now), HasSubstr("Created by:   ada@example.org"));
  EXPECT_THAT(DescribePage(job, {}, {}, now), Not(HasSubstr("\x1b")));
}

TEST(PagesTest, StragglersAreNamedWithTheirNodes) {
  Json job = FinishedJob();
  job["status"]["progress"]["stragglers"] = {
      {{"pod", "digits-worker-2"}, {"node", "node-b"}, {"ratio", 2.04}}};

  EXPECT_THAT(
      DescribePage(job, {}, {}, absl::FromUnixSeconds(kNow)),
      HasSubstr("straggler             digits-worker-2 on node-b works 2.0 times as long on "
                "each step as the fastest workers, which wait for it\n"));
}

TEST(PagesTest, ADescriptionTellsHowUpdatesTravelAndWhy) {
  Json job = FinishedJob();
  const absl::Time now = absl::FromUnixSeconds(kNow);
  EXPECT_THAT(DescribePage(job, {}, {}, now), Not(HasSubstr("over TCP")));
  job["status"]["progress"]["exchanges"] = {
      {{"exchange", "allReduce"},
       {"transport", "TCP"},
       {"algorithm", "RecursiveDoubling up to 8192 bytes, Ring beyond"},
       {"reason",
        "fastest where a message takes 52 us and 125 MB/s on the slowest of 6 measured "
        "links"}}};

  EXPECT_THAT(DescribePage(job, {}, {}, now),
              HasSubstr("allReduce             over TCP: RecursiveDoubling up to 8192 bytes, Ring "
                        "beyond, fastest where a message takes 52 us"));
}

TEST(PagesTest, AnObjectOfAStrangerIsShownAsFarAsItCanBeRead) {
  const Json strange = {{"metadata", {{"name", "x"}}}, {"spec", 7}, {"status", "well"}};

  EXPECT_THAT(JobsTable({strange}, true, false, absl::FromUnixSeconds(kNow)), HasSubstr("Pending"));
  EXPECT_THAT(DescribePage(strange, {}, {}, absl::FromUnixSeconds(kNow)), HasSubstr("x"));
}

TEST(TerminalTest, TheLiveLineMakesWayForOthers) {
  std::ostringstream out;
  std::ostringstream error;
  {
    Terminal terminal(out, error, {.live = true, .width = 10});
    terminal.Live("0123456789abc");
    terminal.Print("data\n");
    terminal.Live("x");
  }

  EXPECT_EQ(out.str(), "data\n");
  EXPECT_EQ(error.str(), "\r\033[K012345678\r\033[K\r\033[Kx\r\033[K");
}

TEST(TerminalTest, WithoutATerminalThereIsNoLiveLineAndNoColour) {
  std::ostringstream out;
  std::ostringstream error;
  Terminal terminal(out, error, {});

  terminal.Live("progress");
  terminal.Say(terminal.PaintError(Style::kRed, "line"));

  EXPECT_EQ(error.str(), "line\n");
}

}  // namespace
}  // namespace starling::cli
