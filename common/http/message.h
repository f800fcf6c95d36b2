// SPDX-License-Identifier: Apache-2.0
// A request and a response, the same for the server and the client of this folder.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace starling::http {

class BodyStream;  // body_stream.h

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  // GET, HEAD, PUT, ...
  std::string target;  // path and query, percent-encoded
  std::string body;
  Headers headers;

  // The target up to "?".
  std::string_view Path() const;
  // The first header of that name (compared without case), or "".
  std::string_view Header(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
  // The others. The server drops those whose name or value has control characters.
  Headers headers;
  // Of a server: not null, the body instead of `body`. The connection ends with it.
  std::shared_ptr<BodyStream> stream = nullptr;
  // Of a server: the caller has proved who it is. Its connection is not given up for a newcomer
  // while a request is under way.
  bool known_caller = false;

  std::string_view Header(std::string_view name) const;
};

// Whether `text` can be the value of a header: no control characters but tabs.
bool IsHeaderText(std::string_view text);
// Whether `name` can be that of a header, or a method.
bool IsToken(std::string_view name);

// Everything but RFC 3986's unreserved characters becomes %XX, and `keep` stays too.
std::string PercentEncode(std::string_view text, std::string_view keep = {});

}  // namespace starling::http
