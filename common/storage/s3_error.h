// SPDX-License-Identifier: Apache-2.0
// What an object store says when it refuses, in words that name the remedy.
//
// Stores answer with a code in XML; what to do about it is in one table (s3_error.cc). To add a
// code: a line there.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/http/message.h"

namespace starling::storage {

// The text of the first element `tag` in `xml` behind `begin`, its entities decoded, and where
// it ends. Enough for what S3 answers, which has neither attributes of interest nor nested
// elements of one name; foreign text gives nullopt or odd text, never more.
struct Element {
  std::string text;
  std::size_t end = 0;
};
std::optional<Element> FindElement(std::string_view xml, std::string_view tag,
                                   std::size_t begin = 0);
// All of them, in their order; entities are left alone, since there may be elements in them.
std::vector<std::string_view> FindElements(std::string_view xml, std::string_view tag);

// Whom the message is about.
struct S3Subject {
  std::string uri = {};
  std::string bucket = {};
  std::string endpoint = {};
  std::string access_key = {};
};

// The code in an answer's XML, or "".
std::string S3Code(const http::Response& answer);

// NOT_FOUND: no such object. FAILED_PRECONDITION: no such bucket, or it lies in another region.
// PERMISSION_DENIED: credentials. RESOURCE_EXHAUSTED: no space. DATA_LOSS: the answer is a success,
// but something in it was wanting. Else as http::StatusOf.
absl::Status S3Error(const http::Response& answer, const S3Subject& subject);

// Whether the same request may well succeed a little later.
bool IsPassing(const http::Response& answer);

}  // namespace starling::storage
