// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/dataset.h"

#include <algorithm>
#include <limits>

#include "common/bytes/bytes.h"
#include "common/status/check.h"
#include "common/status/macros.h"

namespace starling::data {

std::int64_t Dataset::size() const {
  if (reader != nullptr) return reader->size();
  return static_cast<std::int64_t>(labels.size()) + std::ssize(targets) / outputs;
}

std::int64_t Dataset::SampleSize() const {
  std::int64_t size = 1;
  for (const std::int64_t side : shape) {
    if (side > std::numeric_limits<std::int64_t>::max() / size) {
      return std::numeric_limits<std::int64_t>::max();
    }
    size *= side;
  }
  return size;
}

void Gather(const Dataset& dataset, std::span<const std::int64_t> ids, std::span<float> features,
            std::span<std::int64_t> labels) {
  const auto sample = static_cast<std::size_t>(dataset.SampleSize());
  STARLING_CHECK(features.size() == ids.size() * sample && labels.size() == ids.size(),
                 "Gather's targets have the samples' size");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    STARLING_CHECK(ids[i] >= 0 && ids[i] < dataset.size(), "Gather's samples exist");
    const auto source = dataset.features.begin() + ids[i] * dataset.SampleSize();
    std::copy_n(source, sample, features.begin() + i * sample);
    labels[i] = dataset.labels[ids[i]];
  }
}

void GatherTargets(const Dataset& dataset, std::span<const std::int64_t> ids,
                   std::span<float> features, std::span<float> targets) {
  const std::int64_t sample = dataset.SampleSize();
  const std::int64_t outputs = dataset.outputs;
  STARLING_CHECK(std::ssize(features) == std::ssize(ids) * sample &&
                     std::ssize(targets) == std::ssize(ids) * outputs,
                 "GatherTargets' spans have the samples' size");
  auto feature = features.begin();
  auto target = targets.begin();
  for (const std::int64_t id : ids) {
    STARLING_CHECK(id >= 0 && id < dataset.size(), "GatherTargets' samples exist");
    feature = std::copy_n(dataset.features.begin() + id * sample, sample, feature);
    target = std::copy_n(dataset.targets.begin() + id * outputs, outputs, target);
  }
}

absl::Status Read(const Dataset& dataset, std::span<const std::int64_t> ids, std::int64_t epoch,
                  std::span<float> features, std::span<std::int64_t> labels) {
  if (dataset.reader == nullptr) {
    Gather(dataset, ids, features, labels);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(dataset.reader->Read(ids, epoch, features, labels));
  if (dataset.scale.has_value()) Apply(*dataset.scale, features);
  return absl::OkStatus();
}

void Apply(const Normalization& scale, std::span<float> features) {
  const std::size_t width = scale.mean.size();
  for (std::size_t i = 0; i < features.size(); ++i) {
    features[i] = (features[i] - scale.mean[i % width]) / scale.std[i % width];
  }
}

std::string DigestOf(const Dataset& dataset) {
  const std::array<std::int64_t, 3> sizes = {dataset.size(), dataset.classes,
                                             static_cast<std::int64_t>(dataset.shape.size())};
  bytes::Sha256 digest;
  digest.Update(std::as_bytes(std::span(sizes)));
  digest.Update(std::as_bytes(std::span(dataset.shape)));
  digest.Update(std::as_bytes(std::span(dataset.labels)));
  digest.Update(std::as_bytes(std::span(dataset.targets)));
  digest.Update(std::as_bytes(std::span(dataset.features)));
  if (dataset.reader != nullptr) {
    const std::string read = dataset.reader->Digest();
    digest.Update(std::as_bytes(std::span(read)));
  }
  return bytes::ToHex(digest.Finish());
}

}  // namespace starling::data
