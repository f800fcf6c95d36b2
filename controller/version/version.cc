// SPDX-License-Identifier: Apache-2.0
#include "controller/version/version.h"

namespace starling::version {

std::string Current() { return STARLING_VERSION; }

}  // namespace starling::version
