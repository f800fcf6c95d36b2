// SPDX-License-Identifier: Apache-2.0
// What a role's pod template may say: the outline of a PodTemplateSpec.
//
// The API server checks the rest by a dry run; this much is checked everywhere, so that a typing
// error is found on a laptop too.
#pragma once

#include <string>
#include <string_view>

#include "api/spec/field_error.h"

namespace starling::spec {

// `text` is the template's JSON, `path` its place in the job.
FieldErrors CheckPodTemplate(const std::string& text, std::string_view path);

// What the worker's template of a job that brings its own container must say too: image and command
// of the container "trainer". The command, for our supervisor runs it and cannot see the image's.
FieldErrors CheckOwnContainer(const std::string& text, std::string_view path);

}  // namespace starling::spec
