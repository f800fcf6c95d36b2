// SPDX-License-Identifier: Apache-2.0
// For tests: how often SQLite wants the disk to sync, which is all that outlives a power cut.
//
// It stands between SQLite and the files of those databases that are opened while it lives, and
// must outlive them. It counts in place of syncing.
#pragma once

#include <sqlite3.h>

#include <atomic>
#include <map>

#include "common/sync/mutex.h"

namespace starling::kube {

// Thread-safe.
class SyncCounter {
 public:
  SyncCounter() : disk_(sqlite3_vfs_find(nullptr)), counting_(*disk_) {
    counting_.zName = "counting";
    counting_.pNext = nullptr;
    counting_.pAppData = this;
    counting_.xOpen = Open;
    sqlite3_vfs_register(&counting_, /*makeDflt=*/1);
  }
  ~SyncCounter() { sqlite3_vfs_unregister(&counting_); }
  SyncCounter(const SyncCounter&) = delete;
  SyncCounter& operator=(const SyncCounter&) = delete;

  int count() const { return count_; }

 private:
  // What one kind of file can do: all of it as the disk does it, but syncs are only counted.
  struct Methods : sqlite3_io_methods {
    SyncCounter* counter;
  };

  static int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* opened) {
    auto* self = static_cast<SyncCounter*>(vfs->pAppData);
    const int code = self->disk_->xOpen(self->disk_, name, file, flags, opened);
    if (file->pMethods != nullptr) file->pMethods = self->Counted(file->pMethods);
    return code;
  }

  static int Sync(sqlite3_file* file, int /*flags*/) {
    ++static_cast<const Methods*>(file->pMethods)->counter->count_;
    return SQLITE_OK;
  }

  const Methods* Counted(const sqlite3_io_methods* of_disk) {
    sync::MutexLock lock(mutex_);
    Methods& methods = methods_[of_disk];
    if (methods.counter == nullptr) {
      static_cast<sqlite3_io_methods&>(methods) = *of_disk;
      methods.xSync = Sync;
      methods.counter = this;
    }
    return &methods;
  }

  sqlite3_vfs* const disk_;
  sqlite3_vfs counting_;
  std::atomic<int> count_ = 0;
  sync::Mutex mutex_;
  std::map<const sqlite3_io_methods*, Methods> methods_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::kube
