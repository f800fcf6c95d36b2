// SPDX-License-Identifier: Apache-2.0
// Memory of this process that the other ranks on its machine may map, to read it and nothing else:
// what MPI calls a window. Gradients lie in one, so that ranks sum them up straight from one
// another's memory (collectives/shared_memory_allreduce.cc).
//
//   auto window = Window::Make(bytes);       // once, for all views of this process
//   options.window = window;                 // of its transport: each view's arena shows it around
//   arena->WindowOf(rank);                   // another rank's, or nothing
//
// The file is sealed against others' writing, so a process that was paused and wakes when others
// are views ahead can spoil nothing. What it reads then may be of a later step; the collective
// finds that out before it ends (Arena::GiveUp).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "common/net/socket.h"
#include "trainer/transport/sealed_memory.h"

namespace starling::transport {

// Its memory is for one thread at a time, as any; the rest is thread-safe.
class Window {
 public:
  // All zero. RESOURCE_EXHAUSTED when the system's limits leave no room for shared memory, or it
  // cannot be sealed: then memory of another kind serves, and sums take a copy more. Children of a
  // fork do not have it, for they would share it.
  static absl::StatusOr<std::shared_ptr<Window>> Make(std::size_t bytes);

  // Begins at a multiple of a page.
  std::span<std::byte> memory() const { return {memory_.data(), memory_.size()}; }
  // As many as fit.
  std::span<float> floats() const {
    return {reinterpret_cast<float*>(memory_.data()), memory_.size() / sizeof(float)};
  }
  const net::FileDescriptor& file() const { return file_; }

 private:
  explicit Window(SealedMemory::Made made)
      : memory_(std::move(made.memory)), file_(std::move(made.file)) {}

  const SealedMemory memory_;
  const net::FileDescriptor file_;
};

}  // namespace starling::transport
