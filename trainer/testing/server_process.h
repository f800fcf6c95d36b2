// SPDX-License-Identifier: Apache-2.0
// For tests: a parameter server as a process of its own, which a test can kill -9, or make kill
// itself at a named place. It is the test's own program, run again: what starling-server has in it,
// with a socket to the test where that has a link to the coordinator.
//
// The test program's main calls ServeAsProcess() when IsServer() says so. Who adds a kind of
// message: a letter below, what the server does with it in Obey(), and a method of ServerProcess.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/clock/clock.h"
#include "common/metrics/metrics.h"
#include "common/net/ports.h"
#include "common/net/socket.h"
#include "common/status/check.h"
#include "common/storage/blob_store.h"
#include "common/sync/mutex.h"
#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/control/options.h"
#include "trainer/membership/convert.h"
#include "trainer/server/server_member.h"
#include "trainer/testing/transports.h"

namespace starling::worker {

inline constexpr int kTestsEnd = 3;  // a server's descriptor of its socket

// One message of the socket: a letter, and what comes with it.
struct Told {
  char kind = 0;
  std::string body;
};
// To the server.
inline constexpr char kSpec = 's', kDirective = 'd', kArm = 'a', kAskMetrics = 'm';
// From it; an answer is a report that a directive has led to.
inline constexpr char kReport = 'r', kAnswer = 'A', kMetrics = 'M';

inline bool Tell(int socket, const Told& told) {
  const auto size = static_cast<std::uint32_t>(told.body.size());
  std::string bytes(1, told.kind);
  bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += told.body;
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t more = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return false;
    sent += static_cast<std::size_t>(more);
  }
  return true;
}

inline bool ReadAll(int socket, char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t more = ::recv(socket, to, size, 0);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return false;
    to += more;
    size -= static_cast<std::size_t>(more);
  }
  return true;
}

// The next message; nothing once the other has ended.
inline std::optional<Told> Hear(int socket) {
  Told told;
  std::uint32_t size = 0;
  if (!ReadAll(socket, &told.kind, 1)) return std::nullopt;
  if (!ReadAll(socket, reinterpret_cast<char*>(&size), sizeof size)) return std::nullopt;
  told.body.resize(size);
  if (!ReadAll(socket, told.body.data(), size)) return std::nullopt;
  return told;
}

inline absl::StatusOr<std::unique_ptr<transport::Transport>> OpenOwnTransport(
    transport::testing::Kind kind, const membership::MemberId& self, const std::string& ip) {
  transport::Options options;
  options.member = control::NameOf(self);
  options.job = "job";
  options.secret = "secret";
  const net::Address address{ip, net::kDataPort};
  return kind == transport::testing::Kind::kTcp ? transport::OpenTcpTransport(address, options)
                                                : transport::OpenMixedTransport(address, options);
}

// --- In the server's process.

inline constexpr std::string_view kServeFlag = "--serve-as-process";

inline bool IsServer(int argc, char** argv) { return argc > 1 && argv[1] == kServeFlag; }

// Confined to main's thread, but for Report().
class OwnServer {
 public:
  OwnServer(v1alpha1::TrainingJobSpec spec, transport::Transport& transport,
            const membership::MemberId& self, const std::string& job_dir)
      : storage_(*storage::Open(checkpoint::JobPlace(spec.checkpoint().uri(), "job", job_dir))),
        // As a crash would, at this very place.
        failpoints_(std::nullopt, [] { ::kill(::getpid(), SIGKILL); }) {
    server::ServerConfig config;
    config.spec = std::move(spec);
    config.job_uid = "job";
    config.job_dir = job_dir;
    config.self = self;
    member_ = std::make_unique<server::ServerMember>(
        config, server::ServerParts{.transport = transport,
                                    .storage = *storage_,
                                    .clock = clock_,
                                    .registry = registry_,
                                    .failpoints = failpoints_,
                                    .notify = [this] { Report(kReport); }});
  }

  // Until the test, or the job, is through with it: then the process has ended.
  [[noreturn]] void Run() {
    Report(kReport);
    std::thread([this] { ::_exit(member_->Run().ok() ? 0 : 1); }).detach();
    while (const std::optional<Told> told = Hear(kTestsEnd)) Obey(*told);
    ::_exit(0);
  }

 private:
  void Obey(const Told& told) {
    if (told.kind == kDirective) {
      v1alpha1::Directive directive;
      STARLING_CHECK(directive.ParseFromString(told.body), "a directive");
      member_->OnDirective(membership::FromProto(directive));
      Report(kAnswer);
    } else if (told.kind == kArm) {
      const auto point = control::ParseFailpoint(told.body);
      STARLING_CHECK(point.ok() && *point, "a failpoint");
      failpoints_.Arm(**point);
    } else {
      Send({kMetrics, registry_.Serialize()});
    }
  }
  void Report(char kind) {
    Send({kind, membership::ToProto(member_->MakeReport()).SerializeAsString()});
  }
  void Send(const Told& told) {
    const sync::MutexLock lock(mutex_);
    (void)Tell(kTestsEnd, told);
  }

  const clock::SystemClock clock_;
  const std::unique_ptr<storage::BlobStore> storage_;
  metrics::Registry registry_;
  control::Failpoints failpoints_;
  sync::Mutex mutex_;  // one message after the other
  std::unique_ptr<server::ServerMember> member_;
};

