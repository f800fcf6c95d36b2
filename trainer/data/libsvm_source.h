// SPDX-License-Identifier: Apache-2.0
// Sparse samples as text, as LIBSVM, liblinear and SVMlight write them: a line a sample, its label,
// then number:value pairs with ascending numbers; # begins a comment, empty lines are passed over.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/data/bad_records.h"
#include "trainer/data/source.h"
#include "trainer/data/sparse_dataset.h"

namespace starling::v1alpha1 {
class LibsvmSource;
}  // namespace starling::v1alpha1

namespace starling::data {

// Labels are kept as they are. Feature numbers are hashed to `hashed` weights; numbers of
// one sample that meet there add their values. INVALID_ARGUMENT ("field: path: line 3: ...") for a
// line that is not as above, and for a file without samples.
absl::StatusOr<SparseDataset> LoadLibsvm(const v1alpha1::LibsvmSource& source, std::uint64_t hashed,
                                         const LoadOptions& options);

// The same of text; a last line without its end is read only if `whole`. Errors begin "line 3: ".
// `bad` decides about lines that cannot be read; null: the first is the error.
absl::StatusOr<SparseDataset> ParseLibsvm(std::string_view text, std::uint64_t hashed, bool whole,
                                          BadRecords* bad = nullptr);

}  // namespace starling::data
