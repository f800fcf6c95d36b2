// SPDX-License-Identifier: Apache-2.0
// For tests: blobs in memory, whose changes and reads fail when a test says so, and whose bytes can
// rot.
//
// What a disk does on the way to a blob (half a file, a name without its sync) is not to be seen
// through BlobStore, so what is left of a crash or an error is this: the change happened or it did
// not, and either way the caller hears an error, or nothing any more.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "common/storage/blob_store.h"
#include "common/sync/mutex.h"

namespace starling::storage {

// Thread-safe.
class MemoryBlobStore final : public BlobStore {
 public:
  struct Fault {
    int at = -1;           // the change (Put or Delete), from 0, that fails; -1: none
    absl::Status status;   // what its caller hears
    bool happens = false;  // the change is made all the same
    bool dead = false;     // and so fail all after it, without being made: the process has died
  };
  // Counts changes from 0 again.
  void Fail(Fault fault) {
    const sync::MutexLock lock(mutex_);
    fault_ = std::move(fault);
    changes_ = 0;
  }
  int changes() const {
    const sync::MutexLock lock(mutex_);
    return changes_;
  }

  // Reads of blobs whose names hold `part` fail like this; all of them, if it is empty. OK: none
  // do.
  void FailReads(std::string part, absl::Status status) {
    const sync::MutexLock lock(mutex_);
    unreadable_ = std::move(part);
    read_status_ = std::move(status);
  }

  // What a disk may do to a blob behind everybody's back; "" if there is none.
  std::string Get(const std::string& name) const {
    const sync::MutexLock lock(mutex_);
    const auto found = blobs_.find(name);
    return found == blobs_.end() ? "" : found->second;
  }
  void Set(const std::string& name, std::string content) {
    const sync::MutexLock lock(mutex_);
    blobs_[name] = std::move(content);
  }

  absl::Status Put(const std::string& name, Pieces pieces, IfPresent if_present) override {
    RETURN_IF_ERROR(CheckName(name));
    std::string content;
    for (const auto& piece : pieces) {
      content.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    const sync::MutexLock lock(mutex_);
    return Change([&]() -> absl::Status {
      if (if_present == IfPresent::kFail && blobs_.count(name) > 0) {
        return absl::AlreadyExistsError(absl::StrCat(UriOf(name), " is there"));
      }
      blobs_[name] = std::move(content);
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::size_t> Size(const std::string& name) override {
    RETURN_IF_ERROR(CheckName(name));
    const sync::MutexLock lock(mutex_);
    if (name.find(unreadable_) != std::string::npos) RETURN_IF_ERROR(read_status_);
    const auto found = blobs_.find(name);
    if (found != blobs_.end()) return found->second.size();
    return absl::NotFoundError(absl::StrCat(UriOf(name), " is not there"));
  }

  absl::Status Read(const std::string& name, std::size_t offset,
                    std::span<std::byte> into) override {
    ASSIGN_OR_RETURN(const std::size_t size, Size(name));
    if (offset > size || into.size() > size - offset) {
      return absl::OutOfRangeError(absl::StrCat(UriOf(name), " has only ", size, " bytes"));
    }
    const sync::MutexLock lock(mutex_);
    const std::string& content = blobs_[name];
    std::copy_n(content.begin() + static_cast<std::ptrdiff_t>(offset), into.size(),
                reinterpret_cast<char*>(into.data()));
    return absl::OkStatus();
  }

  absl::Status Delete(const std::string& name) override {
    RETURN_IF_ERROR(CheckName(name));
    const sync::MutexLock lock(mutex_);
    return Change([&] {
      blobs_.erase(name);
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& prefix) override {
    const sync::MutexLock lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, content] : blobs_) {
      if (name.starts_with(prefix)) names.push_back(name);
    }
    return names;
  }

  std::string UriOf(std::string_view name) const override {
    return absl::StrCat("memory:///", std::string(name));
  }

 private:
  template <typename Function>
  absl::Status Change(const Function& function) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int change = changes_++;
    if (fault_.at < 0 || change < fault_.at || (change > fault_.at && !fault_.dead)) {
      return function();
    }
    if (change == fault_.at && fault_.happens) RETURN_IF_ERROR(function());
    return fault_.status;
  }

  mutable sync::Mutex mutex_;
  std::map<std::string, std::string> blobs_ ABSL_GUARDED_BY(mutex_);
  Fault fault_ ABSL_GUARDED_BY(mutex_);
  std::string unreadable_ ABSL_GUARDED_BY(mutex_);
  absl::Status read_status_ ABSL_GUARDED_BY(mutex_);
  int changes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace starling::storage
