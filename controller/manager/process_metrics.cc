// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace starling::manager {
namespace {

std::string ReadText(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

double BootSeconds() {
  const std::string stat = ReadText("/proc/stat");
  for (const absl::string_view line : absl::StrSplit(stat, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    double seconds = 0;
    if (words.size() == 2 && words[0] == "btime" && absl::SimpleAtod(words[1], &seconds)) {
      return seconds;
    }
  }
  return 0;
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

ProcessMetrics::ProcessMetrics(metrics::Registry& registry)
    : cpu_(registry.AddCounter("process_cpu_seconds_total", "User and system time.")),
      start_(registry.AddGauge("process_start_time_seconds", "Start, in Unix time.")),
      virtual_(registry.AddGauge("process_virtual_memory_bytes", "Virtual memory.")),
      resident_(registry.AddGauge("process_resident_memory_bytes", "Resident memory.")),
      open_files_(registry.AddGauge("process_open_fds", "Open file descriptors.")),
      most_files_(registry.AddGauge("process_max_fds", "Most open file descriptors allowed.")) {}

void ProcessMetrics::Update() {
  const ProcessFigures figures =
      ReadProcessFigures(ReadText("/proc/self/stat"), static_cast<double>(sysconf(_SC_CLK_TCK)),
                         static_cast<double>(sysconf(_SC_PAGESIZE)));
  cpu_.Increment(figures.cpu_seconds - cpu_.Value());
  start_.Set(BootSeconds() + figures.start_seconds);
  virtual_.Set(figures.virtual_bytes);
  resident_.Set(figures.resident_bytes);
  open_files_.Set(CountOpenFiles());
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    most_files_.Set(static_cast<double>(limit.rlim_cur));
  }
}

}  // namespace starling::manager
