// SPDX-License-Identifier: Apache-2.0
#include "tests/techniques/lesson.h"

namespace starling::techniques {

Lesson DigitsLesson() {
  Lesson lesson;
  lesson.name = kDigits;
  lesson.problem = Digits(32);
  lesson.samples = 16 * 3000;
  lesson.learned = 90;
  lesson.rate = 0.2;
  lesson.adagrad_rate = 0.05;
  lesson.late_rate = 0.2;
  lesson.many = {16, 16, 1.6};
  return lesson;
}

Lesson LessonOf(const Setting& setting) {
  if (!setting.thorough || setting.mnist == nullptr) return DigitsLesson();
  Lesson lesson;
  lesson.name = kMnist;
  lesson.problem = setting.mnist;
  lesson.samples = 5 * lesson.problem->samples();
  lesson.learned = 97;
  lesson.rate = 0.1;
  lesson.adagrad_rate = 0.01;
  lesson.late_rate = 0.05;
  lesson.many = {8, 8, 0.1};
  return lesson;
}

ClusterOptions ClusterOf(const Lesson& lesson, std::uint64_t seed,
                         const consistency::Options& model, double rate) {
  ClusterOptions options;
  options.problem = lesson.problem;
  options.seed = seed;
  options.leases = lesson.samples / options.batch;
  options.table.rule = Sgd();
  options.table.rate = [rate](std::int64_t) { return rate; };
  options.table.initial_scale = 0.1F;
  options.table.seed = seed;
  options.table.model = model;
  return options;
}

ClusterOptions DigitsCluster(std::uint64_t seed, const consistency::Options& model, double rate) {
  return ClusterOf(DigitsLesson(), seed, model, rate);
}

double AccuracyOf(const ClusterOptions& options) {
  return 100 * options.problem->Accuracy(Run(options).parameters);
}

void JudgeBelowSynchronous(const Lesson& lesson, const ClusterOptions& cluster,
                           const std::string& what, double most, Report& report) {
  const double synchronous = AccuracyOf(
      ClusterOf(lesson, cluster.seed, consistency::BulkSynchronous{cluster.workers}, lesson.rate));
  report.Mean(lesson.name + ": accuracy of synchronous SGD", synchronous, Rule::kAtLeast,
              lesson.learned);
  report.Mean(lesson.name + ": accuracy, points below synchronous SGD at equal samples" + what,
              synchronous - AccuracyOf(cluster), Rule::kAtMost, most);
}

}  // namespace starling::techniques
