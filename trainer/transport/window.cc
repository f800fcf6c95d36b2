// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/window.h"

#include <sys/mman.h>

#include <algorithm>

#include "common/status/macros.h"

namespace starling::transport {

absl::StatusOr<std::shared_ptr<Window>> Window::Make(std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes, 1);
  ASSIGN_OR_RETURN(SealedMemory::Made made,
                   SealedMemory::Make("starling-window", bytes, SealedMemory::Others::kRead));
  (void)::madvise(made.memory.data(), bytes, MADV_DONTFORK);
  return std::shared_ptr<Window>(new Window(std::move(made)));
}

}  // namespace starling::transport
