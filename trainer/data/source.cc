// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/source.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace starling::data {
namespace {

constexpr std::string_view kFileScheme = "file://";
constexpr std::size_t kQuoteLimit = 40;

absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

absl::Status OpenError(int error, const std::string& path, std::string_view field) {
  const std::string reason = std::strerror(error);
  if (error == ENOENT || error == ENOTDIR) {
    return FieldError(absl::StatusCode::kNotFound, field,
                      absl::StrCat(path,
                                   ": there is no such file; check the path, which is "
                                   "relative to the job file's folder unless it is absolute"));
  }
  if (error == EACCES || error == EPERM) {
    return FieldError(absl::StatusCode::kPermissionDenied, field,
                      absl::StrCat(path, ": ", reason, "; let this user read it"));
  }
  return FieldError(absl::StatusCode::kUnavailable, field, absl::StrCat(path, ": ", reason));
}

}  // namespace

absl::Status FieldError(absl::StatusCode code, std::string_view field, std::string_view message) {
  return absl::Status(code, absl::StrCat(ToAbsl(field), ": ", ToAbsl(message)));
}

absl::Status CheckLabel(std::int64_t label, std::optional<std::int64_t> own_classes,
                        const LoadOptions& options) {
  const std::int64_t limit = own_classes.value_or(options.classes.value_or(kMaxClasses));
  if (label >= 0 && label < limit) return absl::OkStatus();
  const std::string_view whose = own_classes.has_value()       ? " classes that the job file gives"
                                 : options.classes.has_value() ? " classes of the training set"
                                                               : " classes that are supported";
  return absl::InvalidArgumentError(absl::StrCat("label ", label, " is out of range; with the ",
                                                 limit, ToAbsl(whose), " it must be 0 to ",
                                                 limit - 1));
}

absl::StatusOr<std::int64_t> CountClasses(std::int64_t highest,
                                          std::optional<std::int64_t> own_classes,
                                          const LoadOptions& options) {
  if (options.classes.has_value()) {
    if (own_classes.has_value() && *own_classes != *options.classes) {
      return FieldError(absl::StatusCode::kInvalidArgument, absl::StrCat(options.path, ".classes"),
                        absl::StrCat("is ", *own_classes, ", but the training set has ",
                                     *options.classes, " classes; leave it out here"));
    }
    return *options.classes;
  }
  return own_classes.value_or(std::max<std::int64_t>(2, highest + 1));
}

absl::StatusOr<FileInfo> Inspect(std::string_view uri, std::string_view field) {
  FileInfo file;
  file.path = std::string(
      absl::StartsWith(ToAbsl(uri), ToAbsl(kFileScheme)) ? uri.substr(kFileScheme.size()) : uri);
  if (absl::StrContains(file.path, "://")) {
    return FieldError(absl::StatusCode::kInvalidArgument, field,
                      absl::StrCat(Quote(uri),
                                   " cannot be read; only files can: give a path or "
                                   "file:///path"));
  }
  struct stat info {};
  if (::stat(file.path.c_str(), &info) != 0) return OpenError(errno, file.path, field);
  if (!S_ISREG(info.st_mode)) {
    return FieldError(
        absl::StatusCode::kInvalidArgument, field,
        absl::StrCat(file.path, ": this is not a regular file; name the file itself"));
  }
  if (::access(file.path.c_str(), R_OK) != 0) return OpenError(errno, file.path, field);
  file.size = static_cast<std::size_t>(info.st_size);
  if (file.size == 0) {
    return FieldError(absl::StatusCode::kInvalidArgument, field,
                      absl::StrCat(file.path, ": the file is empty; it must hold samples"));
  }
  if (file.size > kMaxFileBytes) {
    return FieldError(absl::StatusCode::kInvalidArgument, field,
                      absl::StrCat(file.path, ": the file has ", file.size, " bytes, more than ",
                                   kMaxFileBytes, "; split it or use fewer samples"));
  }
  return file;
}

absl::StatusOr<std::string> ReadStart(const FileInfo& file, std::size_t limit,
                                      std::string_view field) {
  const std::unique_ptr<FILE, int (*)(FILE*)> stream(std::fopen(file.path.c_str(), "rbe"),
                                                     &std::fclose);
  if (stream == nullptr) return OpenError(errno, file.path, field);
  std::string content(std::min(limit, file.size), '\0');
  const std::size_t count = std::fread(content.data(), 1, content.size(), stream.get());
  if (std::ferror(stream.get()) != 0) return OpenError(errno, file.path, field);
  if (count != content.size()) {
    return FieldError(absl::StatusCode::kDataLoss, field,
                      absl::StrCat(file.path,
                                   ": the file became shorter while it was read; leave "
                                   "it alone while jobs use it"));
  }
  return content;
}

std::string Quote(std::string_view text) {
  const bool cut = text.size() > kQuoteLimit;
  return absl::StrCat("\"", absl::CHexEscape(ToAbsl(text.substr(0, kQuoteLimit))),
                      cut ? "...\"" : "\"");
}

}  // namespace starling::data
