// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/history/postgres_server.h"

#include <fcntl.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status/check.h"

namespace starling::history {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kStart = absl::Seconds(60);

// The newest that Debian's packages or PATH have.
std::string FindPrograms() {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& version : fs::directory_iterator("/usr/lib/postgresql", error)) {
    if (fs::exists(version.path() / "bin/initdb", error)) found.push_back(version.path() / "bin");
  }
  std::sort(found.begin(), found.end());
  return found.empty() ? "" : found.back();
}

// The server refuses to be root: then it is its package's user, or nobody.
const passwd* UserOfServer() {
  const passwd* user = ::getpwnam("postgres");
  return user != nullptr ? user : ::getpwnam("nobody");
}

// In a child that is no longer root; it ends with its parent.
pid_t Spawn(const std::vector<std::string>& words, const std::string& log) {
  const bool root = ::geteuid() == 0;
  const passwd* user = root ? UserOfServer() : nullptr;
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setpgid(0, 0);
  const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  ::dup2(output, 1);
  ::dup2(output, 2);
  if (root && (::setgid(user->pw_gid) != 0 || ::setuid(user->pw_uid) != 0)) ::_exit(126);
  ::prctl(PR_SET_PDEATHSIG, SIGQUIT);
  if (::chdir("/") != 0) ::_exit(126);
  ::setenv("LC_ALL", "C.UTF-8", 1);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

std::unique_ptr<PostgresServer> PostgresServer::Start() {
  const std::string programs = FindPrograms();
  if (programs.empty()) {
    std::fprintf(stderr, "SKIPPED: no PostgreSQL server: install postgresql-15\n");
    return nullptr;
  }
  std::string folder = "/tmp/starling-pg-XXXXXX";  // a socket's path is short
  STARLING_CHECK(::mkdtemp(folder.data()) != nullptr, "a temporary folder can be made");
  if (::geteuid() == 0) {
    const passwd* user = UserOfServer();
    STARLING_CHECK(::chown(folder.c_str(), user->pw_uid, user->pw_gid) == 0,
                   "root gives a folder away");
  }
  std::unique_ptr<PostgresServer> server(new PostgresServer(folder, programs));
  const pid_t made = Spawn({programs + "/initdb", "-D", folder + "/data", "-U", "starling", "-A",
                            "trust", "--no-sync", "-E", "UTF8", "--no-instructions"},
                           folder + "/log");
  int status = 1;
  ::waitpid(made, &status, 0);
  STARLING_CHECK(status == 0, "initdb makes a database; its log lies beside it");
  server->Launch();
  return server;
}

void PostgresServer::Launch() {
  pid_ = Spawn({programs_ + "/postgres", "-D", folder_ + "/data", "-k", folder_, "-c",
                "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"},
               folder_ + "/log");
  AwaitReady();
}

void PostgresServer::AwaitReady() const {
  const absl::Time deadline = absl::Now() + kStart;
  while (true) {
    PGconn* connection = PQconnectdb(UrlOf("postgres").c_str());
    const bool ready = PQstatus(connection) == CONNECTION_OK;
    PQfinish(connection);
    if (ready) return;
    STARLING_CHECK(absl::Now() < deadline, "the server answers; its log lies beside its data");
    absl::SleepFor(absl::Milliseconds(20));
  }
}

void PostgresServer::End(int signal) {
  if (pid_ <= 0) return;
  ::kill(pid_, signal);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

// SIGQUIT: at once, without a checkpoint, and its children with it.
void PostgresServer::Kill() { End(SIGQUIT); }
void PostgresServer::Stop() { End(SIGINT); }

PostgresServer::~PostgresServer() {
  Kill();
  std::error_code error;
  fs::remove_all(folder_, error);
}

std::string PostgresServer::UrlOf(const std::string& database) const {
  return absl::StrCat("postgresql://starling@/", database, "?host=", folder_);
}

std::string PostgresServer::MakeDatabase() {
  const std::string name = absl::StrCat("test", ++databases_);
  PGconn* connection = PQconnectdb(UrlOf("postgres").c_str());
  PGresult* result =
      PQexec(connection, absl::StrCat("CREATE DATABASE ", name, " TEMPLATE template0").c_str());
  STARLING_CHECK(PQresultStatus(result) == PGRES_COMMAND_OK, "a database can be made");
  PQclear(result);
  PQfinish(connection);
  return UrlOf(name);
}

}  // namespace starling::history