// Arguments: the flag, the kind of links, the pod's UID, the process's number, address, folder.
inline int ServeAsProcess(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing outlives the test
  membership::MemberId self;
  int kind = 0;
  const bool good =
      argc == 7 && absl::SimpleAtoi(argv[2], &kind) && absl::SimpleAtoi(argv[4], &self.start);
  const std::optional<Told> told = Hear(kTestsEnd);
  v1alpha1::TrainingJobSpec spec;
  if (!good || !told || !spec.ParseFromString(told->body)) return 2;
  self.pod_uid = argv[3];
  const auto transport =
      OpenOwnTransport(static_cast<transport::testing::Kind>(kind), self, argv[5]);
  STARLING_CHECK(transport.ok(), transport.status().ToString().c_str());
  OwnServer(std::move(spec), **transport, self, argv[6]).Run();
}

// --- In the test.

// Thread-safe.
class ServerProcess {
 public:
  // `changed` is called on the thread of Run().
  ServerProcess(transport::testing::Kind kind, const v1alpha1::TrainingJobSpec& spec,
                const membership::MemberId& self, const std::string& ip, const std::string& job_dir,
                std::function<void()> changed)
      : changed_(std::move(changed)) {
    int ends[2] = {-1, -1};
    STARLING_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a pair");
    socket_ = net::FileDescriptor(ends[0]);
    const net::FileDescriptor theirs(ends[1]);
    std::string arguments[] = {
        "server",     std::string(kServeFlag),  absl::StrCat(static_cast<int>(kind)),
        self.pod_uid, absl::StrCat(self.start), ip,
        job_dir};
    char* argv[8] = {};
    for (std::size_t i = 0; i < 7; ++i) argv[i] = arguments[i].data();
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), kTestsEnd);
    const int failed = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    STARLING_CHECK(failed == 0, "a server's process cannot be started");
    STARLING_CHECK(Tell(socket_.get(), {kSpec, spec.SerializeAsString()}), "the spec");
  }
  ~ServerProcess() {
    Kill();
    (void)Reap();
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Hears it until it ends: OK, or what ended it.
  absl::Status Run() {
    while (std::optional<Told> told = Hear(socket_.get())) {
      const sync::MutexLock lock(mutex_);
      if (told->kind == kMetrics) {
        metrics_ = std::move(told->body);
      } else {
        STARLING_CHECK(report_.emplace().ParseFromString(told->body), "a report");
        answered_ = answered_ || told->kind == kAnswer;
      }
      heard_.NotifyAll();
      changed_();
    }
    {
      const sync::MutexLock lock(mutex_);
      gone_ = true;
      heard_.NotifyAll();
    }
    const int status = Reap();
    if (WIFSIGNALED(status)) return absl::AbortedError(absl::StrCat("signal ", WTERMSIG(status)));
    if (WEXITSTATUS(status) == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("exit code ", WEXITSTATUS(status)));
  }

  // It has said something.
  bool heard() const {
    const sync::MutexLock lock(mutex_);
    return report_.has_value();
  }
  membership::Report MakeReport() const {
    const sync::MutexLock lock(mutex_);
    return membership::FromProto(*report_);
  }
  // Left out while it has not answered to the one before: there is always a newer one.
  void OnDirective(const membership::Directive& directive) {
    {
      const sync::MutexLock lock(mutex_);
      if (!std::exchange(answered_, false)) return;
    }
    (void)Tell(socket_.get(), {kDirective, membership::ToProto(directive).SerializeAsString()});
  }
  // As STARLING_FAILPOINT, from now on.
  void Arm(const std::string& failpoint) { (void)Tell(socket_.get(), {kArm, failpoint}); }
  // As a scrape; empty if it ends meanwhile.
  std::string Metrics() {
    (void)Tell(socket_.get(), {kAskMetrics, ""});
    const sync::MutexLock lock(mutex_);
    while (!metrics_ && !gone_) heard_.Wait(mutex_);
    return std::exchange(metrics_, std::nullopt).value_or("");
  }
  void Kill() {
    const sync::MutexLock lock(mutex_);
    if (pid_ > 0) ::kill(pid_, SIGKILL);
  }
  // It stands still, all of it, when this returns; until Resume() or its end.
  void Stop() {
    const sync::MutexLock lock(mutex_);
    if (pid_ <= 0) return;
    ::kill(pid_, SIGSTOP);
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED);
  }
  void Resume() {
    const sync::MutexLock lock(mutex_);
    if (pid_ > 0) ::kill(pid_, SIGCONT);
  }
  // It ends by itself.
  void GraceOver() { ::shutdown(socket_.get(), SHUT_RDWR); }

 private:
  int Reap() {
    int status = 0;
    const pid_t pid = pid_;
    if (pid <= 0) return status;
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
    const sync::MutexLock lock(mutex_);  // nobody signals a pid that may be another's by now
    ::waitpid(pid, &status, 0);
    pid_ = 0;
    return status;
  }

  const std::function<void()> changed_;
  net::FileDescriptor socket_;
  pid_t pid_ = 0;
  mutable sync::Mutex mutex_;
  sync::Condition heard_;
  std::optional<v1alpha1::Report> report_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> metrics_ ABSL_GUARDED_BY(mutex_);
  bool answered_ ABSL_GUARDED_BY(mutex_) = true;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::worker
