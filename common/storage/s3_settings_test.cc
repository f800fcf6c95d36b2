// SPDX-License-Identifier: Apache-2.0
// What needs no object store: variables of the environment, answers, projected tokens.
#include "common/storage/s3_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/http/http_server.h"
#include "common/storage/s3_error.h"
#include "common/storage/web_identity.h"
#include "common/sync/mutex.h"

namespace starling::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Variables Of(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? "" : found->second;
  };
}

TEST(S3Settings, AtAmazonTheBucketStandsBeforeTheRegionsHost) {
  const auto settings = ReadS3Settings(Of({{"AWS_REGION", "eu-central-1"}}), "data");
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(S3Url(*settings, "data", "a b/ü"),
            "https://data.s3.eu-central-1.amazonaws.com/a%20b/%C3%BC");
  EXPECT_EQ(S3Url(*settings, "data", ""), "https://data.s3.eu-central-1.amazonaws.com/");
  const auto dotted = ReadS3Settings(Of({}), "da.ta");
  EXPECT_EQ(S3Url(*dotted, "da.ta", "a"), "https://s3.us-east-1.amazonaws.com/da.ta/a");
  const auto china = ReadS3Settings(Of({{"AWS_DEFAULT_REGION", "cn-north-1"}}), "data");
  EXPECT_EQ(china->endpoint, "https://s3.cn-north-1.amazonaws.com.cn");
}

TEST(S3Settings, ElsewhereItStandsBehindTheHostUnlessTold) {
  const auto settings = ReadS3Settings(Of({{"AWS_ENDPOINT_URL", "http://store:9000/"}}), "data");
  EXPECT_EQ(S3Url(*settings, "data", "a"), "http://store:9000/data/a");
  const auto virtual_host = ReadS3Settings(Of({{"AWS_ENDPOINT_URL", "http://store:9000"},
                                               {"AWS_ENDPOINT_URL_S3", "https://s3.store"},
                                               {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true"}}),
                                           "data");
  EXPECT_EQ(S3Url(*virtual_host, "data", "a"), "https://data.s3.store/a");
}

TEST(S3Settings, AWrongVariableIsNamed) {
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"AWS_ENDPOINT_URL", "store:9000"},
                                          {"AWS_REGION", "evil.example/"},
                                          {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "perhaps"}}) {
    const absl::Status status = ReadS3Settings(Of({{name, value}}), "data").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(name));
  }
}

TEST(S3Settings, WithoutCredentialsItSaysWhereToGiveThem) {
  const absl::Status none = FindCredentials(Of({}), {}).status();
  EXPECT_TRUE(absl::IsPermissionDenied(none)) << none;
  EXPECT_THAT(none.message(), HasSubstr("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"));
  const absl::Status half = FindCredentials(Of({{"AWS_ACCESS_KEY_ID", "k"}}), {}).status();
  EXPECT_THAT(half.message(), HasSubstr("only one of"));
}

http::Response Answer(int status, std::string body) {
  http::Response answer;
  answer.status = status;
  answer.body = std::move(body);
  return answer;
}

TEST(S3Error, NamesTheRegionThatTheStoreNames) {
  const absl::Status status =
      S3Error(Answer(400,
                     "<Error><Code>AuthorizationHeaderMalformed</Code>"
                     "<Region>eu-west-1</Region></Error>"),
              {.uri = "s3://b/k", .bucket = "b", .endpoint = "https://e", .access_key = "K"});
  EXPECT_EQ(status.message(),
            "s3://b/k: the bucket b lies in the region eu-west-1; set AWS_REGION to it");
}

