// SPDX-License-Identifier: Apache-2.0
// Counters, gauges and histograms, and their text for Prometheus.
//
//   metrics::Registry registry;
//   metrics::Counter steps = registry.AddCounter("starling_steps_total", "Steps applied.");
//   steps.Increment();
//
// Prometheus' C++ client holds the numbers; this is the guard around it: label values and help
// texts become valid UTF-8 on one line, an observation that is not a number or would make a counter
// fall is dropped, and no other file sees the client's headers. A metric's name says its unit
// (_seconds, _bytes, _total). To add a metric: add it where it is counted, once, at start.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace starling::metrics {

using Labels = std::map<std::string, std::string>;

// The three are handles: copy them freely; they are valid while their registry lives. A handle made
// by default counts nothing. Thread-safe.
class Counter {
 public:
  Counter() = default;
  void Increment(double by = 1);
  double Value() const;

 private:
  friend class Registry;
  explicit Counter(prometheus::Counter* counter) : counter_(counter) {}
  prometheus::Counter* counter_ = nullptr;
};

class Gauge {
 public:
  Gauge() = default;
  void Set(double value);
  void Add(double by);
  double Value() const;

 private:
  friend class Registry;
  explicit Gauge(prometheus::Gauge* gauge) : gauge_(gauge) {}
  prometheus::Gauge* gauge_ = nullptr;
};

class Histogram {
 public:
  Histogram() = default;
  void Observe(double value);

 private:
  friend class Registry;
  explicit Histogram(prometheus::Histogram* histogram) : histogram_(histogram) {}
  prometheus::Histogram* histogram_ = nullptr;
};

// Upper bounds for seconds: 100 us to 60 s, about three to a decade.
const std::vector<double>& SecondsBuckets();

// Thread-safe. The same name and labels give the same metric. A name or label name that Prometheus
// would refuse, or one name used for two kinds, is our own mistake and ends the process.
class Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  Counter AddCounter(std::string_view name, std::string_view help, const Labels& labels = {});
  Gauge AddGauge(std::string_view name, std::string_view help, const Labels& labels = {});
  Histogram AddHistogram(std::string_view name, std::string_view help, const Labels& labels = {},
                         const std::vector<double>& bounds = SecondsBuckets());

  // Ends every series of `name` that carries `labels` (more may stand beside them); handles to them
  // must not be used again.
  void Remove(std::string_view name, const Labels& labels);

  // The exposition text, version 0.0.4.
  std::string Serialize() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace starling::metrics
