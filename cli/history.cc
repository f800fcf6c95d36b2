// SPDX-License-Identifier: Apache-2.0
#include "cli/history.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "api/spec/uris.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"

namespace starling::cli {
namespace {

namespace fs = std::filesystem;
using kube::Json;

absl::Status Failed(const fs::path& path, const std::error_code& error) {
  return absl::UnavailableError(
      absl::StrCat("history: ", path.string(), ": ", error.message(), "; is the disk full?"));
}

// A second name for the same bytes where that is possible, else a copy.
absl::Status Keep(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (fs::exists(to, error)) return absl::OkStatus();
  fs::create_hard_link(from, to, error);
  if (error) fs::copy_file(from, to, error);
  return error ? Failed(to, error) : absl::OkStatus();
}

absl::Status WriteWhole(const fs::path& path, const std::string& text) {
  const fs::path draft = path.string() + ".new";
  std::error_code error;
  {
    std::ofstream file(draft, std::ios::binary | std::ios::trunc);
    file << text << std::flush;
    if (!file) return Failed(draft, std::make_error_code(std::errc::io_error));
  }
  fs::rename(draft, path, error);
  return error ? Failed(path, error) : absl::OkStatus();
}

}  // namespace

absl::Status Archive(const Home& home, const Json& job) {
  const fs::path folder = resources::JobFolder(
      home.History(), {kube::NamespaceOf(job), kube::NameOf(job), kube::UidOf(job)});
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Failed(folder, error);
  Json kept = job;
  const auto model = spec::PathOfUri(kube::StringAt(job, "/status/result/model/uri"));
  if (model.ok() && fs::is_regular_file(*model, error)) {
    RETURN_IF_ERROR(Keep(*model, folder / "model.safetensors"));
    kept["status"]["result"]["model"]["uri"] = "file://" + (folder / "model.safetensors").string();
  }
  return WriteWhole(folder / "job.json", json::Dump(kept) + "\n");
}

std::vector<Json> ListHistory(const Home& home, std::string_view ns) {
  std::vector<Json> jobs;
  std::error_code error;
  for (fs::recursive_directory_iterator it(home.History(), error), end; it != end;
       it.increment(error)) {
    if (error || it->path().filename() != "job.json") continue;
    std::ifstream file(it->path(), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    Json job = Json::parse(text.str(), nullptr, false);
    if (job.is_discarded() || (!ns.empty() && kube::NamespaceOf(job) != ns)) continue;
    jobs.push_back(std::move(job));
  }
  std::sort(jobs.begin(), jobs.end(), [](const Json& a, const Json& b) {
    return kube::StringAt(a, "/metadata/creationTimestamp") <
           kube::StringAt(b, "/metadata/creationTimestamp");
  });
  return jobs;
}

}  // namespace starling::cli
