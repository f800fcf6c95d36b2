// SPDX-License-Identifier: Apache-2.0
// A disk that fails when a test says so: the n-th change from now on, once or for good.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/file_system.h"

namespace starling::checkpoint {

// Thread-safe. Reads always work; changes are counted.
class FaultyFileSystem final : public FileSystem {
 public:
  explicit FaultyFileSystem(FileSystem& real) : real_(real) {}

  // Change number `index` (from 0) gives `status`: half of a file is written, other changes do not
  // happen. With `dead`, none happens afterwards either, as after the process's death.
  void FailAt(int index, absl::Status status, bool dead) {
    changes_ = 0;
    fail_at_ = index;
    status_ = std::move(status);
    dead_ = dead;
  }
  int changes() const { return changes_; }

  absl::Status MakeFolder(const std::string& path) override {
    return Fails() ? status_ : real_.MakeFolder(path);
  }
  absl::Status WriteFile(const std::string& path,
                         std::span<const std::span<const std::byte>> pieces) override {
    const bool first = changes_ == fail_at_;
    if (!Fails()) return real_.WriteFile(path, pieces);
    if (first && !pieces.empty()) {
      const std::span<const std::byte> half = pieces.back().first(pieces.back().size() / 2);
      std::vector<std::span<const std::byte>> some(pieces.begin(), pieces.end() - 1);
      some.push_back(half);
      real_.WriteFile(path, some).IgnoreError();
    }
    return status_;
  }
  absl::Status SyncFolder(const std::string& path) override {
    return Fails() ? status_ : real_.SyncFolder(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Fails() ? status_ : real_.Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override {
    return Fails() ? status_ : real_.Remove(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return real_.List(path);
  }
  absl::StatusOr<std::vector<std::byte>> ReadFile(const std::string& path,
                                                  std::size_t limit) override {
    return real_.ReadFile(path, limit);
  }

 private:
  bool Fails() {
    const int change = changes_++;
    return change == fail_at_ || (dead_ && fail_at_ >= 0 && change > fail_at_);
  }

  FileSystem& real_;
  std::atomic<int> changes_ = 0;
  int fail_at_ = -1;
  absl::Status status_;
  bool dead_ = false;
};

}  // namespace starling::checkpoint
