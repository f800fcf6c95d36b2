// SPDX-License-Identifier: Apache-2.0
// Samples that are read when they are wanted, where a data set is larger than memory.
//
// Which sample is used when is decided by its number alone (batches.h), so a set that is read needs
// no order of its own: it is asked for numbers, and told beforehand which will probably come next.
// To add a form of data that is read: implement SampleReader, and let its loader (source.h) put it
// into the Dataset.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace starling::data {

// Thread-safe. What a sample is depends on its number and the epoch alone, whoever reads it.
class SampleReader {
 public:
  virtual ~SampleReader() = default;

  virtual std::int64_t size() const = 0;

  // Fills `features` with the samples `ids`, one behind another, and `labels` with their classes,
  // as they are in pass `epoch` over the set, from 1; 0: as they lie there, without augmentation.
  // An error names the field, the file and the remedy.
  virtual absl::Status Read(std::span<const std::int64_t> ids, std::int64_t epoch,
                            std::span<float> features, std::span<std::int64_t> labels) = 0;

  // These will probably be read soon, and those of earlier calls but the last no more. It returns
  // at once, and what it says changes nothing but how long Read takes.
  virtual void Expect(std::span<const std::int64_t> /*ids*/, std::int64_t /*epoch*/) {}

  // Equal at two workers that have the same samples, as far as can be told without reading them
  // all.
  virtual std::string Digest() const = 0;
};

}  // namespace starling::data
