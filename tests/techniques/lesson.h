// SPDX-License-Identifier: Apache-2.0
// What is learned where a row judges how well: LeNet-5 on MNIST in the long form of the table, if
// the engine is there, else a small perceptron on the digits. Each lesson has the rates at which
// synchronous SGD learns it well; rows say how theirs follow from those.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/techniques/cluster.h"
#include "tests/techniques/report.h"

namespace starling::techniques {

struct Lesson {
  std::string name;  // with which the names of figures begin
  std::shared_ptr<const Problem> problem;
  std::int64_t samples = 0;  // after which it is judged
  double learned = 0;        // points of accuracy that synchronous SGD has then, at least
  double rate = 0;           // of SGD, for the mean gradient of 4 workers' 16 samples each
  double adagrad_rate = 0;   // of Adagrad, for one worker's
  double late_rate = 0;      // of SGD, for one worker's that is 8 updates late
  // Rates of SGD that are right for the mean gradient of so many workers, and too high for late
  // ones.
  struct Many {
    int workers = 0;
    std::int64_t batch = 0;  // of each
    double rate = 0;
  } many;
};

inline constexpr char kMnist[] = "MNIST";
inline constexpr char kDigits[] = "digits";

Lesson DigitsLesson();
Lesson LessonOf(const Setting& setting);

// Four workers that learn it with plain SGD, as many samples as the lesson has.
ClusterOptions ClusterOf(const Lesson& lesson, std::uint64_t seed,
                         const consistency::Options& model, double rate);
// The same on the digits, for what is not judged by what is learned.
ClusterOptions DigitsCluster(std::uint64_t seed, const consistency::Options& model, double rate);

// In points, after the last update.
double AccuracyOf(const ClusterOptions& options);
// Judges by how many points the accuracy of `cluster` is below that of synchronous SGD.
void JudgeBelowSynchronous(const Lesson& lesson, const ClusterOptions& cluster,
                           const std::string& what, double most, Report& report);

}  // namespace starling::techniques
