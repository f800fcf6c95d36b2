// SPDX-License-Identifier: Apache-2.0
// What all objects of a job have in common. For the files of this folder.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "controller/resources/names.h"

namespace starling::resources {

// An object that the job owns and that goes when it goes, with the labels of all of them.
nlohmann::json Owned(const JobIdentity& job, std::string_view api_version, std::string_view kind,
                     std::string name);

}  // namespace starling::resources
