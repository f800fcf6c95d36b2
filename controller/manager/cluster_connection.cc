// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/cluster_connection.h"

#include <cstdlib>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "api/telemetry/metric_table.h"
#include "common/status/macros.h"
#include "common/sync/mutex.h"
#include "controller/kube/http_kube_client.h"
#include "controller/manager/version.h"
#include "controller/runtime/token_bucket.h"

namespace starling::manager {
namespace {

// A request of REST waits for so long at most; webhooks may take some of it.
constexpr absl::Duration kServiceTimeout = absl::Seconds(15);

// Thread-safe.
class SharedBucket {
 public:
  SharedBucket(double per_second, double burst) : bucket_(per_second, burst) {}
  absl::Duration Take() {
    sync::MutexLock lock(mutex_);
    return bucket_.Take(absl::Now());
  }

 private:
  sync::Mutex mutex_;
  runtime::TokenBucket bucket_ ABSL_GUARDED_BY(mutex_);
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<kube::ClusterConfig> LoadConfig(const ClusterOptions& options) {
  const bool in_pod = !Environment("KUBERNETES_SERVICE_HOST").empty();
  if (options.kubeconfig.empty() && options.context.empty() && in_pod) {
    return kube::InClusterConfig(Environment);
  }
  return kube::LoadKubeconfig({.path = options.kubeconfig, .context = options.context},
                              Environment);
}

// The host and port of "https://host:port/path".
std::string HostOf(const std::string& server) {
  const std::size_t begin = server.find("://");
  const std::string rest = begin == std::string::npos ? server : server.substr(begin + 3);
  return rest.substr(0, rest.find('/'));
}

kube::HttpKubeClientOptions ClientOptions(const kube::ClusterConfig& config,
                                          metrics::Registry& registry) {
  kube::HttpKubeClientOptions options;
  options.field_manager = "starling-controller";
  options.transport.headers = {{"User-Agent", "starling-controller/" + Version()}};
  options.transport.most_idle_connections = 32;
  options.transport.observe = [&registry,
                               host = HostOf(config.server)](const http::Observation& seen) {
    const std::string code = seen.status == 0 ? "<error>" : absl::StrCat(seen.status);
    const std::string method(seen.method);
    telemetry::AddCounter(registry, "rest_client_requests_total",
                          {{"code", code}, {"host", host}, {"method", method}})
        .Increment();
    telemetry::AddHistogram(registry, "rest_client_request_duration_seconds",
                            {{"host", host}, {"verb", method}})
        .Observe(absl::ToDoubleSeconds(seen.latency));
  };
  return options;
}

}  // namespace

absl::StatusOr<ClusterConnection> ConnectToCluster(const ClusterOptions& options,
                                                   metrics::Registry& registry) {
  ASSIGN_OR_RETURN(const kube::ClusterConfig config, LoadConfig(options));
  ClusterConnection connection;
  kube::HttpKubeClientOptions client = ClientOptions(config, registry);
  // A lease that cannot be renewed immediately is tried again, several times within the deadline.
  client.transport.timeout = options.election.renew_deadline / 3;
  ASSIGN_OR_RETURN(connection.lease_client, kube::OpenHttpKubeClient(config, client));
  client.transport.timeout = absl::Seconds(30);
  const auto bucket = std::make_shared<SharedBucket>(options.kube_api_qps,
                                                     static_cast<double>(options.kube_api_burst));
  client.transport.take_token = [bucket] { return bucket->Take(); };
  ASSIGN_OR_RETURN(connection.client, kube::OpenHttpKubeClient(config, client));
  return connection;
}

absl::StatusOr<ServiceConnection> ConnectAsService(const ClusterOptions& options,
                                                   metrics::Registry& registry) {
  ASSIGN_OR_RETURN(kube::ClusterConfig config, LoadConfig(options));
  kube::HttpKubeClientOptions client = ClientOptions(config, registry);
  client.field_manager = "starling-api";
  client.transport.headers = {{"User-Agent", "starling-api/" + Version()}};
  client.transport.timeout = kServiceTimeout;
  kube::HttpKubeClientOptions of_callers = client;
  of_callers.transport.most_idle_connections = 2;
  const auto bucket = std::make_shared<SharedBucket>(options.kube_api_qps,
                                                     static_cast<double>(options.kube_api_burst));
  client.transport.take_token = [bucket] { return bucket->Take(); };
  ServiceConnection connection;
  ASSIGN_OR_RETURN(connection.client, kube::OpenHttpKubeClient(config, std::move(client)));
  // What proves who this service is must not prove it for a caller.
  config.certificate = {};
  config.key = {};
  config.token = {};
  connection.open_as =
      [config = std::move(config), options = std::move(of_callers)](
          const std::string& token) -> absl::StatusOr<std::shared_ptr<kube::HttpKubeClient>> {
    kube::ClusterConfig of_caller = config;
    of_caller.token.text = token;
    return kube::OpenHttpKubeClient(std::move(of_caller), options);
  };
  return connection;
}

}  // namespace starling::manager
