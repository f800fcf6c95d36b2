// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tar_reader.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "common/status/to_absl.h"
#include "trainer/data/source.h"

namespace starling::data {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kFirstStep = std::size_t{16} << 10;

// A field of a header: where it begins, and its length.
struct Field {
  std::size_t begin;
  std::size_t size;
};
constexpr Field kName = {0, 100};
constexpr Field kSize = {124, 12};
constexpr Field kSum = {148, 8};
constexpr std::size_t kType = 156;
constexpr Field kMagic = {257, 6};
constexpr Field kPrefix = {345, 155};
constexpr std::string_view kPosixMagic{"ustar\0", 6};

// What the type of a member means.
enum class Kind {
  kFile,
  kEmpty,     // a folder, a link, a device: there is nothing behind its header
  kLongName,  // GNU's: the name of the next member
  kPax,       // what the next member is given instead of its header's fields
  kSkipped,   // of no use here
  kUnknown,
};
struct TypeRow {
  char type;
  Kind kind;
};
constexpr TypeRow kTypes[] = {
    {'0', Kind::kFile},    {'\0', Kind::kFile},    {'7', Kind::kFile},  {'1', Kind::kEmpty},
    {'2', Kind::kEmpty},   {'3', Kind::kEmpty},    {'4', Kind::kEmpty}, {'5', Kind::kEmpty},
    {'6', Kind::kEmpty},   {'L', Kind::kLongName}, {'x', Kind::kPax},   {'g', Kind::kSkipped},
    {'K', Kind::kSkipped}, {'V', Kind::kSkipped},
};

Kind KindOf(char type) {
  const auto* const row = std::ranges::find(kTypes, type, &TypeRow::type);
  return row == std::end(kTypes) ? Kind::kUnknown : row->kind;
}

// What a file begins with that is an archive only when it is unpacked.
constexpr std::string_view kPacked[] = {"\x1f\x8b", "\x28\xb5\x2f\xfd",
                                        "\xfd"
                                        "7zXZ",
                                        "BZh"};

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Up to the first zero.
std::string_view TextAt(std::string_view header, Field field) {
  const std::string_view text = header.substr(field.begin, field.size);
  return text.substr(0, text.find('\0'));
}

absl::Status Damaged(std::uint64_t at, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("is no whole tar archive (byte ", at, ": ", ToAbsl(why), ")"));
}

// Octal digits, or GNU's binary form; none: it is neither.
std::optional<std::uint64_t> NumberAt(std::string_view header, Field field) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  const std::string_view bytes = header.substr(field.begin, field.size);
  std::uint64_t value = 0;
  if ((static_cast<unsigned char>(bytes[0]) & 0x80U) != 0) {
    // The first byte's other bits and the rest, from the highest on; a set bit 6 is a minus.
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const unsigned byte = static_cast<unsigned char>(bytes[i]) & (i == 0 ? 0x7fU : 0xffU);
      if (value >= kMost >> 8U) return std::nullopt;
      value = value << 8U | byte;
    }
    return value;
  }
  std::string_view text = TextAt(header, field);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  for (const char digit : text) {
    if (digit < '0' || digit > '7') return std::nullopt;
    value = value << 3U | static_cast<std::uint64_t>(digit - '0');
  }
  return value;
}

// Whether the sum over the header, its own field taken for spaces, is what the header says. Old
// programs added bytes with a sign.
bool SumIsRight(std::string_view header) {
  const std::optional<std::uint64_t> said = NumberAt(header, kSum);
  std::int64_t plain = 0;
  std::int64_t with_sign = 0;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const bool own = i >= kSum.begin && i < kSum.begin + kSum.size;
    const char byte = own ? ' ' : header[i];
    plain += static_cast<unsigned char>(byte);
    with_sign += static_cast<signed char>(byte);
  }
  return said.has_value() && (static_cast<std::int64_t>(*said) == plain ||
                              static_cast<std::int64_t>(*said) == with_sign);
}

std::string NameIn(std::string_view header) {
  const std::string name(TextAt(header, kName));
  // GNU's archives have other things where POSIX's have the name's first part.
  if (header.substr(kMagic.begin, kMagic.size) != kPosixMagic) return name;
  const std::string_view prefix = TextAt(header, kPrefix);
  return prefix.empty() ? name : absl::StrCat(ToAbsl(prefix), "/", name);
}

std::uint64_t Padded(std::uint64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

}  // namespace

TarReader::TarReader(std::uint64_t size, std::size_t most, ReadBytes read)
    : size_(size), most_(std::max(most, kFirstStep)), read_(std::move(read)) {}

