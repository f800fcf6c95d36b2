// SPDX-License-Identifier: Apache-2.0
// One value against the rules of its field: bounds, lengths, patterns, formats.
//
// Each returns what is wrong as a message without the path, or "" if nothing is. To add a rule, add
// it to FieldRules in options.proto, here, and in api/schema's generator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/spec/contract.h"

namespace starling::spec {

std::string CheckNumber(const v1alpha1::FieldRules& rules, double number);
std::string CheckText(const v1alpha1::FieldRules& rules, std::string_view text);
std::string CheckMapKey(const v1alpha1::FieldRules& rules, std::string_view key);
std::string CheckDuration(const v1alpha1::FieldRules& rules,
                          const google::protobuf::Duration& duration);
// Of a list or a map: how many entries it has.
std::string CheckSize(const v1alpha1::FieldRules& rules, std::size_t size);

// Characters, as the API server counts them: code points.
std::size_t Characters(std::string_view text);

}  // namespace starling::spec
