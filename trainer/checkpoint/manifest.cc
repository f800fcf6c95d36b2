// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/manifest.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/json/json.h"
#include "nlohmann/json.hpp"

namespace starling::checkpoint {
namespace {

constexpr char kFormat[] = "starling-checkpoint/1";

nlohmann::json ToJson(const Manifest& manifest) {
  nlohmann::json shards = nlohmann::json::array();
  for (const Shard& shard : manifest.shards) {
    shards.push_back({{"file", shard.file}, {"size", shard.size}, {"sha256", shard.sha256}});
  }
  return {{"format", kFormat},
          {"state", NameOf(manifest.id)},
          {"shards", std::move(shards)},
          {"attributes", manifest.attributes}};
}

absl::Status CorruptManifest(std::string_view what) {
  return absl::DataLossError(
      absl::StrCat(kManifestName, " ", absl::string_view(what.data(), what.size())));
}

// What `value` says, if it has the shape that ToJson gives; else what it says is not used.
Manifest FromJson(const nlohmann::json& value) {
  Manifest manifest;
  const auto text = [](const nlohmann::json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  };
  manifest.id = ParseName(text(value, "state")).value_or(StateId{});
  if (const auto shards = value.find("shards"); shards != value.end() && shards->is_array()) {
    for (const auto& shard : *shards) {
      if (!shard.is_object()) continue;
      const auto size = shard.find("size");
      manifest.shards.push_back(
          {.file = text(shard, "file"),
           .size = size != shard.end() && size->is_number_unsigned() ? size->get<std::size_t>() : 0,
           .sha256 = text(shard, "sha256")});
    }
  }
  if (const auto attributes = value.find("attributes");
      attributes != value.end() && attributes->is_object()) {
    for (const auto& [name, content] : attributes->items()) {
      if (content.is_string()) manifest.attributes[name] = content.get<std::string>();
    }
  }
  return manifest;
}

}  // namespace

std::string ToText(const Manifest& manifest) {
  nlohmann::json value = ToJson(manifest);
  value["sha256"] = bytes::Sha256Hex(json::Dump(value));
  return json::DumpPretty(value) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(std::string_view text) {
  const auto value = json::Parse(text, {.bytes = kManifestLimit, .depth = 8, .nodes = 1 << 20});
  if (!value.ok() || !value->is_object()) return CorruptManifest("is not a JSON object");
  const auto format = value->find("format");
  if (format != value->end() && *format != kFormat) {
    return CorruptManifest(absl::StrCat("has another format than ", kFormat));
  }
  Manifest manifest = FromJson(*value);
  // Whatever was changed, dropped or added on the way does not survive the way back.
  if (ToText(manifest) != text)
    return CorruptManifest("does not have the digest that it gives itself");
  return manifest;
}

}  // namespace starling::checkpoint