TEST(S3Error, AForeignAnswerIsQuotedShortAndHarmless) {
  const absl::Status status =
      S3Error(Answer(418, "\x1b[2J" + std::string(100'000, 'x')), {.uri = "s3://b/k"});
  EXPECT_LT(status.message().size(), 400U);
  EXPECT_EQ(status.message().find('\x1b'), absl::string_view::npos);
  EXPECT_TRUE(FindElements("<a><Contents><Key>x</Key>", "Contents").empty());
  EXPECT_EQ(FindElement("<Key>a&amp;lt;&lt;</Key>", "Key")->text, "a&lt;<");
  EXPECT_FALSE(FindElement("</Key><Key>", "Key").has_value());
}

// The token service, as its documentation has it: there is none that could run here.
class TokenService {
 public:
  explicit TokenService(absl::Duration lasts)
      : server_(*http::HttpServer::Start({}, [this, lasts](const http::Request& request) {
          const sync::MutexLock lock(mutex_);
          bodies_.push_back(request.body);
          return Answer(refuses_ ? 403 : 200,
                        refuses_ ? "<Error><Code>AccessDenied</Code></Error>"
                                 : absl::StrCat("<Credentials><AccessKeyId>K", bodies_.size(),
                                                "</AccessKeyId><SecretAccessKey>S"
                                                "</SecretAccessKey><SessionToken>T</SessionToken>"
                                                "<Expiration>",
                                                absl::FormatTime(absl::Now() + lasts),
                                                "</Expiration></Credentials>"));
        })) {}
  std::string url() const { return absl::StrCat("http://127.0.0.1:", server_->port()); }
  std::vector<std::string> bodies() const {
    const sync::MutexLock lock(mutex_);
    return bodies_;
  }
  void Refuse() {
    const sync::MutexLock lock(mutex_);
    refuses_ = true;
  }

 private:
  mutable sync::Mutex mutex_;
  std::vector<std::string> bodies_ ABSL_GUARDED_BY(mutex_);
  bool refuses_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<http::HttpServer> server_;
};

class WebIdentity : public testing::Test {
 protected:
  WebIdentity() {
    const int file = ::mkstemp(path_.data());
    EXPECT_EQ(::write(file, "a token\n", 8), 8);
    ::close(file);
  }
  ~WebIdentity() override { ::unlink(path_.c_str()); }

  absl::StatusOr<CredentialsSource> Find(const TokenService& service) {
    return FindCredentials(Of({{"AWS_WEB_IDENTITY_TOKEN_FILE", path_},
                               {"AWS_ROLE_ARN", "arn:aws:iam::1:role/r"},
                               {"AWS_ENDPOINT_URL_STS", service.url()}}),
                           {.endpoint = "", .region = "us-east-1", .ca_bundle = ""});
  }

  std::string path_ = "/tmp/starling-token-XXXXXX";
};

TEST_F(WebIdentity, ATokenIsExchangedOnceForCredentialsThatLast) {
  TokenService service(absl::Hours(1));
  const auto source = Find(service);
  ASSERT_TRUE(source.ok()) << source.status();
  for (int i = 0; i < 3; ++i) EXPECT_EQ((*source)(false)->access_key, "K1");
  EXPECT_EQ((*source)(false)->session_token, "T");
  EXPECT_THAT(service.bodies(),
              ElementsAre("Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws"
                          "%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=starling&WebIdentityToken=a"
                          "%20token"));
  EXPECT_EQ((*source)(true)->access_key, "K2") << "the store said that they had expired";
}

TEST_F(WebIdentity, CredentialsThatEndSoonAreRenewed) {
  TokenService service(absl::Minutes(1));
  const auto source = Find(service);
  EXPECT_EQ((*source)(false)->access_key, "K1");
  EXPECT_EQ((*source)(false)->access_key, "K2");
}

TEST_F(WebIdentity, ARefusalNamesTheRole) {
  TokenService service(absl::Hours(1));
  service.Refuse();
  const absl::Status status = (*Find(service))(false).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("AWS_ROLE_ARN arn:aws:iam::1:role/r (AccessDenied)"));
}

TEST_F(WebIdentity, AMissingTokenNamesItsFile) {
  TokenService service(absl::Hours(1));
  const auto source = Find(service);
  ::unlink(path_.c_str());
  EXPECT_THAT((*source)(false).status().message(), HasSubstr("AWS_WEB_IDENTITY_TOKEN_FILE"));
}

}  // namespace
}  // namespace starling::storage
