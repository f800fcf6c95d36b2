// SPDX-License-Identifier: Apache-2.0
#include "tests/techniques/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tests/techniques/lesson.h"

namespace starling::techniques {
namespace {

const char* NameOf(Rule rule) {
  switch (rule) {
    case Rule::kAtMost:
      return "at most";
    case Rule::kAtLeast:
      return "at least";
    case Rule::kEqual:
      return "exactly";
    case Rule::kAbove:
      return "above";
    case Rule::kBelow:
      return "below";
    case Rule::kNone:
      break;
  }
  return "";
}

bool Judge(double value, Rule rule, double bound) {
  switch (rule) {
    case Rule::kAtMost:
      return value <= bound;
    case Rule::kAtLeast:
      return value >= bound;
    case Rule::kEqual:
      return value == bound;
    case Rule::kAbove:
      return value > bound;
    case Rule::kBelow:
      return value < bound;
    case Rule::kNone:
      break;
  }
  return true;
}

// 1,000; 0.8; 1e-05.
std::string Plain(double value) {
  if (value != std::floor(value) || std::abs(value) >= 1e15) return absl::StrFormat("%.3g", value);
  std::string digits = absl::StrFormat("%.0f", value);
  const std::size_t first = digits.front() == '-' ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

std::string Capital(std::string text) {
  text.front() = absl::ascii_toupper(static_cast<unsigned char>(text.front()));
  return text;
}

// JSON knows no infinity.
nlohmann::json Number(double value) {
  if (std::isfinite(value)) return value;
  return value > 0 ? "infinite" : std::isnan(value) ? "not a number" : "minus infinite";
}

}  // namespace

double Figure::Mean() const {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

bool Figure::holds() const {
  if (of_mean) return Judge(Mean(), rule, bound);
  return std::all_of(values.begin(), values.end(),
                     [this](double value) { return Judge(value, rule, bound); });
}

bool Report::holds() const {
  return std::all_of(figures_.begin(), figures_.end(),
                     [](const Figure& figure) { return figure.holds(); });
}

void Report::Add(Figure figure) {
  for (Figure& known : figures_) {
    if (known.what != figure.what) continue;
    known.values.push_back(figure.values.front());
    return;
  }
  figures_.push_back(std::move(figure));
}

Report Play(const Technique& technique, int seeds, const Setting& setting) {
  Report report;
  Setting played = setting;
  for (int seed = 1; seed <= seeds; ++seed) {
    played.seed = static_cast<std::uint64_t>(seed);
    technique.run(played, report);
  }
  return report;
}

std::string Wanted(const Figure& figure) {
  if (figure.rule == Rule::kNone) return "";
  if (figure.rule == Rule::kEqual) return Plain(figure.bound);
  return absl::StrCat(figure.of_mean ? "mean " : "", NameOf(figure.rule), " ", Plain(figure.bound));
}

std::string Text(const Figure& figure) {
  const auto [lowest, highest] = std::minmax_element(figure.values.begin(), figure.values.end());
  std::string text =
      absl::StrCat(figure.holds() ? "holds  " : "FAILS  ", figure.control ? "control: " : "",
                   figure.what, ": ", figure.Mean());
  if (figure.values.size() > 1) absl::StrAppend(&text, " [", *lowest, ", ", *highest, "]");
  if (figure.rule != Rule::kNone) {
    absl::StrAppend(&text, ", ", figure.of_mean ? "mean " : "", NameOf(figure.rule), " ",
                    figure.bound);
  }
  return text;
}

std::string Json(const Technique& technique, const Report& report, int seeds,
                 const Setting& setting, double seconds) {
  nlohmann::json figures = nlohmann::json::array();
  for (const Figure& figure : report.figures()) {
    nlohmann::json values = nlohmann::json::array();
    for (const double value : figure.values) values.push_back(Number(value));
    figures.push_back({{"what", figure.what},
                       {"values", values},
                       {"mean", Number(figure.Mean())},
                       {"rule", NameOf(figure.rule)},
                       {"wanted", Wanted(figure)},
                       {"control", figure.control},
                       {"holds", figure.holds()}});
  }
  const nlohmann::json all = {{"row", technique.row},
                              {"title", technique.title},
                              {"check", technique.check},
                              {"control", technique.control},
                              {"seeds", seeds},
                              {"thorough", setting.thorough},
                              {"mnist", setting.mnist != nullptr},
                              {"seconds", seconds},
                              {"holds", report.holds()},
                              {"figures", std::move(figures)}};
  return all.dump(2) + "\n";
}

std::vector<std::string> NotOnPage(const std::string& page, const Technique& technique,
                                   const Report& report) {
  const std::string head = absl::StrCat("\n## ", technique.row, ": ", technique.title, "\n");
  const std::size_t begin = page.find(head);
  if (begin == std::string::npos) return {absl::StrCat(technique.row, ": the row")};
  const std::string section =
      page.substr(begin + head.size(), page.find("\n## ", begin + 1) - begin - head.size());
  std::vector<std::string> missing;
  const std::string said =
      absl::StrCat(Capital(technique.check), ". Control: ", technique.control, ".\n");
  if (section.find(said) == std::string::npos) missing.push_back(said);
  const std::vector<std::string> lines = absl::StrSplit(section, '\n');
  for (const Figure& figure : report.figures()) {
    if (figure.rule == Rule::kNone || figure.what.starts_with(kDigits)) continue;
    const std::string name =
        absl::StrCat("| ", figure.control ? "*control:* " : "", figure.what, " | ");
    const std::string wanted = absl::StrCat(" | ", Wanted(figure), " | holds |");
    if (std::ranges::none_of(lines, [&](const std::string& line) {
          return line.starts_with(name) && line.ends_with(wanted);
        })) {
      missing.push_back(absl::StrCat(name, "...", wanted));
    }
  }
  return missing;
}

}  // namespace starling::techniques
