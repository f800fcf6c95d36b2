// SPDX-License-Identifier: Apache-2.0
#include "trainer/metric_export/json_http.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::metric_export {
namespace {

constexpr std::size_t kAnswerLimit = 1 << 20;
constexpr std::size_t kLongestWhy = 300;

}  // namespace

absl::StatusOr<std::unique_ptr<http::HttpClient>> OpenJsonClient(
    const std::string& uri, const std::string& peer, absl::Duration timeout,
    const std::map<std::string, std::string>& headers) {
  http::ClientOptions options;
  options.peer = peer;
  options.timeout = timeout;
  options.body_limit = kAnswerLimit;
  options.headers = {{"Content-Type", "application/json"}};
  for (const auto& header : headers) options.headers.push_back(header);
  return http::HttpClient::Open(uri, std::move(options));
}

nlohmann::json NumberOf(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

absl::Status WithRemedy(const absl::Status& why, std::string_view remedy) {
  return {why.code(),
          absl::StrCat(std::string(why.message()).substr(0, kLongestWhy), std::string(remedy))};
}

}  // namespace starling::metric_export
