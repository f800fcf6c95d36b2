// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/access.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/storage/file_blob_store.h"

namespace starling::service {
namespace {

constexpr std::size_t kTokenBytes = 32;
constexpr char kOwner[] = "owner";

bool IsOurHost(std::string_view host, int port) {
  for (const char* name : {"127.0.0.1", "localhost", "[::1]"}) {
    if (absl::EqualsIgnoreCase(absl::string_view(host.data(), host.size()),
                               absl::StrCat(name, ":", port))) {
      return true;
    }
  }
  return false;
}

// Of the server's own page, or none.
bool IsOurOrigin(std::string_view origin, int port) {
  constexpr std::string_view kScheme = "http://";
  return origin.empty() ||
         (origin.starts_with(kScheme) && IsOurHost(origin.substr(kScheme.size()), port));
}

bool SameSecret(std::string_view given, std::string_view secret) {
  const bytes::Digest a = bytes::Sha256Of(bytes::View(given));
  const bytes::Digest b = bytes::Sha256Of(bytes::View(secret));
  return bytes::ConstantTimeEqual(a, b);
}

std::string Hexadecimal(const std::string& bytes) {
  return bytes::ToHex({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

// Empty: it cannot be trusted, or is none.
std::string ReadToken(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return "";
  struct stat status {};
  char text[4 * kTokenBytes] = {};
  const bool safe = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                    (status.st_mode & 077U) == 0 && status.st_uid == ::geteuid();
  const ssize_t size = safe ? ::read(file, text, sizeof(text)) : 0;
  ::close(file);
  std::string token(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  absl::StripAsciiWhitespace(&token);
  return token.size() >= kTokenBytes && http::IsToken(token) ? token : "";
}

absl::Status WriteToken(const std::string& path, const std::string& token) {
  const auto failed = [&path] {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  };
  const std::string temporary = path + ".new";
  ::unlink(temporary.c_str());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return failed();
  const std::string text = token + "\n";
  const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool synced = written && ::fsync(file) == 0;
  if (::close(file) != 0 || !synced) return failed();
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return failed();
  return storage::SyncAbove(path);
}

}  // namespace

rest::Problem Unauthorized(std::string detail) {
  rest::Problem problem = rest::MakeProblem("Unauthorized", std::move(detail));
  problem.headers.emplace_back("WWW-Authenticate", "Bearer");
  return problem;
}

std::variant<std::string, rest::Problem> BearerToken(const http::Request& request) {
  std::string_view given = request.Header("Authorization");
  if (given.empty()) return Unauthorized("the request carries no token");
  constexpr std::string_view kScheme = "Bearer ";
  if (given.size() < kScheme.size() ||
      !absl::EqualsIgnoreCase(absl::string_view(given.data(), kScheme.size()),
                              absl::string_view(kScheme.data(), kScheme.size()))) {
    return Unauthorized("the Authorization header must be: Bearer TOKEN");
  }
  given.remove_prefix(kScheme.size());
  return std::string(given);
}

std::variant<std::monostate, rest::Problem> CheckHost(const http::Request& request,
                                                      const AccessRules& rules) {
  if (IsOurHost(request.Header("Host"), rules.port)) return std::monostate();
  return rest::MakeProblem("ForeignHost", "the Host header must be that of this server",
                           absl::StrCat("ask http://127.0.0.1:", rules.port));
}

std::variant<Caller, rest::Problem> Admit(const http::Request& request, const rest::Route& route,
                                          const AccessRules& rules) {
  if (route.writes() && !IsOurOrigin(request.Header("Origin"), rules.port)) {
    return rest::MakeProblem("ForeignOrigin", "a page of another server may not write here");
  }
  if (request.Header("Authorization").empty() && route.right.everybody()) return Caller{};
  auto given = BearerToken(request);
  if (auto* problem = std::get_if<rest::Problem>(&given)) return std::move(*problem);
  if (!SameSecret(std::get<std::string>(given), rules.token)) {
    return Unauthorized("the token is not the one of this home");
  }
  return Caller{.name = kOwner};
}

absl::StatusOr<std::string> EnsureToken(const std::string& path) {
  std::string token = ReadToken(path);
  if (!token.empty()) return token;
  token = Hexadecimal(bytes::RandomBytes(kTokenBytes));
  if (absl::Status written = WriteToken(path, token); !written.ok()) return written;
  return token;
}

}  // namespace starling::service
