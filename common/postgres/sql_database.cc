// SPDX-License-Identifier: Apache-2.0
#include "common/postgres/sql_database.h"

#include <libpq-fe.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/macros.h"
#include "common/sync/mutex.h"

namespace starling::postgres {
namespace {

// Of transactions that met others.
constexpr int kTries = 5;

// Of pg_type.h, which only the server's packages have.
constexpr Oid kBool = 16;
constexpr Oid kInt8 = 20;
constexpr Oid kInt2 = 21;
constexpr Oid kInt4 = 23;
constexpr Oid kFloat4 = 700;
constexpr Oid kFloat8 = 701;
constexpr Oid kNumeric = 1700;

struct FreeConnection {
  void operator()(PGconn* connection) const { PQfinish(connection); }
};
struct FreeResult {
  void operator()(PGresult* result) const { PQclear(result); }
};
using Connection = std::unique_ptr<PGconn, FreeConnection>;
using Result = std::unique_ptr<PGresult, FreeResult>;

// The first two characters of a SQLSTATE are its class, and count where the whole is not named
// before. See PostgreSQL's appendix A.
struct Judgement {
  const char* state;
  absl::StatusCode code;
  const char* remedy;
};
constexpr Judgement kJudgements[] = {
    {"40", absl::StatusCode::kAborted, ""},
    {"23505", absl::StatusCode::kAborted, ""},  // two made the same thing at the same time
    {"42P07", absl::StatusCode::kAborted, ""},
    {"42710", absl::StatusCode::kAborted, ""},      // a type, which each table brings
    {"55P03", absl::StatusCode::kUnavailable, ""},  // locked
    {"57014", absl::StatusCode::kUnavailable, ""},  // took too long
    {"25006", absl::StatusCode::kUnavailable, "; name the server that takes writes"},
    {"53100", absl::StatusCode::kResourceExhausted, "; make room on the server's disk"},
    {"53300", absl::StatusCode::kUnavailable, "; raise max_connections of the server"},
    {"53", absl::StatusCode::kResourceExhausted, ""},
    {"08", absl::StatusCode::kUnavailable, ""},
    {"57", absl::StatusCode::kUnavailable, ""},
    {"28", absl::StatusCode::kPermissionDenied,
     "; give user and password (PGPASSWORD, PGPASSFILE)"},
    {"42501", absl::StatusCode::kPermissionDenied, "; grant this user CREATE on the schema"},
    {"3D000", absl::StatusCode::kFailedPrecondition, "; create it: createdb NAME"},
    {"3F000", absl::StatusCode::kFailedPrecondition, "; create the schema of the search_path"},
    {"XX001", absl::StatusCode::kDataLoss, "; restore the database"},
    {"XX002", absl::StatusCode::kDataLoss, "; reindex or restore the database"},
};

std::string OneLine(const char* text) {
  std::string line = text == nullptr ? "" : text;
  absl::StripAsciiWhitespace(&line);
  for (char& c : line) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return line;
}

absl::Status Judge(const std::string& name, const std::string& state, const std::string& text) {
  for (const Judgement& judgement : kJudgements) {
    if (!absl::StartsWith(state, judgement.state)) continue;
    return absl::Status(judgement.code, absl::StrCat(name, ": ", text, judgement.remedy));
  }
  return absl::InternalError(absl::StrCat(name, ": ", text, " (SQLSTATE ", state, ")"));
}

sql::Value ValueOf(const PGresult* result, int row, int column) {
  if (PQgetisnull(result, row, column) != 0) return std::monostate();
  const char* text = PQgetvalue(result, row, column);
  switch (PQftype(result, column)) {
    case kInt8:
    case kInt4:
    case kInt2: {
      std::int64_t number = 0;
      return absl::SimpleAtoi(text, &number) ? number : 0;
    }
    case kBool:
      return static_cast<std::int64_t>(text[0] == 't');
    case kNumeric: {  // what sums of whole numbers are
      std::int64_t number = 0;
      if (absl::SimpleAtoi(text, &number)) return number;
      [[fallthrough]];
    }
    case kFloat4:
    case kFloat8:
      return std::strtod(text, nullptr);
    default:
      return std::string(text, static_cast<std::size_t>(PQgetlength(result, row, column)));
  }
}

// A parameter as text; nothing: NULL.
class Parameters {
 public:
  explicit Parameters(const std::vector<sql::Value>& values) {
    texts_.reserve(values.size());
    for (const sql::Value& value : values) {
      if (const auto* number = std::get_if<std::int64_t>(&value)) {
        texts_.push_back(absl::StrCat(*number));
      } else if (const auto* real = std::get_if<double>(&value)) {
        texts_.push_back(absl::StrFormat("%.17g", *real));
      } else if (const auto* text = std::get_if<std::string>(&value)) {
        texts_.push_back(*text);
      } else {
        texts_.emplace_back();
      }
      const bool null = std::holds_alternative<std::monostate>(value);
      pointers_.push_back(null ? nullptr : texts_.back().c_str());
    }
  }
  int size() const { return static_cast<int>(pointers_.size()); }
  const char* const* data() const { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<const char*> pointers_;
};

absl::StatusOr<sql::Rows> RunOn(PGconn* connection, const std::string& name, const char* sql,
                                const std::vector<sql::Value>& values) {
  const Parameters parameters(values);
  const Result result(PQexecParams(connection, sql, parameters.size(), nullptr, parameters.data(),
                                   nullptr, nullptr, /*resultFormat=*/0));
  const ExecStatusType status = PQresultStatus(result.get());
  if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
    const char* state =
        result == nullptr ? nullptr : PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
    // Without a state the server did not say it: the connection is gone.
    if (state == nullptr) {
      return absl::UnavailableError(
          absl::StrCat(name, ": the connection was lost: ", OneLine(PQerrorMessage(connection))));
    }
    return Judge(name, state, OneLine(PQresultErrorField(result.get(), PG_DIAG_MESSAGE_PRIMARY)));
  }
  sql::Rows rows;
  for (int row = 0; row < PQntuples(result.get()); ++row) {
    std::vector<sql::Value> cells;
    for (int column = 0; column < PQnfields(result.get()); ++column) {
      cells.push_back(ValueOf(result.get(), row, column));
    }
    rows.emplace_back(std::move(cells));
  }
  return rows;
}

class PostgresTransaction final : public sql::Transaction {
 public:
  PostgresTransaction(PGconn* connection, const std::string& name)
      : connection_(connection), name_(name) {}