absl::StatusOr<std::span<const std::byte>> TarReader::Bytes(std::uint64_t offset,
                                                            std::size_t count) {
  const std::uint64_t end = window_begin_ + window_.size();
  if (offset >= window_begin_ && offset + count <= end) {
    return std::span(window_).subspan(offset - window_begin_, count);
  }
  const bool near = offset >= window_begin_ && offset <= end + step_;
  step_ = near && step_ > 0 ? std::min(2 * step_, most_) : kFirstStep;
  const std::size_t size = std::min<std::uint64_t>(std::max(step_, count), size_ - offset);
  std::vector<std::byte> bytes(size);
  RETURN_IF_ERROR(read_(offset, bytes));
  window_ = std::move(bytes);
  window_begin_ = offset;
  return std::span<const std::byte>(window_).first(count);
}

absl::Status TarReader::Fits(const TarMember& member) const {
  if (member.offset <= size_ && member.size <= size_ - member.offset) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "is no whole tar archive (it ends at byte ", size_, ", within ", Quote(member.name),
      ", which has ", member.size, " bytes from byte ", member.offset, " on)"));
}

absl::StatusOr<std::string> TarReader::ReadText(const TarMember& member) {
  if (member.size > kMostText) {
    return Damaged(member.offset,
                   absl::StrCat(Quote(member.name), " has ", member.size, " bytes, more than the ",
                                kMostText, " of such a member"));
  }
  ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                   Bytes(member.offset, static_cast<std::size_t>(member.size)));
  return std::string(TextOf(bytes));
}

// Records "LENGTH KEY=VALUE\n", whose length counts all of it.
absl::Status TarReader::ReadPax(const TarMember& member, Given& given) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(member));
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t space = std::min(rest.find(' '), rest.size());
    std::size_t length = 0;
    if (!absl::SimpleAtoi(ToAbsl(rest.substr(0, space)), &length) || length < space + 3 ||
        length > rest.size() || rest[length - 1] != '\n') {
      return Damaged(member.offset, "a record of a pax header is damaged");
    }
    const std::string_view record = rest.substr(space + 1, length - space - 2);
    rest.remove_prefix(length);
    const std::size_t equals = std::min(record.find('='), record.size());
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(std::min(equals + 1, record.size()));
    if (key.starts_with("GNU.sparse.")) {
      return Damaged(member.offset, "a sparse file; write the archive without --sparse");
    }
    if (key == "path") given.name = std::string(value).c_str();  // up to a zero
    if (key != "size") continue;
    std::uint64_t size = 0;
    if (!absl::SimpleAtoi(ToAbsl(value), &size)) {
      return Damaged(member.offset, "a pax header's size is no number");
    }
    given.size = size;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<TarMember>> TarReader::Next() {
  Given given;
  while (true) {
    const std::uint64_t at = position_;
    if (at > size_ || size_ - at < kBlock) {
      return Damaged(size_,
                     at == 0 ? "it is shorter than a header" : "it ends without its end mark");
    }
    ASSIGN_OR_RETURN(const std::span<const std::byte> block, Bytes(at, kBlock));
    const std::string header(TextOf(block));
    const std::string_view view = header;
    if (view.find_first_not_of('\0') == std::string_view::npos) return std::nullopt;
    if (at == 0 && std::ranges::any_of(kPacked, [view](std::string_view magic) {
          return view.starts_with(magic);
        })) {
      return absl::InvalidArgumentError(
          "is compressed as a whole, so that nothing in it can be read by itself; unpack it (gzip "
          "-d, zstd -d, xz -d); images are compressed as they are");
    }
    if (!SumIsRight(view)) {
      return Damaged(
          at, at == 0 ? "what stands there is no tar header" : "the sum over a header is wrong");
    }
    const std::optional<std::uint64_t> size = NumberAt(view, kSize);
    if (!size.has_value()) return Damaged(at, "a member's size is no number");
    const char type = view[kType];
    const Kind kind = KindOf(type);
    TarMember member{NameIn(view), at + kBlock, *size};
    const bool is_file = kind == Kind::kFile && !member.name.ends_with('/');
    if (is_file && given.size.has_value()) member.size = *given.size;
    if (is_file && given.name.has_value()) member.name = *given.name;
    if (kind == Kind::kUnknown || (kind == Kind::kEmpty && type != '5' && *size > 0)) {
      return Damaged(at, absl::StrCat(Quote(member.name), " is of type ", Quote({&type, 1}),
                                      ", which is not read; pack plain files"));
    }
    if (kind == Kind::kEmpty) member.size = 0;  // some write what a folder may hold
    RETURN_IF_ERROR(Fits(member));
    position_ = member.offset + Padded(member.size);
    if (is_file) return member;
    if (kind == Kind::kPax) {
      RETURN_IF_ERROR(ReadPax(member, given));
    } else if (kind == Kind::kLongName) {
      ASSIGN_OR_RETURN(const std::string name, ReadText(member));
      given.name = name.c_str();  // up to a zero
    } else if (kind != Kind::kSkipped) {
      given = {};  // that was the member that they are of
    }
  }
}

}  // namespace starling::data
