// SPDX-License-Identifier: Apache-2.0
// The tables of SqlHistory, as migrations from nothing to what this version knows.
#pragma once

#include <cstdint>
#include <string>

#include "common/sql/sql.h"

namespace starling::history {

// Brings the tables up to this version's. FailedPrecondition: a newer one made them. `name` is the
// database's, for errors.
absl::Status Migrate(sql::Transaction& transaction, const std::string& name);

// For who may only read: they must be this version's. NotFound: there are none yet.
absl::Status CheckSchema(sql::Transaction& transaction, const std::string& name);

}  // namespace starling::history
