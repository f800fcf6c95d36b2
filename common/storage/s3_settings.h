// SPDX-License-Identifier: Apache-2.0
// Where an object store is and who we are to it, read from the variables that every S3 tool reads.
//
// To add a variable: a line in ReadS3Settings or ReadCredentials, one in the table of
// docs/how-to/object-stores.md, and one in what pods of one machine inherit (controller/local).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace starling::storage {

// The value of an environment variable, "" if there is none.
using Variables = std::function<std::string(const char* name)>;
Variables ProcessVariables();

struct S3Settings {
  std::string endpoint;  // https://host[:port][/path], or http://; no slash at its end
  std::string region;
  bool path_style = true;  // endpoint/bucket/key; else the bucket stands before the host
  std::string ca_bundle;   // file of whom to believe; empty: the system's
};

// Of AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL (by default Amazon's own of the region), AWS_REGION or
// AWS_DEFAULT_REGION (us-east-1), AWS_CA_BUNDLE or SSL_CERT_FILE, and
// AWS_VIRTUAL_HOSTED_STYLE_REQUEST (true, false; by default true at Amazon, false elsewhere, and
// false where the bucket's name has a dot, which no certificate covers). INVALID_ARGUMENT names the
// variable.
absl::StatusOr<S3Settings> ReadS3Settings(const Variables& variables, std::string_view bucket);

struct Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // empty: they do not expire
};

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN. PERMISSION_DENIED, with the remedy:
// they are not there, or only one of the first two is.
absl::StatusOr<Credentials> ReadCredentials(const Variables& variables);

// The URL of `key` in `bucket`, or of the bucket if it is empty.
std::string S3Url(const S3Settings& settings, std::string_view bucket, std::string_view key);

}  // namespace starling::storage
