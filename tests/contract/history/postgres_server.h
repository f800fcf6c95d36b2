// SPDX-License-Identifier: Apache-2.0
// A PostgreSQL server of the test's own: its data in a temporary folder, a unix socket beside it,
// no port. It ends with the test, however that ends.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

namespace starling::history {

// Confined to one thread.
class PostgresServer {
 public:
  // Null: no server is installed, which is said on stderr with the package's name.
  static std::unique_ptr<PostgresServer> Start();
  ~PostgresServer();

  // Ends it as a power cut would, or lets it end its connections in order.
  void Kill();
  void Stop();
  void Launch();  // again, on the same data

  // A new, empty database. Its URL.
  std::string MakeDatabase();
  std::string UrlOf(const std::string& database) const;

 private:
  PostgresServer(std::string folder, std::string programs)
      : folder_(std::move(folder)), programs_(std::move(programs)) {}

  void AwaitReady() const;
  void End(int signal);

  const std::string folder_;
  const std::string programs_;
  pid_t pid_ = -1;
  int databases_ = 0;
};

}  // namespace starling::history
