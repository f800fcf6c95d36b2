// SPDX-License-Identifier: Apache-2.0
// The history in PostgreSQL: the contract against a real server, and what happens to servers.
#include "common/postgres/sql_database.h"
#include "controller/history/sql_history.h"
#include "tests/contract/history/history_contract.h"
#include "tests/contract/history/postgres_server.h"

namespace starling::history {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// One for all tests of this program, each of which has a database of its own. Null: skipped.
PostgresServer* Server() {
  static std::unique_ptr<PostgresServer> server = PostgresServer::Start();
  return server.get();
}

std::unique_ptr<History> OpenUrl(const std::string& url) {
  auto database =
      postgres::OpenSql({.url = url, .what = "history", .statement_timeout = absl::Seconds(5)});
  EXPECT_TRUE(database.ok()) << database.status();
  return std::make_unique<SqlHistory>(*std::move(database));
}

class PostgresStore final : public HistoryStore {
 public:
  explicit PostgresStore(PostgresServer& server) : url_(server.MakeDatabase()) {}
  std::unique_ptr<History> Open() override { return OpenUrl(url_); }
  const std::string& url() const { return url_; }

 private:
  const std::string url_;
};

HistoryFactory Factory() {
  return {"Server", []() -> std::unique_ptr<HistoryStore> {
            if (Server() == nullptr) return nullptr;
            return std::make_unique<PostgresStore>(*Server());
          }};
}

INSTANTIATE_TEST_SUITE_P(Postgres, HistoryContract, testing::Values(Factory()), NameOfHistory);

class PostgresHistoryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Server() == nullptr) GTEST_SKIP() << "no PostgreSQL server: install postgresql-15";
    store_ = std::make_unique<PostgresStore>(*Server());
    database_ = *postgres::OpenSql({.url = store_->url()});
  }
  absl::Status Change(const char* sql) {
    return database_->Transact(sql::Access::kWrite, [sql](sql::Transaction& transaction) {
      return transaction.Run(sql).status();
    });
  }

  std::unique_ptr<PostgresStore> store_;
  std::unique_ptr<sql::Database> database_;
};

TEST_F(PostgresHistoryTest, ALostConnectionIsMadeAnewAndNothingIsLost) {
  const auto history = store_->Open();
  ASSERT_TRUE(history->Record({UpdateOf({.version = 1})}).ok());
  const std::int64_t before = history->incarnation();
  ASSERT_TRUE(Change("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                     "WHERE datname = current_database() AND pid <> pg_backend_pid()")
                  .ok());
  const absl::Status status = history->Record({UpdateOf({.version = 2})}).status();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GT(history->incarnation(), before);
  EXPECT_EQ(kube::IntAt(history->Find({"default", "", "digits", ""})->object, "/spec/seed"), 2);
}

TEST_F(PostgresHistoryTest, AServerThatIsAwayIsUnavailableAndThenThereAgain) {
  const auto history = store_->Open();
  ASSERT_TRUE(history->Record({UpdateOf({.version = 1})}).ok());
  Server()->Kill();
  const absl::Time began = absl::Now();
  const absl::Status status = history->Record({UpdateOf({.version = 2})}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(absl::IsUnavailable(history->List({}).status()));
  EXPECT_LT(absl::Now() - began, absl::Seconds(10));
  Server()->Launch();
  EXPECT_TRUE(history->Record({UpdateOf({.version = 2})}).ok());
  EXPECT_EQ(kube::IntAt(history->Find({"default", "", "digits", ""})->object, "/spec/seed"), 2);
}

TEST_F(PostgresHistoryTest, WhoComesWhileOthersMakeTheTablesWaits) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([this, i] {
      const absl::Status status = store_->Open()->Record({UpdateOf({.number = i})}).status();
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->Open()->Present()->size(), 6U);
}

TEST_F(PostgresHistoryTest, ANewerSchemaIsRefusedWithARemedy) {
  ASSERT_TRUE(store_->Open()->Record({UpdateOf({})}).ok());
  ASSERT_TRUE(Change("UPDATE history_schema SET version = 99").ok());
  const absl::Status status = store_->Open()->Record({UpdateOf({})}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("newer Starling"));
}

TEST_F(PostgresHistoryTest, ATableThatOthersHoldIsUnavailableAndNotWaitedForForever) {
  const auto history = store_->Open();
  ASSERT_TRUE(history->Record({UpdateOf({.version = 1})}).ok());
  absl::Status status;
  ASSERT_TRUE(
      database_
          ->Transact(sql::Access::kWrite,
                     [&](sql::Transaction& transaction) -> absl::Status {
                       EXPECT_TRUE(
                           transaction.Run("LOCK TABLE history_jobs IN EXCLUSIVE MODE").ok());
                       status = history->Record({UpdateOf({.version = 2})}).status();
                       return absl::OkStatus();
                     })
          .ok());
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(history->Record({UpdateOf({.version = 2})}).ok());
}

TEST_F(PostgresHistoryTest, WhatIsWrongWithTheUrlIsSaidWithoutItsPassword) {
  EXPECT_TRUE(absl::IsInvalidArgument(postgres::OpenSql({.url = "postgresql://["}).status()));
  const auto nowhere = OpenUrl("postgresql://somebody:hunter2@127.0.0.1:1/none?connect_timeout=2");
  const absl::Status unreachable = nowhere->Record({UpdateOf({})}).status();
  EXPECT_TRUE(absl::IsUnavailable(unreachable)) << unreachable;
  EXPECT_THAT(unreachable.ToString(), Not(HasSubstr("hunter2")));
  EXPECT_THAT(nowhere->name(), Not(HasSubstr("hunter2")));
  const absl::Status missing = OpenUrl(Server()->UrlOf("nosuch"))->Record({UpdateOf({})}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr("createdb"));
}

}  // namespace
}  // namespace starling::history
