// SPDX-License-Identifier: Apache-2.0
#include "api/telemetry/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "api/telemetry/metric_table.h"

namespace starling::telemetry {
namespace {

std::string ReadText(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

ProcessFigures OfThisProcess() {
  return ReadProcessFigures(ReadText("/proc/self/stat"), static_cast<double>(sysconf(_SC_CLK_TCK)),
                            static_cast<double>(sysconf(_SC_PAGESIZE)));
}

double CountOpenFiles() {
  std::error_code error;
  const std::filesystem::directory_iterator folder("/proc/self/fd", error);
  if (error) return 0;
  return static_cast<double>(std::distance(begin(folder), end(folder)));
}

}  // namespace

ProcessFigures ReadProcessFigures(std::string_view stat, double ticks_per_second,
                                  double page_bytes) {
  ProcessFigures figures;
  // The second field is the program's name, which may contain anything.
  const std::size_t name_end = stat.rfind(") ");
  if (name_end == std::string_view::npos) return figures;
  stat.remove_prefix(name_end + 2);
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(stat.data(), stat.size()), ' ');
  const auto number = [&fields](std::size_t number_of_field) {
    double value = 0;
    const std::size_t index = number_of_field - 3;  // proc(5) counts from 1; two are gone
    if (index >= fields.size() || !absl::SimpleAtod(fields[index], &value)) return 0.0;
    return value;
  };
  figures.cpu_seconds = (number(14) + number(15)) / ticks_per_second;
  figures.start_seconds = number(22) / ticks_per_second;
  figures.virtual_bytes = number(23);
  figures.resident_bytes = number(24) * page_bytes;
  return figures;
}

absl::Duration ProcessAge() {
  timespec since_boot = {};
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  const absl::Duration age =
      absl::DurationFromTimespec(since_boot) - absl::Seconds(OfThisProcess().start_seconds);
  return std::max(age, absl::ZeroDuration());
}

std::string_view Version() { return STARLING_TELEMETRY_VERSION; }

ProcessMetrics::ProcessMetrics(metrics::Registry& registry, std::string_view version)
    : cpu_(AddCounter(registry, "process_cpu_seconds_total")),
      start_(AddGauge(registry, "process_start_time_seconds")),
      virtual_(AddGauge(registry, "process_virtual_memory_bytes")),
      resident_(AddGauge(registry, "process_resident_memory_bytes")),
      open_files_(AddGauge(registry, "process_open_fds")),
      most_files_(AddGauge(registry, "process_max_fds")) {
  AddGauge(registry, "starling_build_info", {{"version", std::string(version)}}).Set(1);
  // Not boot time plus start, as others have it: the kernel tells boot times in whole seconds.
  start_.Set(absl::ToDoubleSeconds(absl::Now() - ProcessAge() - absl::UnixEpoch()));
}

void ProcessMetrics::Update() {
  const ProcessFigures figures = OfThisProcess();
  cpu_.Increment(figures.cpu_seconds - cpu_.Value());
  virtual_.Set(figures.virtual_bytes);
  resident_.Set(figures.resident_bytes);
  open_files_.Set(CountOpenFiles());
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    most_files_.Set(static_cast<double>(limit.rlim_cur));
  }
}

}  // namespace starling::telemetry
