// SPDX-License-Identifier: Apache-2.0
// Names what floating-point results depend on beside the inputs, after libtorch is loaded.
#pragma once

#include <string>

namespace starling::engine {

// BLAS kernel, instruction sets, threads and versions, such as
// "blas=SkylakeX/0.3.21 cpu=AVX512 dnnl=2.6.3 threads=1 torch=1.13.1". Equal identities and equal
// inputs give equal bits.
std::string NumericIdentity();

}  // namespace starling::engine
