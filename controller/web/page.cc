// SPDX-License-Identifier: Apache-2.0
#include "controller/web/page.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/bytes/bytes.h"
#include "common/http/conditional.h"

namespace starling::web {
namespace {

// Nothing but this server's own files; no page of another may frame it, no form may leave it, and
// an injected <base> changes nothing.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const Asset* FindAsset(std::string_view path) {
  const auto& assets = Assets();
  const auto found = std::find_if(assets.begin(), assets.end(),
                                  [&](const Asset& asset) { return asset.path == path; });
  return found == assets.end() ? nullptr : &*found;
}

// Of the bytes, so that a browser keeps a file until another program brings another.
const std::string& TagOf(const Asset& asset) {
  static const auto& tags = *[] {
    auto* made = new std::map<std::string_view, std::string>();
    for (const Asset& one : Assets()) {
      (*made)[one.path] = bytes::Sha256Hex(std::string(one.bytes)).substr(0, 16);
    }
    return made;
  }();
  return tags.at(asset.path);
}

// Accept-Encoding names gzip, and not with the weight 0.
bool TakesGzip(std::string_view header) {
  for (const absl::string_view one :
       absl::StrSplit(absl::string_view(header.data(), header.size()), ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(one, ';');
    if (!absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(parts[0]), "gzip")) continue;
    if (parts.size() == 1) return true;
    const std::vector<absl::string_view> weight = absl::StrSplit(parts[1], '=');
    double value = 0;
    return weight.size() == 2 && absl::SimpleAtod(weight[1], &value) && value > 0;
  }
  return false;
}

}  // namespace

std::optional<http::Response> Answer(const http::Request& request) {
  const Asset* asset = FindAsset(request.Path());
  if (asset == nullptr) return std::nullopt;
  if (request.method != "GET" && request.method != "HEAD") {
    return http::Response{
        .status = 405, .body = "this path takes GET, HEAD\n", .headers = {{"Allow", "GET, HEAD"}}};
  }
  const bool gzip = TakesGzip(request.Header("Accept-Encoding"));
  // The two forms are different bytes and so have different tags.
  const std::string tag = TagOf(*asset) + (gzip ? "-gz" : "");
  http::Response response{.status = 200,
                          .body = "",
                          .content_type = std::string(asset->content_type),
                          .headers = {{"ETag", http::Quoted(tag)},
                                      {"Cache-Control", "no-cache"},
                                      {"Vary", "Accept-Encoding"},
                                      {"Content-Security-Policy", kPolicy},
                                      {"Cross-Origin-Opener-Policy", "same-origin"},
                                      {"Cross-Origin-Resource-Policy", "same-origin"},
                                      {"Referrer-Policy", "no-referrer"}}};
  const std::string_view known = request.Header("If-None-Match");
  if (!known.empty() && http::HoldsTag(known, tag)) {
    response.status = 304;
    return response;
  }
  if (gzip) response.headers.emplace_back("Content-Encoding", "gzip");
  response.body = std::string(gzip ? asset->compressed : asset->bytes);
  return response;
}

}  // namespace starling::web
