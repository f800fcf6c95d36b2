// SPDX-License-Identifier: Apache-2.0
// A file as a sql::Database.
//
// Several processes may use it at once. A damaged file is moved aside, under its own name with
// ".damaged-TIME" behind it, and another is begun: whoever writes to it can go on, and is told by
// the new incarnation that what it had written is gone.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/sql/sql.h"

namespace starling::sqlite {

struct SqlOptions {
  std::string path;
  std::string what = "database";  // what errors call it
  absl::Duration busy_timeout = absl::Seconds(5);
  // Never written, made or moved; NotFound while there is no file.
  bool read_only = false;
  // Written into the file's head: a file with another one is some other program's, and refused.
  std::int64_t application_id = 0;
};

std::unique_ptr<sql::Database> OpenSql(SqlOptions options);

}  // namespace starling::sqlite
