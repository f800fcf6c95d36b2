// SPDX-License-Identifier: Apache-2.0
// The members of a tar archive and where their bytes lie, so that each can be read by itself later.
//
// A reader of our own, for what libraries of archives hand out is a stream: they do not say at
// which byte a member begins. It reads POSIX archives (ustar, pax) and GNU's long names, as GNU
// tar, BSD tar, Python's tarfile and WebDataset write them, and refuses what it would have to guess
// at: a sum that is wrong, a missing end, sparse files, parts of volumes, archives that are
// compressed as a whole. Archives may come from anybody: no size in them is believed before it is
// checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace starling::data {

struct TarMember {
  std::string name;
  std::uint64_t offset = 0;  // of its content, in the archive
  std::uint64_t size = 0;
};

// Where an archive's bytes come from. It fills `into`, which lies within the archive.
using ReadBytes = std::function<absl::Status(std::uint64_t offset, std::span<std::byte> into)>;

// Thread-compatible.
class TarReader {
 public:
  // An archive of `size` bytes. What is read at once grows from 16 KiB up to `most`, as long as
  // what is wanted next lies near, and begins anew behind a large member: small members are read
  // one behind another, large ones are passed over.
  TarReader(std::uint64_t size, std::size_t most, ReadBytes read);

  // The next regular file; none: that was the last. INVALID_ARGUMENT: what is wrong, as a message
  // goes on after the archive's name; else the error of reading.
  absl::StatusOr<std::optional<TarMember>> Next();

  // Where the next member's header begins.
  std::uint64_t position() const { return position_; }

  // Content of the member that Next has just returned, at most kMostText bytes.
  static constexpr std::size_t kMostText = std::size_t{64} << 10;
  absl::StatusOr<std::string> ReadText(const TarMember& member);

 private:
  // What a member is given by headers of its own before it.
  struct Given {
    std::optional<std::string> name;
    std::optional<std::uint64_t> size;
  };

  absl::StatusOr<std::span<const std::byte>> Bytes(std::uint64_t offset, std::size_t count);
  absl::Status ReadPax(const TarMember& member, Given& given);
  absl::Status Fits(const TarMember& member) const;

  const std::uint64_t size_;
  const std::size_t most_;
  const ReadBytes read_;
  std::uint64_t position_ = 0;
  std::uint64_t window_begin_ = 0;  // of what window_ holds
  std::size_t step_ = 0;            // bytes that were read at once the last time
  std::vector<std::byte> window_;
};

}  // namespace starling::data
