// SPDX-License-Identifier: Apache-2.0
#include "controller/scheduling/gang.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/macros.h"

namespace starling::scheduling {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kNone = "none";

std::string Names() {
  std::vector<std::string> names = {std::string(kAuto), std::string(kNone)};
  for (const GangDriver& driver : GangDrivers()) names.emplace_back(driver.name);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return absl::StrJoin(names, ", ");
}

}  // namespace

std::vector<GangDriver> GangDrivers() {
  return {Coscheduling(), Volcano(), NativePodGroup(), NativeWorkload()};
}

bool IsGangSchedulerName(std::string_view wanted) {
  const std::vector<GangDriver> drivers = GangDrivers();
  return wanted == kAuto || wanted == kNone ||
         std::any_of(drivers.begin(), drivers.end(),
                     [&](const GangDriver& driver) { return driver.name == wanted; });
}

absl::StatusOr<std::optional<GangDriver>> SelectGangDriver(std::string_view wanted,
                                                           const Serves& serves) {
  const std::string name(wanted);
  if (!IsGangSchedulerName(wanted)) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no gang scheduler \"", name, "\"; there are ", Names()));
  }
  if (wanted == kNone) return std::nullopt;
  for (const GangDriver& driver : GangDrivers()) {
    if (wanted != kAuto && wanted != driver.name) continue;
    ASSIGN_OR_RETURN(const bool served, serves(driver.kind));
    if (served) return driver;
  }
  if (wanted == kAuto) return std::nullopt;
  return absl::FailedPreconditionError(
      absl::StrCat("the gang scheduler ", name,
                   " is asked for but not installed: the API server "
                   "does not serve its objects; install it or choose another (",
                   Names(), ")"));
}

}  // namespace starling::scheduling
