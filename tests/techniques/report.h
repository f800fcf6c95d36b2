// SPDX-License-Identifier: Apache-2.0
// The rows of the technique table: what is checked, with which figures, and what must go wrong when
// the essential ingredient is left out. docs/techniques.md is made from what these report.
//
// To add a row: a function that fills a Report, a Technique in Techniques() (techniques.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/techniques/problem.h"

namespace starling::techniques {

enum class Rule { kAtMost, kAtLeast, kEqual, kAbove, kBelow, kNone };  // kNone: told, not judged

struct Figure {
  std::string what;
  std::vector<double> values;  // one a seed
  Rule rule = Rule::kNone;
  double bound = 0;
  bool of_mean = false;  // the mean of the seeds is judged, else every one
  bool control = false;  // holds when the harm is seen
  double Mean() const;
  bool holds() const;
};

// Thread-compatible.
class Report {
 public:
  // Judged seed by seed.
  void Each(const std::string& what, double value, Rule rule, double bound) {
    Add({what, {value}, rule, bound, false, false});
  }
  // Judged by the mean over the seeds.
  void Mean(const std::string& what, double value, Rule rule, double bound) {
    Add({what, {value}, rule, bound, true, false});
  }
  void Tell(const std::string& what, double value) {
    Add({what, {value}, Rule::kNone, 0, false, false});
  }
  // The negative control: what is seen without the ingredient.
  void Control(const std::string& what, double value, Rule rule, double bound) {
    Add({what, {value}, rule, bound, false, true});
  }
  void ControlOfMean(const std::string& what, double value, Rule rule, double bound) {
    Add({what, {value}, rule, bound, true, true});
  }
  const std::vector<Figure>& figures() const { return figures_; }
  bool holds() const;

 private:
  void Add(Figure figure);

  std::vector<Figure> figures_;
};

struct Setting {
  std::uint64_t seed = 1;
  bool thorough = false;                   // the long form
  std::shared_ptr<const Problem> mnist{};  // where the engine is there
};

struct Technique {
  std::string row;  // of the table, such as "PS-4"
  std::string title;
  std::string check;
  std::string control;
  void (*run)(const Setting& setting, Report& report);
};

const std::vector<Technique>& Techniques();

// All figures over seeds 1 to `seeds`; `setting` says the rest.
Report Play(const Technique& technique, int seeds, const Setting& setting);

// One line each, "holds  staleness, mean: 3 [3, 3], at most 4".
std::string Text(const Figure& figure);
// What is wanted of it, as the page says it: "mean at most 1"; empty where it is told only.
std::string Wanted(const Figure& figure);
std::string Json(const Technique& technique, const Report& report, int seeds,
                 const Setting& setting, double seconds);

// What `page` (docs/techniques.md) does not say of this row as it was played: what is checked and
// controlled, and for each figure that is judged on no lesson its name and what is wanted of it.
std::vector<std::string> NotOnPage(const std::string& page, const Technique& technique,
                                   const Report& report);

}  // namespace starling::techniques
