// SPDX-License-Identifier: Apache-2.0
// Which part of an image a sample is, and whether it is mirrored: a pure function of the job's
// seed, the epoch and the sample, so that whoever reads it, and however often, sees the same one.
#pragma once

#include <cstdint>

#include "trainer/image/resample.h"

namespace starling::v1alpha1 {
class Augmentation;
}  // namespace starling::v1alpha1

namespace starling::data {

struct Placement {
  image::Box box;  // in whole pixels
  bool mirrored = false;
  bool operator==(const Placement&) const = default;
};

// The largest part around the middle whose sides are in the ratio of `shape`.
Placement Centred(image::Size image, image::Size shape);

// That of sample `sample` in pass `epoch`, by the draws of torchvision's RandomResizedCrop (ten
// attempts at a part of some area and ratio that lies within the image, then the middle).
Placement Draw(const v1alpha1::Augmentation& augmentation, std::uint64_t seed, std::int64_t epoch,
               std::int64_t sample, image::Size image, image::Size shape);

}  // namespace starling::data
