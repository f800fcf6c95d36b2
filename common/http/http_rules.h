// SPDX-License-Identifier: Apache-2.0
// Which requests the server takes, and how its answers look on the wire.
//
// Internal to this folder. To refuse another form of request, add it to CheckHead.
#pragma once

#include <boost/beast/core/error.hpp>
#include <boost/beast/http.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/http/message.h"

namespace starling::http {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

// Why a request gets no further.
struct Refusal {
  int status;
  std::string_view why;
};

// Requests that a proxy in front of us might read differently, and those that we never serve.
std::optional<Refusal> CheckHead(const RequestParser& parser);

// What a parser's error means to the client; nothing: it sent nothing wrong, only no more.
std::optional<Refusal> RefusalOf(const boost::beast::error_code& error);

// Takes the body out of the parser.
Request ToRequest(RequestParser& parser);

// How the end of a body is told.
struct Framing {
  bool keep_alive = false;
  bool chunked = false;
  std::optional<std::uint64_t> length;
};

// The status line and headers of `response`, and the empty line.
std::string HeadOf(const Response& response, const Framing& framing);

// One chunk of a chunked body; the empty one is its end.
std::string ChunkOf(std::string_view bytes);

// A refusal as plain text, for servers that have no form of their own for it.
Response PlainRefusal(int status, std::string_view why);

}  // namespace starling::http
