// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/event_text.h"

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/status/to_absl.h"

namespace starling::service {

std::string EventText(std::string_view event, std::string_view data,
                      std::optional<std::int64_t> id) {
  std::string text = id ? absl::StrCat("id: ", *id, "\n") : "";
  absl::StrAppend(&text, "event: ", ToAbsl(event), "\ndata: ", ToAbsl(data), "\n\n");
  return text;
}

std::string EndText(std::string_view reason) {
  return EventText("end", absl::StrCat("{\"reason\":\"", ToAbsl(reason), "\"}"));
}

std::string RetryText() {
  const auto byte = static_cast<unsigned char>(bytes::RandomBytes(1)[0]);
  return absl::StrCat("retry: ", 1000 + 4000 * byte / 255, "\n\n");
}

}  // namespace starling::service
