// SPDX-License-Identifier: Apache-2.0
#include "trainer/metric_export/event_file.h"

#include <array>
#include <bit>
#include <boost/crc.hpp>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace starling::metric_export {
namespace {

// CRC-32C: Castagnoli's polynomial, reflected.
using Crc = boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true>;
constexpr std::uint32_t kMask = 0xa282ead8;
constexpr int kRotation = 15;
// Ours are below 10 kB; a longer one is none of ours.
constexpr std::uint64_t kLongest = 1 << 20;

static_assert(std::endian::native == std::endian::little);

template <typename Number>
std::string Bytes(Number number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

template <typename Number>
Number NumberAt(const char* bytes) {
  Number number = 0;
  std::memcpy(&number, bytes, sizeof(number));
  return number;
}

std::uint32_t Checksum(std::string_view bytes) {
  Crc crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return std::rotr(static_cast<std::uint32_t>(crc.checksum()), kRotation) + kMask;
}

// False: there is no further whole and right record.
bool ReadRecord(std::istream& file, std::string& bytes) {
  std::array<char, 12> head{};
  if (!file.read(head.data(), head.size())) return false;
  const auto length = NumberAt<std::uint64_t>(head.data());
  if (Checksum({head.data(), 8}) != NumberAt<std::uint32_t>(head.data() + 8)) return false;
  if (length > kLongest) return false;
  bytes.resize(length);
  std::array<char, 4> checksum{};
  if (!file.read(bytes.data(), static_cast<std::streamsize>(length))) return false;
  if (!file.read(checksum.data(), checksum.size())) return false;
  return Checksum(bytes) == NumberAt<std::uint32_t>(checksum.data());
}

}  // namespace

std::string RecordOf(std::string_view bytes) {
  std::string record = Bytes(static_cast<std::uint64_t>(bytes.size()));
  record += Bytes(Checksum(record));
  record += bytes;
  record += Bytes(Checksum(bytes));
  return record;
}

std::string RecordOf(const tensorboard::Event& event) {
  return RecordOf(event.SerializeAsString());
}

absl::Status ReadEvents(const std::string& path,
                        const std::function<void(const tensorboard::Event&)>& take) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  std::string bytes;
  while (ReadRecord(file, bytes)) {
    tensorboard::Event event;
    if (!event.ParseFromString(bytes)) break;
    take(event);
  }
  return absl::OkStatus();
}

}  // namespace starling::metric_export
