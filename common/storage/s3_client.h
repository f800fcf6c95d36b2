// SPDX-License-Identifier: Apache-2.0
// Requests to one bucket of an object store, signed as S3 wants it, over libcurl.
//
// libcurl signs (AWS Signature Version 4), keeps connections and speaks TLS; this class gives it
// what a signature covers, in the form that makes one valid: the digest of the body, and a query
// that is sorted and says "name=" where there is no value. A request that failed in a way that may
// pass is sent again after a wait that doubles, with jitter, and for a bounded time: so a store
// that restarts costs a wait, and one that is gone an error. What is sent again must therefore be
// harmless twice; S3BlobStore sees to that.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/message.h"
#include "common/storage/blob_store.h"
#include "common/storage/s3_settings.h"
#include "common/sync/mutex.h"

namespace starling::storage {

// `fresh`: those given before have expired.
using CredentialsSource = std::function<absl::StatusOr<Credentials>(bool fresh)>;

struct S3Options {
  S3Settings settings;
  std::string bucket;
  CredentialsSource credentials;
  int tries = 8;
  absl::Duration first_wait = absl::Milliseconds(200);  // before the second try; then it doubles
  absl::Duration longest_wait = absl::Seconds(5);
  absl::Duration patience = absl::Seconds(60);  // no try begins after it
  absl::Duration connect_timeout = absl::Seconds(5);
  absl::Duration stall_timeout = absl::Seconds(15);  // without a kilobyte a second
};

struct S3Request {
  std::string method;  // GET, HEAD, PUT, POST, DELETE
  std::string key;     // empty: the bucket
  std::map<std::string, std::string> query = {};
  http::Headers headers = {};
  Pieces body = {};
  std::size_t answer_limit = std::size_t{1} << 20;  // bytes of the answer's body
};

// Thread-safe.
class S3Client {
 public:
  explicit S3Client(S3Options options);
  ~S3Client();
  S3Client(const S3Client&) = delete;
  S3Client& operator=(const S3Client&) = delete;

  // The store's answer, whatever its status, after as many tries as it took. UNAVAILABLE: there is
  // none, and the message says why; the request may or may not have been carried out.
  // PERMISSION_DENIED: there are no credentials, or the store's certificate is not believed.
  // FAILED_PRECONDITION: the answer is larger than the request's limit.
  absl::StatusOr<http::Response> Exchange(const S3Request& request);

  const S3Options& options() const { return options_; }
  // The access key of the newest request, for messages.
  std::string access_key() const;

 private:
  struct Call;
  class Handle;
  absl::StatusOr<http::Response> Send(const S3Request& request, const std::string& digest,
                                      const Credentials& credentials);
  std::unique_ptr<Handle> Take();
  void GiveBack(std::unique_ptr<Handle> handle);

  const S3Options options_;
  mutable sync::Mutex mutex_;
  std::vector<std::unique_ptr<Handle>> idle_ ABSL_GUARDED_BY(mutex_);  // with their connections
  std::string access_key_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::storage
