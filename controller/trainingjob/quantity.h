// SPDX-License-Identifier: Apache-2.0
// Kubernetes' quantities of memory, as numbers of bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace starling::trainingjob {

// Bytes in "64Gi", "1.5G", "500M", "1e9" or "123"; rounded up. 0: not a quantity, or not positive.
std::int64_t ParseBytes(std::string_view quantity);

// The shortest exact form in binary units, such as "1536Mi".
std::string FormatBytes(std::int64_t bytes);

}  // namespace starling::trainingjob
