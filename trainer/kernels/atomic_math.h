// SPDX-License-Identifier: Apache-2.0
// Arithmetic on numbers that several threads change at once: no locks, no lost additions.
//
// Every element is added by one atomic operation of its own, so sums of whole numbers are exact
// whatever the threads do; a vector as a whole may be seen half added. Order means nothing here
// (relaxed), so results of fractions depend on the threads' luck. All access to such numbers goes
// through these functions while threads share them: a plain read beside an atomic write is a race.
#pragma once

namespace starling::kernels {

float AtomicLoad(float& shared);
void AtomicAdd(float x, float& shared);

}  // namespace starling::kernels
