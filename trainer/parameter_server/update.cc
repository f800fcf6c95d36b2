// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/update.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace starling::parameter_server {
namespace {

struct Header {
  std::uint32_t kind = 0;
  std::uint32_t rank = 0;
  std::uint64_t first = 0;
  std::uint64_t rows = 0;
  std::uint64_t keys = 0;
  std::uint64_t values = 0;
  std::uint64_t text = 0;
};
static_assert(sizeof(Header) == kUpdateHeaderBytes);

constexpr std::uint64_t kMost = std::uint64_t{1} << 40;  // of anything: no product overflows

std::uint64_t Padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

std::uint64_t BytesOf(const Header& header) {
  return sizeof(Header) + header.keys * 8 + Padded(header.values * 4) + header.text;
}

Header HeaderOf(const Update& update) {
  return {static_cast<std::uint32_t>(update.kind),
          update.rank,
          update.first,
          update.rows,
          update.keys.size(),
          update.values.size(),
          update.text.size()};
}

bool PairsFit(const Update& update) {
  if (update.keys.size() % 2 != 0) return false;
  std::uint64_t length = 0;
  for (std::size_t i = 1; i < update.keys.size(); i += 2) {
    if (update.keys[i] > update.text.size()) return false;
    length += update.keys[i];
  }
  return length == update.text.size();
}

}  // namespace

std::size_t EncodedBytes(const Update& update) { return BytesOf(HeaderOf(update)); }

std::string Encode(const Update& update) {
  const Header header = HeaderOf(update);
  std::string bytes(BytesOf(header), '\0');
  char* to = bytes.data();
  const auto put = [&to](const void* from, std::size_t size, std::size_t padded) {
    if (size > 0) std::memcpy(to, from, size);
    to += padded;
  };
  put(&header, sizeof header, sizeof header);
  put(update.keys.data(), update.keys.size_bytes(), update.keys.size_bytes());
  put(update.values.data(), update.values.size_bytes(), Padded(update.values.size_bytes()));
  put(update.text.data(), update.text.size(), update.text.size());
  return bytes;
}

absl::StatusOr<Update> DecodeUpdate(std::string_view bytes) {
  const auto bad = [&](const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat("an update of ", bytes.size(), " bytes is malformed: ", what,
                     "; the sender and this server must be of one version"));
  };
  Header header;
  if (bytes.size() < sizeof header) return bad("it is shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.kind < 1 || header.kind > 4) return bad("its kind is unknown");
  for (const std::uint64_t count : {header.rows, header.keys, header.values, header.text}) {
    if (count > kMost) return bad("a count is absurd");
  }
  if (header.first > ~std::uint64_t{0} - header.rows) return bad("its rows end behind the last");
  if (BytesOf(header) != bytes.size()) return bad("its counts do not fit its size");
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % 8 != 0) return bad("it is not aligned");
  Update update;
  update.kind = static_cast<UpdateKind>(header.kind);
  update.rank = header.rank;
  update.first = header.first;
  update.rows = header.rows;
  const char* at = bytes.data() + sizeof header;
  update.keys = {reinterpret_cast<const std::uint64_t*>(at), header.keys};
  at += header.keys * 8;
  update.values = {reinterpret_cast<const float*>(at), header.values};
  at += Padded(header.values * 4);
  update.text = {at, header.text};
  if (update.kind == UpdateKind::kPairs && !PairsFit(update)) return bad("its pairs do not fit");
  return update;
}

}  // namespace starling::parameter_server
