// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/inproc_transport.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/socket.h"
#include "common/status/macros.h"
#include "trainer/transport/fitting.h"
#include "trainer/transport/stream_transport.h"

namespace starling::transport {

// Who is reachable: the acceptors of living transports, by address. Thread-safe.
class InprocNetwork::Switch {
 public:
  // Until the acceptor is there, and from its end on, the address refuses connections.
  absl::Status Reserve(const std::string& address) {
    sync::MutexLock lock(mutex_);
    if (acceptors_.emplace(address, nullptr).second) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat("member ", address, " has a transport already"));
  }
  void Plug(const std::string& address, Acceptor* acceptor) {
    sync::MutexLock lock(mutex_);
    acceptors_[address] = acceptor;
  }
  void Unplug(const std::string& address) {
    sync::MutexLock lock(mutex_);
    acceptors_.erase(address);
  }

  absl::StatusOr<net::FileDescriptor> Connect(const std::string& address) {
    sync::MutexLock lock(mutex_);
    const auto found = acceptors_.find(address);
    if (found == acceptors_.end() || found->second == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("cannot connect to ", address, ": no such transport in this process"));
    }
    ASSIGN_OR_RETURN(auto ends, net::SocketPair());
    found->second->Inject(std::move(ends.second));
    return std::move(ends.first);
  }

 private:
  sync::Mutex mutex_;
  std::map<std::string, Acceptor*> acceptors_ ABSL_GUARDED_BY(mutex_);
};

namespace {

template <typename Switch>
class InprocConnector final : public Connector {
 public:
  explicit InprocConnector(std::shared_ptr<Switch> owner) : switch_(std::move(owner)) {}

  absl::StatusOr<net::FileDescriptor> Start(const std::string& address) override {
    return switch_->Connect(address);
  }
  absl::Status Result(const net::FileDescriptor&, const std::string&) override {
    return absl::OkStatus();
  }
  std::unique_ptr<Fitting> Fit(Connection connection, std::size_t) override {
    return std::make_unique<SocketFitting>(std::move(connection.socket));
  }

 private:
  const std::shared_ptr<Switch> switch_;
};

template <typename Switch>
class InprocTransport final : public StreamTransport {
 public:
  InprocTransport(std::shared_ptr<Switch> owner, const Options& options)
      : StreamTransport({}, options.member, std::make_unique<InprocConnector<Switch>>(owner),
                        options),
        switch_(std::move(owner)) {
    switch_->Plug(address(), &acceptor());
  }
  ~InprocTransport() override { switch_->Unplug(address()); }

 private:
  const std::shared_ptr<Switch> switch_;
};

}  // namespace

InprocNetwork::InprocNetwork() : switch_(std::make_shared<Switch>()) {}
InprocNetwork::~InprocNetwork() = default;

absl::StatusOr<std::unique_ptr<Transport>> InprocNetwork::OpenTransport(const Options& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(switch_->Reserve(options.member));
  return std::make_unique<InprocTransport<Switch>>(switch_, options);
}

}  // namespace starling::transport
