// SPDX-License-Identifier: Apache-2.0
// The page that people open: a few files that lie in the program itself and call the REST service.
//
// Whoever may ask for a job is REST's matter; these files are the same for everybody and hold no
// secret. They load nothing from elsewhere, and their policy forbids browsers to do so even if a
// job's name or log could make them try. source/ holds what they are made from, build.sh how. To
// add a file: a row in the table of assets.cc, and its name in CMakeLists.txt.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/http/message.h"

namespace starling::web {

struct Asset {
  std::string_view path;  // of the request
  std::string_view content_type;
  std::string_view bytes;
  std::string_view compressed;  // the same, by gzip
};

const std::vector<Asset>& Assets();

// Nothing: the path is none of the page's.
std::optional<http::Response> Answer(const http::Request& request);

}  // namespace starling::web
