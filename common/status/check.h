// SPDX-License-Identifier: Apache-2.0
// Broken invariants end the process with a message: they are our own mistakes, not the world's.
#pragma once

#include <cstdio>
#include <cstdlib>

// Ends the process when `condition` is false. `what` says which promise was broken.
#define STARLING_CHECK(condition, what)                                                    \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", __FILE__, __LINE__, what, \
                   #condition);                                                            \
      std::abort();                                                                        \
    }                                                                                      \
  } while (false)
