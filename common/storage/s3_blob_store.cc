// SPDX-License-Identifier: Apache-2.0
#include "common/storage/s3_blob_store.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "common/storage/s3_error.h"
#include "common/storage/web_identity.h"

namespace starling::storage {
namespace {

constexpr std::size_t kRange = std::size_t{8} << 20;      // bytes that one request asks for
constexpr std::size_t kMostParts = 10'000;                // S3's limit
constexpr std::size_t kListLimit = std::size_t{8} << 20;  // bytes of a page of 1,000 names
constexpr char kMark[] = "x-amz-meta-starling-put";
constexpr std::size_t kMarkBytes = 16;

bool Succeeded(const http::Response& answer) { return answer.status / 100 == 2; }

bool ParseSize(std::string_view text, std::size_t& size) {
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &size);
}

std::string NewMark() {
  const std::string random = bytes::RandomBytes(kMarkBytes);
  return bytes::ToHex({reinterpret_cast<const std::uint8_t*>(random.data()), random.size()});
}

// The next `size` bytes of `pieces`, which begin at `offset` of the first; both move on.
std::vector<std::span<const std::byte>> Cut(Pieces& pieces, std::size_t& offset, std::size_t size) {
  std::vector<std::span<const std::byte>> part;
  while (size > 0 && !pieces.empty()) {
    const auto rest = pieces.front().subspan(offset);
    part.push_back(rest.first(std::min(size, rest.size())));
    size -= part.back().size();
    offset += part.back().size();
    if (part.back().size() == rest.size()) {
      pieces = pieces.subspan(1);
      offset = 0;
    }
  }
  return part;
}

// %20 and the like, and '+' for a space, as encoding-type=url has it. Broken ones stay as they are.
std::string DecodeUrl(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned int byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        absl::SimpleHexAtoi(absl::string_view(text.data() + i + 1, 2), &byte)) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

// Thread-safe.
class S3BlobStore final : public BlobStore {
 public:
  S3BlobStore(S3Options options, std::string prefix, std::size_t part)
      : client_(std::move(options)),
        prefix_(prefix.empty() ? "" : std::move(prefix) + "/"),
        part_(part) {}

  absl::Status Put(const std::string& name, Pieces pieces, IfPresent if_present) override {
    RETURN_IF_ERROR(CheckName(name));
    const Writing writing{name, NewMark(), if_present == IfPresent::kFail};
    if (SizeOf(pieces) > part_) return PutInParts(writing, pieces);
    return Committed(writing, {.method = "PUT",
                               .key = KeyOf(name),
                               .query = {},
                               .headers = Headers(writing, true, writing.if_none),
                               .body = pieces});
  }

  absl::StatusOr<std::size_t> Size(const std::string& name) override {
    ASSIGN_OR_RETURN(const BlobInfo info, Look(name));
    return info.size;
  }

  absl::StatusOr<BlobInfo> Look(const std::string& name) override {
    ASSIGN_OR_RETURN(const http::Response answer, Head(name));
    // Objects that came to a store behind its back have no tag in some.
    const std::string_view tag = answer.Header("ETag");
    BlobInfo info{.version = std::string(tag.empty() ? answer.Header("Last-Modified") : tag)};
    if (ParseSize(answer.Header("Content-Length"), info.size)) return info;
    return absl::DataLossError(
        absl::StrCat(UriOf(name), ": the store does not say how long it is (no Content-Length)"));
  }

  absl::Status Read(const std::string& name, std::size_t offset,
                    std::span<std::byte> into) override {
    RETURN_IF_ERROR(CheckName(name));
    std::string version;
    while (!into.empty()) {
      const std::size_t size = std::min(into.size(), kRange);
      RETURN_IF_ERROR(ReadRange(name, offset, into.first(size), version));
      offset += size;
      into = into.subspan(size);
    }
    return absl::OkStatus();
  }

