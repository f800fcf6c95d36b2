// SPDX-License-Identifier: Apache-2.0
#include "controller/local/folders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::local {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTailBytes = 4096;
constexpr std::size_t kTailLines = 20;
constexpr std::size_t kUidSuffix = 9;  // "-", and 8 characters of the UID

std::string WithUid(std::string_view name, std::string_view uid) {
  return absl::StrCat(std::string(name), "-", std::string(uid.substr(0, 8)));
}

void AppendFolders(const fs::path& parent, std::vector<std::string>& folders) {
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) folders.push_back(entry->path().string());
  }
}

std::vector<std::string> Grandchildren(const fs::path& parent) {
  std::vector<std::string> namespaces;
  std::vector<std::string> folders;
  AppendFolders(parent, namespaces);
  for (const std::string& ns : namespaces) AppendFolders(ns, folders);
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace

JobReference JobOfPod(const kube::Json& pod) {
  for (const kube::Json& owner : kube::At(pod, "/metadata/ownerReferences")) {
    if (kube::StringAt(owner, "/kind") != "TrainingJob" || !kube::BoolAt(owner, "/controller")) {
      continue;
    }
    return {.ns = kube::NamespaceOf(pod),
            .name = kube::StringAt(owner, "/name"),
            .uid = kube::StringAt(owner, "/uid")};
  }
  return {};
}

JobReference ReferenceTo(const kube::Json& job) {
  return {.ns = kube::NamespaceOf(job), .name = kube::NameOf(job), .uid = kube::UidOf(job)};
}

std::string JobFolder(std::string_view home, const JobReference& job) {
  return absl::StrCat(std::string(home), "/jobs/", job.ns, "/", WithUid(job.name, job.uid));
}

JobReference JobOfFolder(const std::string& folder) {
  const fs::path path(folder);
  const std::string name = path.filename().string();
  if (name.size() <= kUidSuffix || name[name.size() - kUidSuffix] != '-') return {};
  return {.ns = path.parent_path().filename().string(),
          .name = name.substr(0, name.size() - kUidSuffix),
          .uid = name.substr(name.size() - kUidSuffix + 1)};
}

std::string PodFolder(std::string_view home, const kube::Json& pod) {
  const JobReference job = JobOfPod(pod);
  const std::string name = WithUid(kube::NameOf(pod), kube::UidOf(pod));
  if (job.empty()) {
    return absl::StrCat(std::string(home), "/pods/", kube::NamespaceOf(pod), "/", name);
  }
  return absl::StrCat(JobFolder(home, job), "/pods/", name);
}

std::vector<std::string> ListJobFolders(std::string_view home) {
  return Grandchildren(fs::path(home) / "jobs");
}

std::vector<std::string> ListPodFolders(std::string_view home) {
  std::vector<std::string> folders = Grandchildren(fs::path(home) / "pods");
  for (const std::string& job : ListJobFolders(home))
    AppendFolders(fs::path(job) / "pods", folders);
  return folders;
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  for (fs::path part; const fs::path& name : fs::path(path)) {
    part /= name;
    if (mkdir(part.c_str(), 0700) == 0) continue;
    const int failure = errno;
    if (!fs::is_directory(part, error)) {
      return absl::ErrnoToStatus(failure, absl::StrCat("cannot make the folder ", path));
    }
  }
  return absl::OkStatus();
}

void RemoveFolder(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

absl::Status WriteFile(const std::string& path, std::string_view text, unsigned mode) {
  const std::string temporary = path + ".new";
  unlink(temporary.c_str());
  const int descriptor =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (descriptor < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  absl::Status status;
  while (!text.empty() && status.ok()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      status = absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
    }
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  close(descriptor);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::string LastLines(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const auto size = static_cast<std::size_t>(std::max<std::streamoff>(file.tellg(), 0));
  const std::size_t wanted = std::min(size, kTailBytes);
  std::string text(wanted, '\0');
  file.seekg(static_cast<std::streamoff>(size - wanted));
  file.read(text.data(), static_cast<std::streamsize>(wanted));
  std::size_t lines = 0;
  for (std::size_t at = text.size(); at > 0; --at) {
    const bool ends_a_line = text[at - 1] == '\n' && at != text.size();
    if (ends_a_line && ++lines == kTailLines) return text.substr(at);
  }
  return text;
}

}  // namespace starling::local
