// SPDX-License-Identifier: Apache-2.0
// What floating-point results depend on beside the inputs, pinned and named.
//
// The same program gives other bits with another BLAS kernel, instruction set or number of threads.
// This pins what can be pinned; it must run before libtorch is loaded, since OpenBLAS picks its
// kernel in a static constructor and knows newer processors badly (on some it takes a kernel of
// half the speed). The engine names the outcome.
#pragma once

namespace starling::worker {

// Chooses OpenBLAS's kernel from the processor's instruction sets (SkylakeX with AVX-512, Haswell
// with AVX2 and FMA, else OpenBLAS's own choice) and one compute thread. Variables that the user
// has set win. Call it from main before other threads run: it changes the environment.
void PrepareNumericEnvironment();

}  // namespace starling::worker
