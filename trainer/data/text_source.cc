// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/text_source.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::data {
namespace {

// The byte where the share of the file ends; of UTF-8 the character's end.
std::size_t ByteAt(std::string_view text, double share, bool bytes) {
  const auto at = static_cast<std::size_t>(share * static_cast<double>(text.size()));
  return bytes ? at : NextCharacter(text, std::min(at, text.size()));
}

}  // namespace

void Gather(const Text& text, std::span<const std::int64_t> ids, std::span<float> given,
            std::span<std::int64_t> wanted) {
  const auto context = static_cast<std::size_t>(text.context);
  STARLING_CHECK(given.size() == ids.size() * context && wanted.size() == given.size(),
                 "Gather's targets have the samples' size");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    STARLING_CHECK(ids[i] >= 0 && ids[i] < text.size(), "Gather's samples exist");
    const auto first = text.symbols.begin() + ids[i] * text.context;
    std::copy_n(first, context, given.begin() + static_cast<std::ptrdiff_t>(i * context));
    std::copy_n(first + 1, context, wanted.begin() + static_cast<std::ptrdiff_t>(i * context));
  }
}

std::string DigestOf(const Text& text) {
  bytes::Sha256 digest;
  const std::string head = absl::StrCat(text.alphabet.ToText(), " ", text.context, " ");
  digest.Update(std::as_bytes(std::span(head)));
  digest.Update(std::as_bytes(std::span(text.symbols)));
  return bytes::ToHex(digest.Finish());
}

absl::StatusOr<LoadedText> LoadText(const v1alpha1::TextSource& source,
                                    const v1alpha1::LanguageModel& model, const Alphabet* known,
                                    const LoadOptions& options) {
  const std::string field = options.path + ".uri";
  ASSIGN_OR_RETURN(const FileInfo file, Inspect(source.uri(), field));
  ASSIGN_OR_RETURN(std::string content, ReadStart(file, options.max_bytes, field));
  const auto at_field = [&](const absl::Status& status) {
    return FieldError(status.code(), field,
                      absl::StrCat(file.path, ": ", std::string(status.message())));
  };
  LoadedText loaded{.text = {}, .whole = content.size() == file.size};
  const bool bytes = model.symbols() == v1alpha1::TEXT_SYMBOLS_BYTES;
  if (!loaded.whole && !bytes) {  // up to the last whole line
    if (const auto end = content.rfind('\n'); end != std::string::npos) content.resize(end + 1);
  }
  Text& text = loaded.text;
  text.context = model.has_context_length() ? model.context_length() : 64;
  // Characters of all of the file, so that its other part holds none that are new.
  if (known != nullptr) {
    text.alphabet = *known;
  } else if (!bytes) {
    auto alphabet = Alphabet::OfCharacters(content);
    if (!alphabet.ok()) return at_field(alphabet.status());
    text.alphabet = *std::move(alphabet);
  }
  const std::string_view all = content;
  const std::size_t end = ByteAt(all, source.has_end() ? source.end() : 1, bytes);
  const std::size_t begin = std::min(end, ByteAt(all, source.begin(), bytes));
  auto symbols =
      text.alphabet.Encode(all.substr(begin, end - begin), 1 + LineEnds(all.substr(0, begin)));
  if (!symbols.ok()) return at_field(symbols.status());
  text.symbols = *std::move(symbols);
  if (std::ssize(text.symbols) <= text.context && loaded.whole) {
    return FieldError(
        absl::StatusCode::kInvalidArgument, field,
        absl::StrCat(file.path, ": has ", text.symbols.size(),
                     " symbols between begin and end, and a sample takes ", text.context + 1,
                     "; give more text, or lower "
                     "spec.workload.languageModel.contextLength"));
  }
  return loaded;
}

}  // namespace starling::data
