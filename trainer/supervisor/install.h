// SPDX-License-Identifier: Apache-2.0
// How the supervisor gets into a container of any image: an init container of our image copies it
// into a volume that both share.
//
// The same init container waits until a name of the job resolves. A name under a headless service
// does so only once its pod has an address, and programs that are not ours, torchrun among them,
// give up on the first failure. Where the container's program is Python, it can bring our package
// too.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace starling::supervisor {

struct InstallOptions {
  std::string path;                      // where the program is to lie
  std::vector<std::string> await_names;  // hosts
  std::string package;                   // the folder that our Python package is copied into
};

// `arguments` begin with --install PATH; --package FOLDER may follow, and --await-name HOST again
// and again. Returns what is wrong, empty if nothing is.
std::string ParseInstallOptions(const std::vector<std::string>& arguments, InstallOptions& options);

// Copies the file `from` to `path`, executable for all, in one step for whoever looks. Returns what
// went wrong.
std::string InstallFile(const std::string& from, const std::string& path);

// Copies what lies in the folder `from` into `to`, for all to read. Returns what went wrong.
std::string InstallFolder(const std::string& from, const std::string& to);

// Asks `resolves` about `name` until it says yes, calling `pause` in between.
void AwaitName(const std::string& name, const std::function<bool(const std::string&)>& resolves,
               const std::function<void()>& pause);

// Whether the name has an address by now.
bool Resolves(const std::string& name);

// All of it, for this program and the package of this image. Returns the exit code.
int Install(const InstallOptions& options);

}  // namespace starling::supervisor
