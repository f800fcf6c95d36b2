// SPDX-License-Identifier: Apache-2.0
#include "common/storage/s3_settings.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/http/http_client.h"
#include "common/http/message.h"
#include "common/status/macros.h"

namespace starling::storage {
namespace {

std::string FirstOf(const Variables& variables, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = variables(name); !value.empty()) return value;
  }
  return "";
}

absl::Status CheckEndpoint(const std::string& endpoint) {
  if (http::Endpoint::Parse(endpoint).ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("AWS_ENDPOINT_URL is \"", endpoint,
                                                 "\"; it must be https://host[:port], or http://"));
}

// It becomes a part of a host's name.
absl::Status CheckRegion(const std::string& region) {
  const bool good = std::all_of(region.begin(), region.end(),
                                [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("AWS_REGION is \"", region, "\"; it must be letters, digits and '-'"));
}

absl::StatusOr<bool> ReadBoolean(const Variables& variables, const char* name, bool otherwise) {
  const std::string text = variables(name);
  if (text.empty()) return otherwise;
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is \"", text, "\"; it must be true or false"));
}

}  // namespace

Variables ProcessVariables() {
  return [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
}

absl::StatusOr<S3Settings> ReadS3Settings(const Variables& variables, std::string_view bucket) {
  S3Settings settings;
  settings.region = FirstOf(variables, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (settings.region.empty()) settings.region = "us-east-1";
  RETURN_IF_ERROR(CheckRegion(settings.region));
  settings.endpoint = FirstOf(variables, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  const bool amazon = settings.endpoint.empty();
  if (amazon) {
    settings.endpoint = absl::StrCat("https://s3.", settings.region, ".amazonaws.com",
                                     settings.region.starts_with("cn-") ? ".cn" : "");
  }
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  RETURN_IF_ERROR(CheckEndpoint(settings.endpoint));
  const bool dotted = bucket.find('.') != std::string_view::npos;
  ASSIGN_OR_RETURN(const bool in_host,
                   ReadBoolean(variables, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", amazon && !dotted));
  settings.path_style = !in_host;
  settings.ca_bundle = FirstOf(variables, {"AWS_CA_BUNDLE", "SSL_CERT_FILE"});
  return settings;
}

absl::StatusOr<Credentials> ReadCredentials(const Variables& variables) {
  Credentials credentials{.access_key = variables("AWS_ACCESS_KEY_ID"),
                          .secret_key = variables("AWS_SECRET_ACCESS_KEY"),
                          .session_token = variables("AWS_SESSION_TOKEN")};
  if (!credentials.access_key.empty() && !credentials.secret_key.empty()) return credentials;
  const bool one = !credentials.access_key.empty() || !credentials.secret_key.empty();
  return absl::PermissionDeniedError(absl::StrCat(
      one ? "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set"
          : "there are no credentials for an object store",
      "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY where the job is started, and in a "
      "cluster "
      "in the container \"trainer\" of the roles' templates, by envFrom with a secretRef"));
}

std::string S3Url(const S3Settings& settings, std::string_view bucket, std::string_view key) {
  const std::string path = http::PercentEncode(key, "/");
  const std::string name(bucket);
  if (settings.path_style) {
    return absl::StrCat(settings.endpoint, "/", name, path.empty() ? "" : "/", path);
  }
  const std::size_t host = settings.endpoint.find("://") + 3;
  return absl::StrCat(settings.endpoint.substr(0, host), name, ".", settings.endpoint.substr(host),
                      "/", path);
}

}  // namespace starling::storage
