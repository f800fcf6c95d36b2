// SPDX-License-Identifier: Apache-2.0
// Plays the technique table and writes what came of it:
//
//   starling-techniques [--seeds 5] [--only PS-8] [--out build/results/techniques]
//   starling-techniques --study stragglers --out build/results/techniques
//
// One JSON file a row; exit code 1 when a row does not hold, or when a model that does not wait for
// everybody is not sooner than one that does. Where there is no engine, what should be judged on
// MNIST is judged on the digits, and named. tests/techniques/page.py makes the page.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "tests/techniques/lesson.h"
#include "tests/techniques/report.h"
#include "tests/techniques/straggler_study.h"
#include "trainer/worker/numeric_environment.h"

namespace starling::techniques {
namespace {

void Write(const std::string& folder, const std::string& name, const std::string& content) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/" + name, std::ios::binary) << content;
}

// What the row was to show on MNIST.
void NameSkipped(const Technique& technique, const Report& report, const absl::Status& engine) {
  for (const Figure& figure : report.figures()) {
    if (!figure.what.starts_with(kDigits)) continue;
    std::fprintf(stderr, "SKIPPED on MNIST: %s, %s (%s)\n", technique.row.c_str(),
                 figure.what.c_str(), engine.ToString().c_str());
  }
}

int Main(int count, char** arguments) {
  std::string out = "build/results/techniques", only, study;
  int seeds = 5;
  for (int i = 1; i < count; i += 2) {
    const std::string name = arguments[i], value = i + 1 < count ? arguments[i + 1] : "";
    if (name == "--out") {
      out = value;
    } else if (name == "--only") {
      only = value;
    } else if (name == "--study" && value == "stragglers") {
      study = value;
    } else if (name != "--seeds" || !absl::SimpleAtoi(value, &seeds) || seeds < 1) {
      std::fprintf(stderr, "%s %s: unknown, or no number\n", name.c_str(), value.c_str());
      return 2;
    }
  }
  if (!study.empty()) {
    const StragglerResult result = StragglerStudy(seeds);
    Write(out, study + ".json", result.json);
    const std::vector<std::string> wrong = NotSooner(result.runs);
    for (const std::string& one : wrong) std::printf("%s\n", one.c_str());
    return wrong.empty() ? 0 : 1;
  }
  const auto mnist = Mnist();
  Setting setting;
  setting.thorough = true;
  if (mnist.ok()) setting.mnist = *mnist;
  bool all_hold = true;
  for (const Technique& technique : Techniques()) {
    if (!only.empty() && technique.row != only) continue;
    const auto begin = std::chrono::steady_clock::now();
    const Report report = Play(technique, seeds, setting);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::printf("%s %s (%.1f s)\n", technique.row.c_str(), technique.title.c_str(), seconds);
    for (const Figure& figure : report.figures()) std::printf("  %s\n", Text(figure).c_str());
    std::fflush(stdout);
    if (!mnist.ok()) NameSkipped(technique, report, mnist.status());
    Write(out, technique.row + ".json", Json(technique, report, seeds, setting, seconds));
    all_hold = all_hold && report.holds();
  }
  return all_hold ? 0 : 1;
}

}  // namespace
}  // namespace starling::techniques

int main(int count, char** arguments) {
  starling::worker::PrepareNumericEnvironment();
  return starling::techniques::Main(count, arguments);
}
