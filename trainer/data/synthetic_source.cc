// SPDX-License-Identifier: Apache-2.0
// Gaussian clusters, one a class: centres and samples are draws of their own counters, so that any
// two workers make the same set.
#include <array>
#include <cstdint>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/ranges/ranges.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/source.h"

namespace starling::data {
namespace {

constexpr double kNoise = 1.0;  // centres have variance 1 too

}  // namespace

absl::StatusOr<Loaded> LoadSynthetic(const v1alpha1::SyntheticSource& source,
                                     const LoadOptions& options, bool validation) {
  Loaded loaded;
  Dataset& set = loaded.dataset;
  const std::int64_t samples = source.has_samples() ? source.samples() : 1024;
  set.shape.assign(source.shape().begin(), source.shape().end());
  if (set.shape.empty()) set.shape = {16};
  set.classes = source.has_classes() ? source.classes() : 10;
  if (options.classes.has_value() && set.classes != *options.classes) {
    return FieldError(absl::StatusCode::kInvalidArgument, absl::StrCat(options.path, ".classes"),
                      absl::StrCat("is ", set.classes, ", but the training set has ",
                                   *options.classes, " classes; make them equal"));
  }
  const std::int64_t features = set.SampleSize();
  if (samples < 1 || set.classes < 1 || samples > kMaxFloats / features ||
      set.classes > kMaxFloats / features) {
    return FieldError(absl::StatusCode::kInvalidArgument, absl::StrCat(options.path, ".samples"),
                      absl::StrCat(samples, " samples of ", features,
                                   " features do not fit in memory here; make fewer"));
  }
  const std::int64_t made =
      std::min<std::int64_t>(samples, static_cast<std::int64_t>(options.max_bytes) / features);
  loaded.whole = made == samples;
  const random::Philox centres(options.seed, random::Stream::kSyntheticCentres);
  const random::Philox noise(options.seed, validation ? random::Stream::kSyntheticValidation
                                                      : random::Stream::kSyntheticTrain);
  std::array<double, 1024> centre, around;
  set.features.reserve(static_cast<std::size_t>(made * features));
  for (std::int64_t sample = 0; sample < made; ++sample) {
    const std::int64_t label = sample % set.classes;
    set.labels.push_back(label);
    const ranges::Range<std::int64_t> all{0, features};
    for (std::int64_t p = 0; p < ranges::PiecesOf(all, std::ssize(centre)); ++p) {
      const ranges::Range<std::int64_t> piece = ranges::PieceOf(all, p, std::ssize(centre));
      const auto count = static_cast<std::size_t>(piece.size());
      centres.Normals(static_cast<std::uint64_t>(label * features + piece.begin),
                      std::span(centre).first(count));
      noise.Normals(static_cast<std::uint64_t>(sample * features + piece.begin),
                    std::span(around).first(count));
      for (std::size_t i = 0; i < count; ++i) {
        set.features.push_back(static_cast<float>(centre[i] + kNoise * around[i]));
      }
    }
  }
  return loaded;
}

}  // namespace starling::data
