// SPDX-License-Identifier: Apache-2.0
// A function is compiled for several instruction sets, and the best that the machine has is chosen
// when the program starts. Sanitizers instrument the resolvers that choose, which run before the
// sanitizers do: there is one version then.
#pragma once

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(STARLING_THREAD_SANITIZER)
#define STARLING_VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define STARLING_VECTORISED
#endif

// A part of such functions: inlined into each version, and compiled for its instruction set there.
#define STARLING_PART_OF_VECTORISED __attribute__((always_inline)) inline
