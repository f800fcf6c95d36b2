// SPDX-License-Identifier: Apache-2.0
// A text as samples for a language model: stretches of symbols, one after another, and after each
// symbol the one to be predicted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/alphabet.h"
#include "trainer/data/source.h"

namespace starling::v1alpha1 {
class LanguageModel;
class TextSource;
}  // namespace starling::v1alpha1

namespace starling::data {

// Sample i is given the symbols [i * context, (i + 1) * context) and predicts those one later.
struct Text {
  Alphabet alphabet;
  std::int64_t context = 1;
  std::vector<std::uint16_t> symbols;

  std::int64_t size() const { return (std::ssize(symbols) - 1) / context; }
};

// Copies the samples `ids` into `given` and `wanted` (ids.size() * context numbers each).
void Gather(const Text& text, std::span<const std::int64_t> ids, std::span<float> given,
            std::span<std::int64_t> wanted);

// SHA-256 of everything above, in hexadecimal.
std::string DigestOf(const Text& text);

// The part of the file that `source` names, by the symbols that `model` asks for, or of a
// validation set by those of the training set: `known`. Parts that meet share no byte: each begins
// and ends where a character does. INVALID_ARGUMENT ("field: path: line 3 ...") where the file is
// no text of such symbols, or holds no sample. With `options.max_bytes` only a beginning is read,
// which is enough to judge by; `whole` says whether it was all.
struct LoadedText {
  Text text;
  bool whole = true;
};
absl::StatusOr<LoadedText> LoadText(const v1alpha1::TextSource& source,
                                    const v1alpha1::LanguageModel& model, const Alphabet* known,
                                    const LoadOptions& options);

}  // namespace starling::data
