// SPDX-License-Identifier: Apache-2.0
#include "common/storage/s3_error.h"

#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/http/http_client.h"

namespace starling::storage {
namespace {

constexpr std::size_t kQuoted = 200;  // bytes of a store's own words in a message

// $B is the bucket, $E the endpoint, $K the access key, $R the region that the store names.
struct Meaning {
  std::string_view code;
  absl::StatusCode status;
  std::string_view words;
};
constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;
constexpr absl::StatusCode kWrongPlace = absl::StatusCode::kFailedPrecondition;
constexpr std::string_view kExpired =
    "the credentials have expired; give fresh ones (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
    "AWS_SESSION_TOKEN)";
constexpr std::string_view kOtherRegion =
    "the bucket $B lies in the region $R; set AWS_REGION to it";
constexpr std::string_view kNoSpace = "the store has no space left; make space there";
constexpr std::string_view kUnknownKey =
    "the store at $E does not know the access key $K; correct AWS_ACCESS_KEY_ID";
constexpr std::array<Meaning, 19> kMeanings = {{
    {"NoSuchKey", absl::StatusCode::kNotFound, "is not there"},
    {"NoSuchBucket", kWrongPlace,
     "there is no bucket $B at $E; make it, or correct the URI or AWS_ENDPOINT_URL"},
    {"InvalidBucketName", kWrongPlace, "a bucket cannot be called $B; correct the URI"},
    {"InvalidAccessKeyId", kDenied, kUnknownKey},
    {"XAdminUserNotFound", kDenied, kUnknownKey},
    {"SignatureDoesNotMatch", kDenied,
     "the secret is not that of the access key $K; correct AWS_SECRET_ACCESS_KEY"},
    {"ExpiredToken", kDenied, kExpired},
    {"TokenRefreshRequired", kDenied, kExpired},
    {"InvalidToken", kDenied, "the session token is not valid; correct AWS_SESSION_TOKEN"},
    {"AccessDenied", kDenied,
     "the access key $K may not do this; allow it s3:GetObject, s3:PutObject, s3:DeleteObject, "
     "s3:AbortMultipartUpload and s3:ListBucket on the bucket $B"},
    {"AccountProblem", kDenied, "the store refuses this account; ask who runs it"},
    {"RequestTimeTooSkewed", kDenied,
     "this machine's clock differs from the store's by minutes; set it"},
    {"PermanentRedirect", kWrongPlace, kOtherRegion},
    {"AuthorizationHeaderMalformed", kWrongPlace, kOtherRegion},
    {"IllegalLocationConstraintException", kWrongPlace, kOtherRegion},
    {"QuotaExceeded", absl::StatusCode::kResourceExhausted, kNoSpace},
    {"XMinioStorageFull", absl::StatusCode::kResourceExhausted, kNoSpace},
    {"InsufficientCapacity", absl::StatusCode::kResourceExhausted, kNoSpace},
    {"EntityTooLarge", absl::StatusCode::kResourceExhausted,
     "it is larger than the store takes; use a store that takes more"},
}};

constexpr std::array<std::string_view, 8> kPassing = {
    "RequestTimeout", "IncompleteBody", "BadDigest",  "XAmzContentSHA256Mismatch",
    "SlowDown",       "InternalError",  "Throttling", "ConditionalRequestConflict"};

std::string Unescape(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()), {{"&lt;", "<"},
                                                                           {"&gt;", ">"},
                                                                           {"&quot;", "\""},
                                                                           {"&apos;", "'"},
                                                                           {"&#34;", "\""},
                                                                           {"&#39;", "'"},
                                                                           {"&amp;", "&"}});
}

// A store's own words, so short that a message stays one, and harmless on a terminal.
std::string Quote(std::string text) {
  if (text.size() > kQuoted) text = text.substr(0, kQuoted) + "...";
  for (char& c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return text;
}

std::string RegionOf(const http::Response& answer) {
  const std::string header(answer.Header("x-amz-bucket-region"));
  if (!header.empty()) return Quote(header);
  const auto element = FindElement(answer.body, "Region");
  return element.has_value() ? Quote(element->text) : "that its owner knows";
}

// Where no code came with it, as in the answer to HEAD.
std::string_view UsualCode(int status) {
  switch (status) {
    case 301:
      return "PermanentRedirect";
    case 403:
      return "AccessDenied";
    case 404:
      return "NoSuchKey";
    case 507:
      return "QuotaExceeded";
    default:
      return "";
  }
}

}  // namespace

std::optional<Element> FindElement(std::string_view xml, std::string_view tag, std::size_t begin) {
  const std::string open = absl::StrCat("<", std::string(tag), ">");
  const std::string close = absl::StrCat("</", std::string(tag), ">");
  const std::size_t at = xml.find(open, begin);
  if (at == std::string_view::npos) return std::nullopt;
  const std::size_t end = xml.find(close, at);
  if (end == std::string_view::npos) return std::nullopt;
  return Element{Unescape(xml.substr(at + open.size(), end - at - open.size())),
                 end + close.size()};
}

std::vector<std::string_view> FindElements(std::string_view xml, std::string_view tag) {
  const std::string open = absl::StrCat("<", std::string(tag), ">");
  const std::string close = absl::StrCat("</", std::string(tag), ">");
  std::vector<std::string_view> found;
  for (std::size_t at = xml.find(open); at != std::string_view::npos; at = xml.find(open, at)) {
    const std::size_t end = xml.find(close, at);
    if (end == std::string_view::npos) break;
    found.push_back(xml.substr(at + open.size(), end - at - open.size()));
    at = end + close.size();
  }
  return found;
}

std::string S3Code(const http::Response& answer) {
  const auto code = FindElement(answer.body, "Code");
  return code.has_value() ? code->text : "";
}

absl::Status S3Error(const http::Response& answer, const S3Subject& subject) {
  if (answer.status / 100 == 2) {
    return absl::DataLossError(absl::StrCat(subject.uri, ": the answer of ", subject.endpoint,
                                            " lacks what S3 has in it"));
  }
  const std::string given = S3Code(answer);
  const std::string code = given.empty() ? std::string(UsualCode(answer.status)) : given;
  for (const Meaning& meaning : kMeanings) {
    if (meaning.code != code) continue;
    const std::string words = absl::StrReplaceAll(
        absl::string_view(meaning.words.data(), meaning.words.size()), {{"$B", subject.bucket},
                                                                        {"$E", subject.endpoint},
                                                                        {"$K", subject.access_key},
                                                                        {"$R", RegionOf(answer)}});
    return absl::Status(meaning.status,
                        absl::StrCat(subject.uri, code == "NoSuchKey" ? " " : ": ", words));
  }
  const auto message = FindElement(answer.body, "Message");
  http::Response bare;
  bare.status = answer.status;
  bare.body = Quote(message.has_value() ? absl::StrCat(code, ": ", message->text) : answer.body);
  const absl::Status status = http::StatusOf(bare, subject.uri);
  // Something else is missing than the blob, such as an upload that another has ended.
  if (absl::IsNotFound(status)) return absl::FailedPreconditionError(status.message());
  return status;
}

bool IsPassing(const http::Response& answer) {
  if (answer.status < 400) return false;
  if (answer.status == 429 || answer.status == 408 || answer.status == 409) return true;
  if (answer.status >= 500) return answer.status != 501 && answer.status != 507;
  const std::string code = S3Code(answer);
  for (const std::string_view passing : kPassing) {
    if (code == passing) return true;
  }
  return false;
}

}  // namespace starling::storage
