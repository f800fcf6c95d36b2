// SPDX-License-Identifier: Apache-2.0
// What sinks that speak JSON over HTTP have in common.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/http_client.h"
#include "nlohmann/json_fwd.hpp"

namespace starling::metric_export {

// `peer` is who answers, for people. INVALID_ARGUMENT: the URI is wrong. Connects to nothing yet.
absl::StatusOr<std::unique_ptr<http::HttpClient>> OpenJsonClient(
    const std::string& uri, const std::string& peer, absl::Duration timeout,
    const std::map<std::string, std::string>& headers);

// JSON has no numbers for infinities and what is none; others take their names.
nlohmann::json NumberOf(double value);

// What went wrong, not too long, and what to do about it.
absl::Status WithRemedy(const absl::Status& why, std::string_view remedy);

}  // namespace starling::metric_export
