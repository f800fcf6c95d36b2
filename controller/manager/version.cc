// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/version.h"

namespace starling::manager {

std::string Version() { return STARLING_VERSION; }

}  // namespace starling::manager