  absl::StatusOr<sql::Rows> Run(const char* sql, const std::vector<sql::Value>& values) override {
    return RunOn(connection_, name_, sql, values);
  }

 private:
  PGconn* const connection_;
  const std::string& name_;
};

class SqlDatabase final : public sql::Database {
 public:
  SqlDatabase(SqlOptions options, std::string name)
      : options_(std::move(options)), name_(std::move(name)) {}

  absl::Status Transact(sql::Access access, const Work& work) override {
    sync::MutexLock lock(mutex_);
    absl::Status status;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      RETURN_IF_ERROR(Connect());
      status = Run(access, work);
      // A connection that broke is found broken when it is used: once more with another.
      const bool broke = connection_ == nullptr && attempt == 0 && absl::IsUnavailable(status);
      if (!broke && !absl::IsAborted(status)) return status;
    }
    return status;
  }

  std::int64_t incarnation() const override { return incarnation_; }
  const std::string& name() const override { return name_; }

  absl::StatusOr<std::int64_t> Bytes() override {
    std::int64_t bytes = 0;
    RETURN_IF_ERROR(
        Transact(sql::Access::kRead, [&](sql::Transaction& transaction) -> absl::Status {
          ASSIGN_OR_RETURN(const sql::Rows rows,
                           transaction.Run("SELECT pg_database_size(current_database())", {}));
          bytes = rows.at(0).Int(0);
          return absl::OkStatus();
        }));
    return bytes;
  }

  absl::Status Compact() override { return absl::OkStatus(); }  // autovacuum's

