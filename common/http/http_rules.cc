// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_rules.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::http {
namespace {

namespace beast = boost::beast;
using Field = beast::http::field;

beast::string_view ToBeast(std::string_view text) { return {text.data(), text.size()}; }

// A 304 says nothing of a body, and neither it nor a 204 has one.
bool HasNoBody(int status) { return status == 204 || status == 304; }

}  // namespace

std::optional<Refusal> CheckHead(const RequestParser& parser) {
  const auto& request = parser.get();
  if (request.version() != 10 && request.version() != 11) {
    return Refusal{505, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
  }
  if (request.count(Field::content_length) > 1 || request.count(Field::transfer_encoding) > 1 ||
      (request.count(Field::content_length) > 0 && request.count(Field::transfer_encoding) > 0)) {
    return Refusal{400, "the body's length is given more than once"};
  }
  const auto coding = request.find(Field::transfer_encoding);
  if (coding != request.end() &&
      (request.version() == 10 || !beast::iequals(coding->value(), "chunked"))) {
    return Refusal{400, "the only transfer encoding is chunked, in HTTP/1.1"};
  }
  if (request.count(Field::host) > 1 || (request.version() == 11 && !request.count(Field::host))) {
    return Refusal{400, "send exactly one Host header"};
  }
  if (request.count(Field::content_encoding) > 0) {
    return Refusal{415, "send the body without Content-Encoding"};
  }
  if (request.target().empty() || request.target().front() != '/') {
    return Refusal{400, "the target must be a path"};
  }
  const auto method = request.method();
  const bool bodyless = method == beast::http::verb::get || method == beast::http::verb::head;
  if (bodyless && (parser.chunked() || parser.content_length().value_or(0) > 0)) {
    return Refusal{400, "a GET or HEAD request has no body"};
  }
  return std::nullopt;
}

std::optional<Refusal> RefusalOf(const beast::error_code& error) {
  namespace http = beast::http;
  if (error.category() != make_error_code(http::error::bad_method).category() ||
      error == http::error::end_of_stream || error == http::error::partial_message) {
    return std::nullopt;
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return Refusal{431, "the headers are too large"};
  }
  if (error == http::error::body_limit) return Refusal{413, "the body is too large"};
  return Refusal{400, "this is not a well-formed HTTP request"};
}

Request ToRequest(RequestParser& parser) {
  auto& message = parser.get();
  Request request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (const auto& field : message) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  request.body = std::move(message.body());
  return request;
}

std::string HeadOf(const Response& response, const Framing& framing) {
  beast::http::response<beast::http::empty_body> message;
  const int status = std::clamp(response.status, 100, 999);
  message.version(11);
  message.result(static_cast<unsigned>(status));
  if (IsHeaderText(response.content_type) && !HasNoBody(status)) {
    message.set(Field::content_type, ToBeast(response.content_type));
  }
  message.set(Field::cache_control, "no-store");
  message.set("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : response.headers) {
    if (IsToken(name) && IsHeaderText(value)) message.set(ToBeast(name), ToBeast(value));
  }
  message.keep_alive(framing.keep_alive);
  if (framing.chunked) message.chunked(true);
  if (framing.length && !HasNoBody(status)) message.content_length(*framing.length);
  std::ostringstream text;
  text << message.base();
  return text.str();
}

std::string ChunkOf(std::string_view bytes) {
  return absl::StrCat(absl::Hex(bytes.size()), "\r\n",
                      absl::string_view(bytes.data(), bytes.size()), "\r\n");
}

Response PlainRefusal(int status, std::string_view why) {
  return {.status = status,
          .body = absl::StrCat(absl::string_view(why.data(), why.size()), "\n"),
          .headers = {}};
}

}  // namespace starling::http
