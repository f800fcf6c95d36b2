// SPDX-License-Identifier: Apache-2.0
#include "common/sql/sql.h"

namespace starling::sql {

std::int64_t Row::Int(std::size_t column) const {
  const auto* value = std::get_if<std::int64_t>(&values_.at(column));
  return value == nullptr ? 0 : *value;
}

double Row::Real(std::size_t column) const {
  const auto* value = std::get_if<double>(&values_.at(column));
  return value == nullptr ? static_cast<double>(Int(column)) : *value;
}

const std::string& Row::Text(std::size_t column) const {
  static const auto& empty = *new std::string();
  const auto* value = std::get_if<std::string>(&values_.at(column));
  return value == nullptr ? empty : *value;
}

}  // namespace starling::sql
