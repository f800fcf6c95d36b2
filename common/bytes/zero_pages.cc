// SPDX-License-Identifier: Apache-2.0
#include "common/bytes/zero_pages.h"

#include <sys/mman.h>

#include "common/status/check.h"

namespace starling::bytes {

ZeroPages::ZeroPages(std::size_t size) {
  if (size == 0) return;
  void* const pages =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  STARLING_CHECK(pages != MAP_FAILED, "the operating system has memory");
  // A fault for each 2 MiB, not for each 4 KiB; where there are none, it is as good without.
  (void)::madvise(pages, size, MADV_HUGEPAGE);
  bytes_ = {static_cast<std::byte*>(pages), size};
}

ZeroPages::~ZeroPages() {
  if (!bytes_.empty()) (void)::munmap(bytes_.data(), bytes_.size());
}

}  // namespace starling::bytes
