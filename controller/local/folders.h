// SPDX-License-Identifier: Apache-2.0
// Where things lie under STARLING_HOME, and the few ways in which files are written there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/kube/kube_client.h"

namespace starling::local {

// The TrainingJob that controls a pod; empty fields when none does.
struct JobReference {
  std::string ns;
  std::string name;
  std::string uid;

  bool empty() const { return uid.empty(); }
};
JobReference JobOfPod(const kube::Json& pod);
JobReference ReferenceTo(const kube::Json& job);

// <home>/jobs/<namespace>/<name>-<first 8 of UID>
std::string JobFolder(std::string_view home, const JobReference& job);

// Whose folder it is, with the first 8 characters of the UID; empty: no job's.
JobReference JobOfFolder(const std::string& folder);

// <job's folder>/pods/<name>-<first 8 of UID>; a pod of no job lies under <home>/pods/<namespace>.
std::string PodFolder(std::string_view home, const kube::Json& pod);

// Every job's folder, and every pod's, that is there now.
std::vector<std::string> ListJobFolders(std::string_view home);
std::vector<std::string> ListPodFolders(std::string_view home);

// With the folders above it; only we may look inside.
absl::Status MakeFolder(const std::string& path);
void RemoveFolder(const std::string& path);

// Whole or not at all; mode such as 0600.
absl::Status WriteFile(const std::string& path, std::string_view text, unsigned mode);
absl::StatusOr<std::string> ReadFile(const std::string& path);

// The last lines of a file, at most 20 and 4 KiB.
std::string LastLines(const std::string& path);

}  // namespace starling::local