  absl::Status Delete(const std::string& name) override {
    RETURN_IF_ERROR(CheckName(name));
    ASSIGN_OR_RETURN(const http::Response answer,
                     Ask(name, {.method = "DELETE", .key = KeyOf(name)}));
    if (Succeeded(answer)) return absl::OkStatus();
    const absl::Status status = ErrorOf(name, answer);
    return absl::IsNotFound(status) ? absl::OkStatus() : status;
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& prefix) override {
    std::vector<std::string> names;
    std::string token;
    do {
      ASSIGN_OR_RETURN(token, ListPage(prefix, token, names));
    } while (!token.empty());
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

  std::string UriOf(std::string_view name) const override {
    return absl::StrCat("s3://", client_.options().bucket, "/", prefix_, std::string(name));
  }

 private:
  struct Writing {
    const std::string& name;
    const std::string mark;
    const bool if_none;
  };

  std::string KeyOf(const std::string& name) const { return prefix_ + name; }

  static http::Headers Headers(const Writing& writing, bool creates, bool commits_new) {
    http::Headers headers = {{"content-type", "application/octet-stream"}};
    if (creates) headers.emplace_back(kMark, writing.mark);
    if (commits_new) headers.emplace_back("if-none-match", "*");
    return headers;
  }

  absl::Status ErrorOf(const std::string& name, const http::Response& answer) const {
    return S3Error(answer, {.uri = UriOf(name),
                            .bucket = client_.options().bucket,
                            .endpoint = client_.options().settings.endpoint,
                            .access_key = client_.access_key()});
  }

  absl::StatusOr<http::Response> Ask(const std::string& name, const S3Request& request) {
    absl::StatusOr<http::Response> answer = client_.Exchange(request);
    if (answer.ok()) return answer;
    return absl::Status(answer.status().code(),
                        absl::StrCat(UriOf(name), ": ", answer.status().message()));
  }

  // The answer to HEAD. One that is no success has no words, so that a GET is asked for them.
  absl::StatusOr<http::Response> Head(const std::string& name) {
    RETURN_IF_ERROR(CheckName(name));
    ASSIGN_OR_RETURN(http::Response answer, Ask(name, {.method = "HEAD", .key = KeyOf(name)}));
    if (Succeeded(answer)) return answer;
    ASSIGN_OR_RETURN(const http::Response words, Ask(name, {.method = "GET",
                                                            .key = KeyOf(name),
                                                            .query = {},
                                                            .headers = {{"range", "bytes=0-0"}}}));
    return ErrorOf(name, Succeeded(words) ? answer : words);
  }

  // Sends what makes the blob be there. An answer that was lost may have made it already: then the
  // next try hears that there is one, or that there is no such upload any more.
  absl::Status Committed(const Writing& writing, const S3Request& request) {
    ASSIGN_OR_RETURN(const http::Response answer, Ask(writing.name, request));
    if (Succeeded(answer)) return absl::OkStatus();
    const std::string code = S3Code(answer);
    const bool is_there = answer.status == 412 || code == "PreconditionFailed";
    if (is_there || code == "NoSuchUpload") {
      const absl::StatusOr<http::Response> present = Head(writing.name);
      if (present.ok() && present->Header(kMark) == writing.mark) return absl::OkStatus();
    }
    if (is_there) return AlreadyExists(writing.name);
    return ErrorOf(writing.name, answer);
  }

  absl::Status AlreadyExists(const std::string& name) const {
    return absl::AlreadyExistsError(absl::StrCat(UriOf(name), " is there"));
  }

  absl::Status PutInParts(const Writing& writing, Pieces pieces) {
    // Cheaper than to find out after all has been sent; what decides is the last request.
    if (writing.if_none && Head(writing.name).ok()) return AlreadyExists(writing.name);
    ASSIGN_OR_RETURN(const http::Response begun,
                     Ask(writing.name, {.method = "POST",
                                        .key = KeyOf(writing.name),
                                        .query = {{"uploads", ""}},
                                        .headers = Headers(writing, true, false)}));
    const auto upload = FindElement(begun.body, "UploadId");
    if (!Succeeded(begun) || !upload.has_value()) return ErrorOf(writing.name, begun);
    const absl::Status status = SendParts(writing, upload->text, pieces);
    if (!status.ok()) {
      // What comes of it does not matter: the first error is the one to tell.
      (void)client_.Exchange(
          {.method = "DELETE", .key = KeyOf(writing.name), .query = {{"uploadId", upload->text}}});
    }
    return status;
  }

  absl::Status SendParts(const Writing& writing, const std::string& upload, Pieces pieces) {
    const std::size_t most = std::max(part_, SizeOf(pieces) / (kMostParts - 1) + 1);
    std::string list = "<CompleteMultipartUpload>";
    std::size_t offset = 0;
    for (int number = 1;; ++number) {
      const auto part = Cut(pieces, offset, most);
      if (SizeOf(part) == 0) break;
      ASSIGN_OR_RETURN(
          const http::Response answer,
          Ask(writing.name, {.method = "PUT",
                             .key = KeyOf(writing.name),
                             .query = {{"partNumber", absl::StrCat(number)}, {"uploadId", upload}},
                             .headers = Headers(writing, false, false),
                             .body = part}));
      if (!Succeeded(answer)) return ErrorOf(writing.name, answer);
      absl::StrAppend(&list, "<Part><PartNumber>", number, "</PartNumber><ETag>",
                      std::string(answer.Header("ETag")), "</ETag></Part>");
    }
    absl::StrAppend(&list, "</CompleteMultipartUpload>");
    const std::span<const std::byte> body = bytes::View(list);
    return Committed(writing, {.method = "POST",
                               .key = KeyOf(writing.name),
                               .query = {{"uploadId", upload}},
                               .headers = Headers(writing, false, writing.if_none),
                               .body = std::span(&body, 1)});
  }

  // `version` is what was read of before, and all of one Read is of one.
  absl::Status ReadRange(const std::string& name, std::size_t offset, std::span<std::byte> into,
                         std::string& version) {
    const std::size_t last = offset + into.size() - 1;
    S3Request request{.method = "GET",
                      .key = KeyOf(name),
                      .query = {},
                      .headers = {{"range", absl::StrCat("bytes=", offset, "-", last)}}};
    request.answer_limit = into.size() + (std::size_t{64} << 10);
    if (!version.empty()) request.headers.emplace_back("if-match", version);
    ASSIGN_OR_RETURN(const http::Response answer, Ask(name, request));
    const std::string begin = absl::StrCat("bytes ", offset, "-");
    if (answer.status == 416 || (answer.status == 206 && answer.body.size() < into.size())) {
      return absl::OutOfRangeError(absl::StrCat(UriOf(name), " ends before byte ", last));
    }
    if (answer.status == 412) {
      return absl::OutOfRangeError(absl::StrCat(
          UriOf(name), " was replaced while it was read; leave it alone while jobs use it"));
    }
    if (!Succeeded(answer)) return ErrorOf(name, answer);
    if (answer.status != 206 || !answer.Header("Content-Range").starts_with(begin) ||
        answer.body.size() != into.size()) {
      return absl::UnimplementedError(
          absl::StrCat(UriOf(name), ": the store does not hand out ranges; use one that does"));
    }
    std::memcpy(into.data(), answer.body.data(), into.size());
    version = std::string(answer.Header("ETag"));
    return absl::OkStatus();
  }

  // Appends a page of names; where the next begins, or "".
  absl::StatusOr<std::string> ListPage(const std::string& prefix, const std::string& token,
                                       std::vector<std::string>& names) {
    S3Request request{
        .method = "GET",
        .key = "",
        .query = {{"encoding-type", "url"}, {"list-type", "2"}, {"prefix", prefix_ + prefix}}};
    request.answer_limit = kListLimit;
    if (!token.empty()) request.query["continuation-token"] = token;
    ASSIGN_OR_RETURN(const http::Response answer, Ask(prefix, request));
    if (!Succeeded(answer)) return ErrorOf(prefix, answer);
    // Not every store does what it is asked for here.
    const auto encoding = FindElement(answer.body, "EncodingType");
    const bool encoded = encoding.has_value() && encoding->text == "url";
    for (const std::string_view object : FindElements(answer.body, "Contents")) {
      const auto key = FindElement(object, "Key");
      if (!key.has_value()) continue;
      const std::string name = encoded ? DecodeUrl(key->text) : key->text;
      // What other programs leave as folders ("a/") and the like are no blobs.
      if (!name.starts_with(prefix_ + prefix)) continue;
      if (CheckName(name.substr(prefix_.size())).ok()) names.push_back(name.substr(prefix_.size()));
    }
    const auto more = FindElement(answer.body, "IsTruncated");
    if (!more.has_value() || more->text != "true") return std::string();
    const auto next = FindElement(answer.body, "NextContinuationToken");
    if (next.has_value() && !next->text.empty() && next->text != token) return next->text;
    return absl::DataLossError(absl::StrCat(
        UriOf(prefix), ": the store says that there are more names, but not how to go on"));
  }

  S3Client client_;
  const std::string prefix_;  // empty, or with a slash at its end
  const std::size_t part_;
};

}  // namespace

std::unique_ptr<BlobStore> MakeS3BlobStore(S3Options options, std::string prefix,
                                           std::size_t part) {
  return std::make_unique<S3BlobStore>(std::move(options), std::move(prefix), part);
}

absl::StatusOr<std::unique_ptr<BlobStore>> OpenS3BlobStore(std::string_view place,
                                                           const Variables& variables) {
  const std::size_t slash = std::min(place.find('/'), place.size());
  S3Options options;
  options.bucket = std::string(place.substr(0, slash));
  ASSIGN_OR_RETURN(options.settings, ReadS3Settings(variables, options.bucket));
  ASSIGN_OR_RETURN(options.credentials, FindCredentials(variables, options.settings));
  return MakeS3BlobStore(std::move(options),
                         std::string(place.substr(std::min(slash + 1, place.size()))));
}

}  // namespace starling::storage
