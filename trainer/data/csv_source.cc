// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/macros.h"
#include "common/status/to_absl.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/bad_records.h"
#include "trainer/data/csv_reader.h"
#include "trainer/data/source.h"

namespace starling::data {
namespace {

using Cells = std::vector<std::string_view>;

constexpr char kNoShare[] =
    " is not from 0 to 1, but the loss BinaryCrossEntropy is of such numbers; divide the data by "
    "their highest number, or use loss: SquaredError";

std::optional<double> ParseNumber(std::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    return std::nullopt;
  }
  return value;
}

// One table on its way into a Dataset. Confined to LoadCsv.
class TableLoader {
 public:
  TableLoader(const v1alpha1::CsvSource& source, const LoadOptions& options, std::string file)
      : source_(source), options_(options), file_(std::move(file)), bad_(options.dataset) {
    if (source.has_classes()) classes_ = source.classes();
  }

  absl::Status Load(std::string_view text) {
    const std::string delimiter = source_.has_delimiter() ? source_.delimiter() : ",";
    if (delimiter.size() != 1 || delimiter == "\"" || delimiter == "\n" || delimiter == "\r") {
      return Problem(".delimiter", absl::StrCat(Quote(delimiter),
                                                " cannot separate columns; give one character, "
                                                "such as \",\", \";\" or a tab"));
    }
    CsvReader reader(text, delimiter[0]);
    Cells cells;
    ASSIGN_OR_RETURN(const bool any, Next(reader, cells));
    if (!any) return Problem(".uri", absl::StrCat(file_, ": the file holds no rows"));
    RETURN_IF_ERROR(ReadLayout(cells));
    bool more = true;
    if (header_) {
      ASSIGN_OR_RETURN(more, Next(reader, cells));
      if (!more) {
        return Problem(".uri", absl::StrCat(file_,
                                            ": there is a header but no row of data below it; add "
                                            "rows or name another file"));
      }
    }
    dataset_.features.reserve(text.size() / kBytesPerCell);
    while (more) {
      RETURN_IF_ERROR(CheckRoom());
      RETURN_IF_ERROR(AddOrPass(cells, reader.line()));
      ASSIGN_OR_RETURN(more, Next(reader, cells));
    }
    if (dataset_.features.empty()) {
      return Problem(".uri", absl::StrCat(file_, ": none of its rows can be read"));
    }
    if (options_.numbers) return absl::OkStatus();
    if (!options_.labels || options_.unlabelled) {
      dataset_.labels.assign(
          dataset_.features.size() / static_cast<std::size_t>(dataset_.SampleSize()), 0);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(dataset_.classes,
                     CountClasses(std::ranges::max(dataset_.labels), classes_, options_));
    return absl::OkStatus();
  }

  Dataset Take() { return std::move(dataset_); }

 private:
  static constexpr std::size_t kBytesPerCell = 4;  // a guess, for reserving

  absl::Status Problem(std::string_view field, std::string_view message) const {
    return FieldError(absl::StatusCode::kInvalidArgument,
                      absl::StrCat(options_.path, ToAbsl(field)), message);
  }

  absl::StatusOr<bool> Next(CsvReader& reader, Cells& cells) const {
    auto more = reader.Next(cells);
    if (!more.ok()) {
      const absl::string_view message = more.status().message();
      return Problem(".uri", absl::StrCat(file_, ": ", message));
    }
    return more;
  }

  // The first row says how many columns there are, what they are called, and where the label is.
  absl::Status ReadLayout(const Cells& first) {
    columns_ = static_cast<std::int64_t>(first.size());
    is_label_.resize(first.size());
    const bool named = std::any_of(first.begin(), first.end(),
                                   [](std::string_view cell) { return !ParseNumber(cell); });
    header_ = source_.header() == v1alpha1::CSV_HEADER_PRESENT ||
              (source_.header() != v1alpha1::CSV_HEADER_ABSENT && named);
    if (header_) names_.assign(first.begin(), first.end());
    if (!options_.labels || HasOnlyFeatures()) return SetShape(columns_);
    if (columns_ < 2) {
      return Problem(".uri", absl::StrCat(file_,
                                          ": line 1 has one column; a row needs features and "
                                          "a label, is the delimiter right?"));
    }
    RETURN_IF_ERROR(FindLabels());
    if (options_.numbers) {
      dataset_.outputs = std::ssize(labels_);
      for (const std::int64_t column : labels_) {
        if (header_) dataset_.target_names.push_back(names_[static_cast<std::size_t>(column)]);
      }
    }
    return SetShape(columns_ - std::ssize(labels_));
  }

  absl::Status SetShape(std::int64_t features) {
    dataset_.shape.assign(source_.shape().begin(), source_.shape().end());
    if (dataset_.shape.empty()) dataset_.shape = {features};
    if (dataset_.SampleSize() == features) return absl::OkStatus();
    return Problem(".shape",
                   absl::StrCat("[", absl::StrJoin(dataset_.shape, ", "), "] needs ",
                                dataset_.SampleSize(), " features a row, but ", file_, " has ",
                                features, options_.labels ? " beside the label" : ""));
  }

  // Of a table whose labels nobody looks at.
  bool HasOnlyFeatures() const {
    const bool named = source_.has_label_column() || source_.label_columns_size() > 0;
    return options_.unlabelled && !named && std::ranges::count(names_, "label") == 0;
  }

  absl::Status FindLabels() {
    if (source_.label_columns_size() == 0) {
      const bool given = source_.has_label_column();
      const std::string wanted = given ? source_.label_column() : "label";
      return FindLabel(wanted, ".labelColumn", /*or_last=*/!given);
    }
    for (int i = 0; i < source_.label_columns_size(); ++i) {
      RETURN_IF_ERROR(FindLabel(source_.label_columns(i), absl::StrCat(".labelColumns[", i, "]"),
                                /*or_last=*/false));
    }
    if (std::ssize(labels_) < columns_) return absl::OkStatus();
    return Problem(".labelColumns",
                   absl::StrCat("names all columns of ", file_, "; leave some to predict from"));
  }

  absl::Status FindLabel(const std::string& wanted, const std::string& field, bool or_last) {
    const auto matches = std::count(names_.begin(), names_.end(), wanted);
    if (matches > 1) {
      return Problem(field, absl::StrCat(file_, " has ", matches, " columns called ", Quote(wanted),
                                         "; give the column's number"));
    }
    std::int64_t column = columns_ - 1;
    if (matches == 1) {
      column = std::find(names_.begin(), names_.end(), wanted) - names_.begin();
    } else if (!or_last &&
               !(absl::SimpleAtoi(wanted, &column) && column >= 0 && column < columns_)) {
      return Problem(
          field, absl::StrCat(file_, " has no column ", Quote(wanted), "; ", DescribeColumns()));
    }
    if (is_label_[column]) {
      return Problem(field, absl::StrCat("names the column ", Quote(wanted),
                                         " once more; leave it "
                                         "out"));
    }
    labels_.push_back(column);
    is_label_[column] = true;
    return absl::OkStatus();
  }

  std::string DescribeColumns() const {
    constexpr std::size_t kShown = 6;
    if (names_.empty()) {
      return absl::StrCat("it has no header, so give a number from 0 to ", columns_ - 1);
    }
    std::vector<std::string> shown;
    for (const std::string& name : names_) {
      if (shown.size() == kShown) break;
      shown.push_back(Quote(name));
    }
    return absl::StrCat(
        "its ", columns_, " columns are ", absl::StrJoin(shown, ", "),
        names_.size() > kShown ? absl::StrCat(", ..., ", Quote(names_.back())) : "");
  }

  absl::Status CheckRoom() const {
    if (dataset_.size() < kMaxSamples &&
        static_cast<std::int64_t>(dataset_.features.size()) + columns_ <= kMaxFloats) {
      return absl::OkStatus();
    }
    return Problem(".uri", absl::StrCat(file_, ": more than ", dataset_.size(),
                                        " rows of this width do not fit; use fewer"));
  }

  // Nothing is left of a row that is passed over.
  absl::Status AddOrPass(const Cells& cells, std::int64_t line) {
    const std::size_t features = dataset_.features.size();
    const std::size_t labels = dataset_.labels.size();
    const std::size_t targets = dataset_.targets.size();
    const absl::Status added = AddRow(cells, line);
    if (added.ok()) return added;
    dataset_.features.resize(features);
    dataset_.labels.resize(labels);
    dataset_.targets.resize(targets);
    return bad_.Pass(line, added);
  }

  absl::Status AddRow(const Cells& cells, std::int64_t line) {
    if (static_cast<std::int64_t>(cells.size()) != columns_) {
      return Problem(".uri", absl::StrCat(file_, ": line ", line, " has ", cells.size(),
                                          " cells, but the first row has ", columns_,
                                          "; complete or remove the line"));
    }
    for (std::int64_t column = 0; column < columns_; ++column) {
      if (is_label_[column]) continue;
      RETURN_IF_ERROR(AddNumber(cells[column], line, column, dataset_.features));
    }
    if (options_.unlabelled) return absl::OkStatus();
    for (const std::int64_t column : labels_) {
      RETURN_IF_ERROR(options_.numbers
                          ? AddNumber(cells[column], line, column, dataset_.targets)
                          : AddLabel(cells[column], ParseNumber(cells[column]), line, column));
    }
    return absl::OkStatus();
  }

  absl::Status AddNumber(std::string_view cell, std::int64_t line, std::int64_t column,
                         std::vector<float>& into) {
    const std::optional<double> value = ParseNumber(cell);
    const bool label = &into == &dataset_.targets;
    const float number = value.has_value() ? static_cast<float>(*value) : 0.0F;
    if (!value.has_value() || !std::isfinite(number)) {
      return Problem(
          ".uri",
          absl::StrCat(Place(line, column), ": ", Quote(cell),
                       value.has_value() ? " is not a finite 32-bit number" : " is not a number",
                       label ? "; what is to be predicted must be one (is labelColumn "
                               "right?)"
                             : "; every feature must be one"));
    }
    if (options_.shares && !label && (number < 0 || number > 1)) {
      return Problem(".uri", absl::StrCat(Place(line, column), ": ", Quote(cell), kNoShare));
    }
    into.push_back(number);
    return absl::OkStatus();
  }

  absl::Status AddLabel(std::string_view cell, std::optional<double> value, std::int64_t line,
                        std::int64_t column) {
    if (!value.has_value() || *value != std::floor(*value) || std::abs(*value) > 1e15) {
      return Problem(".uri", absl::StrCat(Place(line, column), ": label ", Quote(cell),
                                          " is not an integer; classes are numbered from 0 (is "
                                          "labelColumn right?)"));
    }
    const auto label = static_cast<std::int64_t>(*value);
    if (const absl::Status status = CheckLabel(label, classes_, options_); !status.ok()) {
      return Problem(".uri", absl::StrCat(Place(line, column), ": ", status.message()));
    }
    dataset_.labels.push_back(label);
    return absl::OkStatus();
  }

  std::string Place(std::int64_t line, std::int64_t column) const {
    const std::string name = names_.empty() ? "" : absl::StrCat(" (", Quote(names_[column]), ")");
    return absl::StrCat(file_, ": line ", line, ", column ", column + 1, name);
  }

  const v1alpha1::CsvSource& source_;
  const LoadOptions& options_;
  const std::string file_;
  std::optional<std::int64_t> classes_;
  bool header_ = false;
  std::vector<std::string> names_;
  std::int64_t columns_ = 0;
  std::vector<std::int64_t> labels_;  // columns that are no features, as they are named
  std::vector<bool> is_label_;        // by column
  BadRecords bad_;
  Dataset dataset_;
};

}  // namespace

absl::StatusOr<Loaded> LoadCsv(const v1alpha1::CsvSource& source, const LoadOptions& options) {
  const std::string field = absl::StrCat(options.path, ".uri");
  ASSIGN_OR_RETURN(const FileInfo file, Inspect(source.uri(), field));
  ASSIGN_OR_RETURN(std::string text, ReadStart(file, options.max_bytes, field));
  Loaded loaded;
  loaded.whole = text.size() == file.size;
  if (!loaded.whole) {
    // Up to the last whole line; a line longer than all that was read is looked at as it is.
    if (const auto end = text.rfind('\n'); end != std::string::npos) text.resize(end);
  }
  TableLoader loader(source, options, file.path);
  RETURN_IF_ERROR(loader.Load(text));
  loaded.dataset = loader.Take();
  return loaded;
}

}  // namespace starling::data
