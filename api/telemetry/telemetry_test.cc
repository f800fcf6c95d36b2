// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "api/telemetry/metric_table.h"
#include "api/telemetry/process_metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::telemetry {
namespace {

using ::testing::HasSubstr;

TEST(MetricTable, NamesSayTheirKindAndUnit) {
  std::set<std::string_view> names;
  for (const MetricRow& row : Metrics()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " stands there twice";
    const absl::string_view name(row.name.data(), row.name.size());
    EXPECT_EQ(row.kind == Kind::kCounter, absl::EndsWith(name, "_total")) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_EQ(row.help.back(), '.') << row.name;
    EXPECT_EQ(row.help.find('|'), std::string_view::npos) << row.name << " breaks the page's table";
    // Prometheus' own, and kube-state-metrics' and dcgm-exporter's: relabelling would collide.
    for (const char* taken : {"job", "instance", "namespace", "pod", "le"}) {
      const std::string labels = "," + std::string(row.labels) + ",";
      EXPECT_EQ(labels.find(std::string(",") + taken + ","), std::string::npos) << row.name;
    }
  }
}

TEST(MetricTable, ThePageListsEveryMetricWithItsTypeAndLabels) {
  const std::string page = MetricsPage();
  EXPECT_THAT(page, HasSubstr("## Parameter server\n\n| Metric | Type | Labels | Meaning |\n"));
  EXPECT_THAT(page, HasSubstr("| `starling_controller_jobs` | gauge | `job_namespace`, `state` |"));
  for (const MetricRow& row : Metrics()) {
    EXPECT_THAT(page, HasSubstr("| `" + std::string(row.name) + "` | "));
  }
}

TEST(MetricTable, HelpAndBoundsComeFromTheTable) {
  metrics::Registry registry;
  AddHistogram(registry, "starling_server_staleness_updates").Observe(3);
  const std::string text = registry.Serialize();
  EXPECT_THAT(text, HasSubstr("# HELP starling_server_staleness_updates Updates between a push's"));
  EXPECT_THAT(text, HasSubstr("starling_server_staleness_updates_bucket{le=\"4\"} 1\n"));
}

TEST(MetricTableDeathTest, WhatTheTableDoesNotSayIsOurOwnMistake) {
  metrics::Registry registry;
  EXPECT_DEATH(AddGauge(registry, "starling_hidden"), "stands in");
  EXPECT_DEATH(AddGauge(registry, "starling_worker_steps_total"), "of the kind");
  EXPECT_DEATH(AddGauge(registry, "starling_worker_step", {{"pod", "x"}}), "has the labels");
  EXPECT_DEATH(AddGauge(registry, "starling_job_members"), "has the labels");
}

TEST(ProcessMetrics, ReadsTheKernelsLine) {
  const ProcessFigures figures = ReadProcessFigures(
      "42 (odd ) name) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 12300 4096000 25 0", 100, 4096);
  EXPECT_DOUBLE_EQ(figures.cpu_seconds, 2.0);
  EXPECT_DOUBLE_EQ(figures.start_seconds, 123.0);
  EXPECT_DOUBLE_EQ(figures.virtual_bytes, 4096000);
  EXPECT_DOUBLE_EQ(figures.resident_bytes, 25 * 4096);
  EXPECT_DOUBLE_EQ(ReadProcessFigures("nonsense", 100, 4096).cpu_seconds, 0);
}

TEST(ProcessMetrics, TheAgeOfAProcessGoesWithTheClock) {
  const absl::Time begin = absl::Now();
  const absl::Duration age = ProcessAge();
  absl::SleepFor(absl::Milliseconds(100));
  const absl::Duration grown = ProcessAge() - age;
  EXPECT_GE(age, absl::ZeroDuration());
  EXPECT_GE(grown, absl::Milliseconds(99));
  EXPECT_LE(grown, absl::Now() - begin + absl::Milliseconds(1));
}

TEST(ProcessMetrics, ShowsThisProcess) {
  metrics::Registry registry;
  ProcessMetrics process(registry, "1.2.3");
  process.Update();
  EXPECT_THAT(registry.Serialize(), HasSubstr("starling_build_info{version=\"1.2.3\"} 1\n"));
  EXPECT_GT(AddGauge(registry, "process_resident_memory_bytes").Value(), 1 << 20);
  EXPECT_GT(AddGauge(registry, "process_open_fds").Value(), 2);
  EXPECT_NEAR(AddGauge(registry, "process_start_time_seconds").Value(),
              absl::ToDoubleSeconds(absl::Now() - ProcessAge() - absl::UnixEpoch()), 1);
}

}  // namespace
}  // namespace starling::telemetry
