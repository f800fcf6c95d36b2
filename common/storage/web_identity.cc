// SPDX-License-Identifier: Apache-2.0
#include "common/storage/web_identity.h"

#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/http_client.h"
#include "common/status/macros.h"
#include "common/storage/s3_error.h"
#include "common/sync/mutex.h"

namespace starling::storage {
namespace {

constexpr absl::Duration kEarly = absl::Minutes(5);  // before their end they are renewed
constexpr char kTokenFile[] = "AWS_WEB_IDENTITY_TOKEN_FILE";

struct Session {
  Credentials credentials;
  absl::Time end;
};

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string token{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  absl::StripAsciiWhitespace(&token);
  if (file && !token.empty()) return token;
  return absl::PermissionDeniedError(absl::StrCat(
      kTokenFile, " is ", path, ", in which there is no token; mount the projected token there"));
}

absl::StatusOr<Session> ParseSession(const http::Response& answer) {
  const auto key = FindElement(answer.body, "AccessKeyId");
  const auto secret = FindElement(answer.body, "SecretAccessKey");
  const auto token = FindElement(answer.body, "SessionToken");
  const auto end = FindElement(answer.body, "Expiration");
  if (!key || !secret || !token || !end) {
    return absl::UnavailableError("the token service's answer holds no credentials");
  }
  Session session{{key->text, secret->text, token->text}, absl::InfinitePast()};
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, end->text, &session.end, &error)) {
    return absl::UnavailableError("the token service's answer does not say when credentials end");
  }
  return session;
}

// Thread-safe.
class WebIdentity {
 public:
  WebIdentity(std::unique_ptr<http::HttpClient> client, std::string role, std::string file,
              std::string session)
      : client_(std::move(client)),
        role_(std::move(role)),
        file_(std::move(file)),
        name_(session.empty() ? "starling" : std::move(session)) {}

  absl::StatusOr<Credentials> Get(bool fresh) {
    const sync::MutexLock lock(mutex_);  // whoever comes meanwhile waits for the same answer
    if (!fresh && session_.has_value() && absl::Now() < session_->end - kEarly) {
      return session_->credentials;
    }
    ASSIGN_OR_RETURN(session_, Assume());
    return session_->credentials;
  }

 private:
  absl::StatusOr<Session> Assume() const {
    // It is renewed too, so that it is read each time.
    ASSIGN_OR_RETURN(const std::string token, ReadToken(file_));
    http::Request request{"POST", "/", "", {{"Content-Type", "application/x-www-form-urlencoded"}}};
    request.body = absl::StrCat(
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=", http::PercentEncode(role_),
        "&RoleSessionName=", http::PercentEncode(name_),
        "&WebIdentityToken=", http::PercentEncode(token));
    ASSIGN_OR_RETURN(const http::Response answer, client_->Exchange(request));
    if (answer.status == 200) return ParseSession(answer);
    const std::string code = S3Code(answer);
    if (answer.status >= 500) return http::StatusOf(answer, "the token service");
    return absl::PermissionDeniedError(
        absl::StrCat("the token service does not give credentials for AWS_ROLE_ARN ", role_, " (",
                     code.empty() ? absl::StrCat("HTTP ", answer.status) : code,
                     "); check that role's trust in the service account"));
  }

  const std::unique_ptr<http::HttpClient> client_;
  const std::string role_;
  const std::string file_;
  const std::string name_;
  sync::Mutex mutex_;
  std::optional<Session> session_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<CredentialsSource> FindCredentials(const Variables& variables,
                                                  const S3Settings& settings) {
  const std::string file = variables(kTokenFile);
  const std::string role = variables("AWS_ROLE_ARN");
  if (!variables("AWS_ACCESS_KEY_ID").empty() || file.empty() || role.empty()) {
    ASSIGN_OR_RETURN(Credentials fixed, ReadCredentials(variables));
    return CredentialsSource([fixed = std::move(fixed)](bool) { return fixed; });
  }
  std::string url = variables("AWS_ENDPOINT_URL_STS");
  if (url.empty()) url = absl::StrCat("https://sts.", settings.region, ".amazonaws.com");
  http::ClientOptions options;
  options.peer = "the token service";
  ASSIGN_OR_RETURN(auto client, http::HttpClient::Open(url, std::move(options)));
  auto identity = std::make_shared<WebIdentity>(std::move(client), role, file,
                                                variables("AWS_ROLE_SESSION_NAME"));
  return CredentialsSource([identity](bool fresh) { return identity->Get(fresh); });
}

}  // namespace starling::storage