 private:
  absl::Status Connect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (connection_ != nullptr && PQstatus(connection_.get()) == CONNECTION_OK) {
      return absl::OkStatus();
    }
    connection_.reset();
    const std::string connect = absl::StrCat(absl::ToInt64Seconds(options_.connect_timeout));
    const std::string session =
        absl::StrCat("-c statement_timeout=", absl::ToInt64Milliseconds(options_.statement_timeout),
                     " -c lock_timeout=", absl::ToInt64Milliseconds(options_.statement_timeout),
                     " -c idle_in_transaction_session_timeout=60000");
    // The URL stands before what it may not change. A server that says nothing is given up after
    // about 20 s.
    const std::array keys = {"fallback_application_name",
                             "connect_timeout",
                             "keepalives_idle",
                             "keepalives_interval",
                             "keepalives_count",
                             "tcp_user_timeout",
                             "dbname",
                             "options",
                             "client_encoding",
                             static_cast<const char*>(nullptr)};
    const std::array values = {"starling",
                               connect.c_str(),
                               "10",
                               "5",
                               "2",
                               "20000",
                               options_.url.c_str(),
                               session.c_str(),
                               "UTF8",
                               static_cast<const char*>(nullptr)};
    Connection connection(PQconnectdbParams(keys.data(), values.data(), /*expand_dbname=*/1));
    if (PQstatus(connection.get()) != CONNECTION_OK) {
      return Refused(OneLine(PQerrorMessage(connection.get())));
    }
    PQsetNoticeProcessor(
        connection.get(), [](void*, const char*) {}, nullptr);
    connection_ = std::move(connection);
    ++incarnation_;
    return absl::OkStatus();
  }

  // libpq tells no SQLSTATE of a connection that was not made.
  absl::Status Refused(const std::string& text) const {
    if (absl::StrContains(text, "authentication failed") ||
        absl::StrContains(text, "no password")) {
      return Judge(name_, "28", text);
    }
    if (absl::StrContains(text, "database") && absl::StrContains(text, "does not exist")) {
      return Judge(name_, "3D000", text);
    }
    return absl::UnavailableError(absl::StrCat(name_, ": ", text));
  }

  absl::Status Run(sql::Access access, const Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const char* begin = access == sql::Access::kRead
                            ? "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
                            : "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
    absl::Status status = RunOn(connection_.get(), name_, begin, {}).status();
    if (status.ok()) {
      PostgresTransaction transaction(connection_.get(), name_);
      status = work(transaction);
      const char* end = status.ok() ? "COMMIT" : "ROLLBACK";
      const absl::Status ended = RunOn(connection_.get(), name_, end, {}).status();
      if (status.ok()) status = ended;
    }
    if (PQstatus(connection_.get()) != CONNECTION_OK) connection_.reset();
    return status;
  }

  const SqlOptions options_;
  const std::string name_;
  std::atomic<std::int64_t> incarnation_ = 0;
  sync::Mutex mutex_;
  Connection connection_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<sql::Database>> OpenSql(SqlOptions options) {
  char* wrong = nullptr;
  PQconninfoOption* parsed = PQconninfoParse(options.url.c_str(), &wrong);
  if (parsed == nullptr) {
    const std::string text = OneLine(wrong);
    PQfreemem(wrong);
    return absl::InvalidArgumentError(
        absl::StrCat("not a PostgreSQL URL: ", text, "; write postgresql://user@host/database"));
  }
  // What libpq would fill in from its environment is not told.
  std::string host, database;
  for (const PQconninfoOption* option = parsed; option->keyword != nullptr; ++option) {
    if (option->val == nullptr) continue;
    if (std::string_view(option->keyword) == "host") host = option->val;
    if (std::string_view(option->keyword) == "dbname") database = option->val;
  }
  PQconninfoFree(parsed);
  const std::string name = absl::StrCat(options.what, " postgresql://", host, "/", database);
  return std::make_unique<SqlDatabase>(std::move(options), name);
}

}  // namespace starling::postgres
