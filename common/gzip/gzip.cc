// SPDX-License-Identifier: Apache-2.0
#include "common/gzip/gzip.h"

#include <zlib.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"

namespace starling::gzip {
namespace {

constexpr int kGzip = 16;  // what zlib wants added to the window's bits
constexpr std::size_t kPiece = 64 << 10;
constexpr std::size_t kLargest = std::size_t{1} << 30;  // zlib counts in 32 bits

// zlib's pointer to input is not const where it is old.
void Feed(std::string_view bytes, z_stream& stream) {
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
}

}  // namespace

std::string Pack(std::string_view bytes) {
  STARLING_CHECK(bytes.size() <= kLargest, "what is packed at once is below 1 GiB");
  z_stream stream = {};
  const int begun = deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip + MAX_WBITS,
                                 MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY);
  STARLING_CHECK(begun == Z_OK, "zlib has its memory");
  std::string packed(deflateBound(&stream, static_cast<uLong>(bytes.size())), '\0');
  Feed(bytes, stream);
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int ended = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  STARLING_CHECK(ended == Z_STREAM_END, "deflateBound is a bound");
  return packed;
}

absl::StatusOr<std::string> Unpack(std::string_view packed, std::size_t most) {
  if (packed.size() > kLargest) {
    return absl::ResourceExhaustedError("what is to be unpacked has more than 1 GiB");
  }
  z_stream stream = {};
  if (inflateInit2(&stream, kGzip + MAX_WBITS) != Z_OK) {
    return absl::ResourceExhaustedError("no memory is left to unpack with");
  }
  Feed(packed, stream);
  std::string bytes;
  int said = Z_OK;
  while (said == Z_OK && bytes.size() <= most) {
    const std::size_t before = bytes.size();
    const std::size_t room = std::min(kPiece, most + 1 - before);
    bytes.resize(before + room);
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + before);
    stream.avail_out = static_cast<uInt>(room);
    said = inflate(&stream, Z_NO_FLUSH);
    bytes.resize(before + room - stream.avail_out);
  }
  const bool more = stream.avail_in > 0;
  inflateEnd(&stream);
  if (bytes.size() > most) {
    return absl::ResourceExhaustedError(
        absl::StrCat("what is packed there has more than ", most, " bytes"));
  }
  if (said != Z_STREAM_END || more) {
    return absl::InvalidArgumentError("these bytes are no whole gzip stream");
  }
  return bytes;
}

}  // namespace starling::gzip
