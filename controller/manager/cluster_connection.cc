// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/cluster_connection.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "api/telemetry/metric_table.h"
#include "common/status/macros.h"
#include "common/sync/mutex.h"
#include "controller/kube/http_kube_client.h"
#include "controller/runtime/token_bucket.h"
#include "controller/version/version.h"

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

// Counts a cluster's requests. Each metric is looked up once, for its names and labels would cost
// more than the rest of what is done around a request. Thread-safe.
class RequestMetrics {
 public:
  RequestMetrics(metrics::Registry& registry, std::string host)
      : registry_(registry), host_(std::move(host)) {}

  void Observe(const http::Observation& seen) {
    Of of = Find(std::string(seen.method), seen.status);
    of.requests.Increment();
    of.seconds.Observe(absl::ToDoubleSeconds(seen.latency));
  }

 private:
  struct Of {
    metrics::Counter requests;
    metrics::Histogram seconds;
  };

  Of Find(std::string method, int status) {
    const sync::MutexLock lock(mutex_);
    const auto [place, added] = known_.try_emplace({std::move(method), status});
    if (added) place->second = Add(place->first.first, status);
    return place->second;
  }

  Of Add(const std::string& method, int status) const {
    const std::string code = status == 0 ? "<error>" : absl::StrCat(status);
    return {telemetry::AddCounter(registry_, "rest_client_requests_total",
                                  {{"code", code}, {"host", host_}, {"method", method}}),
            telemetry::AddHistogram(registry_, "rest_client_request_duration_seconds",
                                    {{"host", host_}, {"verb", method}})};
  }

  metrics::Registry& registry_;
  const std::string host_;
  sync::Mutex mutex_;
  std::map<std::pair<std::string, int>, Of> known_ ABSL_GUARDED_BY(mutex_);  // by method, status
};

kube::HttpKubeClientOptions ClientOptions(const kube::ClusterConfig& config,
                                          metrics::Registry& registry) {
  kube::HttpKubeClientOptions options;
  options.field_manager = "starling-controller";
  options.transport.headers = {{"User-Agent", "starling-controller/" + version::Current()}};
  options.transport.most_idle_connections = 32;
  const auto counted = std::make_shared<RequestMetrics>(registry, HostOf(config.server));
  options.transport.observe = [counted](const http::Observation& seen) { counted->Observe(seen); };
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
  client.transport.headers = {{"User-Agent", "starling-api/" + version::Current()}};
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
