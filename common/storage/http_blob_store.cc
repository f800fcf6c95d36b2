// SPDX-License-Identifier: Apache-2.0
#include "common/storage/http_blob_store.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "common/storage/place.h"

namespace starling::storage {
namespace {

constexpr std::size_t kHttpRange = std::size_t{8} << 20;  // bytes that one request asks for

// Thread-safe.
class HttpBlobStore final : public BlobStore {
 public:
  HttpBlobStore(std::string url, std::unique_ptr<http::HttpClient> client)
      : url_(std::move(url)), client_(std::move(client)) {}

  absl::Status Put(const std::string& name, Pieces, IfPresent) override { return OnlyRead(name); }
  absl::Status Delete(const std::string& name) override { return OnlyRead(name); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& prefix) override {
    return absl::UnimplementedError(
        absl::StrCat(UriOf(prefix), ": a web server does not list what it has; name the files"));
  }

  absl::StatusOr<std::size_t> Size(const std::string& name) override {
    ASSIGN_OR_RETURN(const BlobInfo info, Look(name));
    return info.size;
  }

  absl::StatusOr<BlobInfo> Look(const std::string& name) override {
    ASSIGN_OR_RETURN(const http::Response answer, Ask("HEAD", name, {}));
    RETURN_IF_ERROR(http::StatusOf(answer, UriOf(name)));
    BlobInfo info;
    // Without either, nobody can tell whether it is still the same.
    const std::string_view tag = answer.Header("ETag");
    info.version = std::string(tag.empty() ? answer.Header("Last-Modified") : tag);
    const std::string_view length = answer.Header("Content-Length");
    if (absl::SimpleAtoi(absl::string_view(length.data(), length.size()), &info.size)) return info;
    return absl::UnimplementedError(absl::StrCat(
        UriOf(name), ": the server does not say how long it is (no Content-Length); use another"));
  }

  absl::Status Read(const std::string& name, std::size_t offset,
                    std::span<std::byte> into) override {
    RETURN_IF_ERROR(CheckName(name));
    while (!into.empty()) {
      const std::size_t size = std::min(into.size(), kHttpRange);
      RETURN_IF_ERROR(ReadRange(name, offset, into.first(size)));
      offset += size;
      into = into.subspan(size);
    }
    return absl::OkStatus();
  }

  std::string UriOf(std::string_view name) const override { return Below(url_, name); }

 private:
  absl::Status OnlyRead(const std::string& name) const {
    return absl::UnimplementedError(absl::StrCat(UriOf(name),
                                                 ": a web server can only be read from; write to a "
                                                 "path, file:///path or s3://bucket/prefix"));
  }

  absl::StatusOr<http::Response> Ask(std::string method, const std::string& name,
                                     http::Headers headers) {
    RETURN_IF_ERROR(CheckName(name));
    return client_->Exchange(
        {std::move(method), "/" + http::PercentEncode(name, "/"), "", std::move(headers)});
  }

  absl::Status ReadRange(const std::string& name, std::size_t offset, std::span<std::byte> into) {
    const std::size_t last = offset + into.size() - 1;
    ASSIGN_OR_RETURN(const http::Response answer,
                     Ask("GET", name, {{"Range", absl::StrCat("bytes=", offset, "-", last)}}));
    RETURN_IF_ERROR(http::StatusOf(answer, UriOf(name)));
    const std::string begin = absl::StrCat("bytes ", offset, "-");
    const bool ranged = answer.status == 206 && answer.Header("Content-Range").starts_with(begin);
    const bool whole = answer.status == 200 && offset == 0;  // the server knows no ranges
    if (!ranged && !whole) {
      return absl::UnimplementedError(
          absl::StrCat(UriOf(name), ": the server does not hand out ranges; use one that does"));
    }
    if (answer.body.size() < into.size() || (ranged && answer.body.size() != into.size())) {
      return absl::OutOfRangeError(absl::StrCat(UriOf(name), " ends before byte ", last,
                                                "; leave it alone while it is read"));
    }
    std::memcpy(into.data(), answer.body.data(), into.size());
    return absl::OkStatus();
  }

  const std::string url_;
  const std::unique_ptr<http::HttpClient> client_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BlobStore>> OpenHttpBlobStore(std::string_view url,
                                                             http::ClientOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<http::HttpClient> client,
                   http::HttpClient::Open(url, std::move(options)));
  return std::make_unique<HttpBlobStore>(std::string(url), std::move(client));
}

}  // namespace starling::storage
