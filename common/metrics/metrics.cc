// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "common/status/check.h"
#include "common/sync/mutex.h"

namespace starling::metrics {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

// Length of the well-formed UTF-8 sequence at the start of `text`, or 0.
std::size_t SequenceLength(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) > 0x9F;
  const bool beyond = first == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || beyond ? 0 : length;
}

std::string ToUtf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = SequenceLength(text);
    if (length == 0) {
      result += kReplacement;
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

std::string ToHelp(std::string_view help) {
  return absl::StrReplaceAll(ToUtf8(help), {{"\\", "\\\\"}, {"\n", "\\n"}, {"\r", " "}});
}

bool IsName(std::string_view name, bool colon) {
  if (name.empty() || absl::ascii_isdigit(static_cast<unsigned char>(name[0]))) return false;
  return std::all_of(name.begin(), name.end(), [colon](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || (colon && c == ':');
  });
}

bool Contains(const Labels& labels, const Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& label) {
    const auto found = labels.find(label.first);
    return found != labels.end() && found->second == label.second;
  });
}

// The families of one kind, and the labels of each of their series.
template <typename Metric>
class Kind {
 public:
  bool Has(const std::string& name) const { return families_.contains(name); }

  template <typename Builder, typename... Arguments>
  Metric* Add(Builder builder, prometheus::Registry& registry, const std::string& name,
              std::string_view help, const Labels& labels, const Arguments&... arguments) {
    auto family = families_.find(name);
    if (family == families_.end()) {
      auto& made = builder.Name(name).Help(ToHelp(help)).Register(registry);
      family = families_.emplace(name, Entry{&made, {}}).first;
    }
    auto [series, added] = family->second.series.emplace(labels, nullptr);
    if (added) series->second = &family->second.family->Add(labels, arguments...);
    return series->second;
  }

  void Remove(const std::string& name, const Labels& labels) {
    const auto family = families_.find(name);
    if (family == families_.end()) return;
    std::erase_if(family->second.series, [&](const auto& series) {
      if (!Contains(series.first, labels)) return false;
      family->second.family->Remove(series.second);
      return true;
    });
  }

 private:
  struct Entry {
    prometheus::Family<Metric>* family;
    std::map<Labels, Metric*> series;
  };
  std::map<std::string, Entry> families_;
};

}  // namespace

struct Registry::State {
  sync::Mutex mutex;
  prometheus::Registry registry;
  Kind<prometheus::Counter> counters ABSL_GUARDED_BY(mutex);
  Kind<prometheus::Gauge> gauges ABSL_GUARDED_BY(mutex);
  Kind<prometheus::Histogram> histograms ABSL_GUARDED_BY(mutex);

  // The labels as they may be shown.
  static Labels Check(std::string_view name, const Labels& labels, bool histogram) {
    STARLING_CHECK(IsName(name, /*colon=*/true), "a metric's name is letters, digits, _ and :");
    Labels clean;
    for (const auto& [label, value] : labels) {
      STARLING_CHECK(IsName(label, /*colon=*/false) && !absl::StartsWith(label, "__") &&
                         !(histogram && label == "le"),
                     "a label's name is letters, digits and _, and not a reserved one");
      clean.emplace(label, ToUtf8(value));
    }
    return clean;
  }
};

void Counter::Increment(double by) {
  if (counter_ != nullptr && std::isfinite(by) && by >= 0) counter_->Increment(by);
}

double Counter::Value() const { return counter_ != nullptr ? counter_->Value() : 0; }

void Gauge::Set(double value) {
  if (gauge_ != nullptr) gauge_->Set(value);
}

void Gauge::Add(double by) {
  if (gauge_ != nullptr && std::isfinite(by)) gauge_->Increment(by);
}

double Gauge::Value() const { return gauge_ != nullptr ? gauge_->Value() : 0; }

void Histogram::Observe(double value) {
  if (histogram_ != nullptr && std::isfinite(value)) histogram_->Observe(value);
}

const std::vector<double>& SecondsBuckets() {
  static const auto& bounds =
      *new std::vector<double>{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                               0.1,    0.25,    0.5,    1,     2.5,    5,     10,   25,    60};
  return bounds;
}

Registry::Registry() : state_(std::make_unique<State>()) {}
Registry::~Registry() = default;

Counter Registry::AddCounter(std::string_view name, std::string_view help, const Labels& labels) {
  const Labels clean = State::Check(name, labels, /*histogram=*/false);
  const std::string key(name);
  sync::MutexLock lock(state_->mutex);
  STARLING_CHECK(!state_->gauges.Has(key) && !state_->histograms.Has(key), "a metric has one kind");
  return Counter(
      state_->counters.Add(prometheus::BuildCounter(), state_->registry, key, help, clean));
}

Gauge Registry::AddGauge(std::string_view name, std::string_view help, const Labels& labels) {
  const Labels clean = State::Check(name, labels, /*histogram=*/false);
  const std::string key(name);
  sync::MutexLock lock(state_->mutex);
  STARLING_CHECK(!state_->counters.Has(key) && !state_->histograms.Has(key),
                 "a metric has one kind");
  return Gauge(state_->gauges.Add(prometheus::BuildGauge(), state_->registry, key, help, clean));
}

Histogram Registry::AddHistogram(std::string_view name, std::string_view help, const Labels& labels,
                                 const std::vector<double>& bounds) {
  const Labels clean = State::Check(name, labels, /*histogram=*/true);
  const std::string key(name);
  sync::MutexLock lock(state_->mutex);
  STARLING_CHECK(!state_->counters.Has(key) && !state_->gauges.Has(key), "a metric has one kind");
  return Histogram(state_->histograms.Add(prometheus::BuildHistogram(), state_->registry, key, help,
                                          clean, prometheus::Histogram::BucketBoundaries(bounds)));
}

void Registry::Remove(std::string_view name, const Labels& labels) {
  Labels clean;
  for (const auto& [label, value] : labels) clean.emplace(label, ToUtf8(value));
  const std::string key(name);
  sync::MutexLock lock(state_->mutex);
  state_->counters.Remove(key, clean);
  state_->gauges.Remove(key, clean);
  state_->histograms.Remove(key, clean);
}

std::string Registry::Serialize() const {
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

}  // namespace starling::metrics
