// SPDX-License-Identifier: Apache-2.0
// Credentials for an object store: fixed ones from the environment, or ones that a pod's projected
// token is exchanged for.
//
// With AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, and without AWS_ACCESS_KEY_ID, the token in
// the file is shown to the token service (AWS_ENDPOINT_URL_STS, by default Amazon's of the region),
// which gives credentials for the role for an hour or so; they are renewed in time.
#pragma once

#include "absl/status/statusor.h"
#include "common/storage/s3_client.h"
#include "common/storage/s3_settings.h"

namespace starling::storage {

// PERMISSION_DENIED: there are neither. Nothing is asked of anybody yet; what the source gives is
// thread-safe.
absl::StatusOr<CredentialsSource> FindCredentials(const Variables& variables,
                                                  const S3Settings& settings);

}  // namespace starling::storage
