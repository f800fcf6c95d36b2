// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/endpoints.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/ports.h"
#include "controller/kube/message_json.h"
#include "controller/kube/messages.h"
#include "controller/resources/objects.h"
#include "kubernetes/objects.pb.h"

namespace starling::resources {
namespace {

constexpr std::int64_t kIndexesPerSlice = 100;

bool IsIpv6(std::string_view address) { return address.find(':') != std::string_view::npos; }

kubernetes::Endpoint ToMessage(const std::string& ns, const PodEndpoint& endpoint) {
  kubernetes::Endpoint message;
  message.add_addresses(endpoint.address);
  // Ready or not, the service publishes it.
  message.mutable_conditions()->set_ready(true);
  if (!endpoint.host.empty()) message.set_hostname(endpoint.host);
  if (!endpoint.node.empty()) message.set_node_name(endpoint.node);
  kubernetes::ObjectReference& pod = *message.mutable_target_ref();
  pod.set_kind("Pod");
  pod.set_ns(ns);
  pod.set_name(endpoint.pod);
  pod.set_uid(endpoint.uid);
  return message;
}

}  // namespace

void AddEndpoint(const JobIdentity& job, std::int64_t index, PodEndpoint endpoint,
                 PodEndpoints& endpoints) {
  const char* family = IsIpv6(endpoint.address) ? "-ipv6-" : "-ipv4-";
  const std::string name = absl::StrCat(job.name, family, index / kIndexesPerSlice);
  endpoints[name].push_back(std::move(endpoint));
}

kubernetes::EndpointSlice BuildSlice(const JobIdentity& job, std::string_view name,
                                     const std::vector<PodEndpoint>& endpoints) {
  kubernetes::EndpointSlice slice;
  *slice.mutable_metadata() = Owned(job, Text(name));
  auto& labels = *slice.mutable_metadata()->mutable_labels();
  labels["kubernetes.io/service-name"] = ServiceName(job.name);
  // Kubernetes' own controllers leave alone what somebody else manages, and a node's proxy does not
  // even read what is headless.
  labels[Text(kSliceManagerLabel)] = Text(kSliceManager);
  labels["service.kubernetes.io/headless"] = "";
  slice.set_address_type(IsIpv6(endpoints.front().address) ? "IPv6" : "IPv4");
  kubernetes::EndpointPort& port = *slice.add_ports();
  port.set_name("metrics");
  port.set_port(net::kMetricsPort);
  port.set_protocol("TCP");
  for (const PodEndpoint& endpoint : endpoints) {
    *slice.add_endpoints() = ToMessage(job.ns, endpoint);
  }
  return slice;
}

Json SlicePatch(const std::string& uid, const std::string& ns,
                const std::vector<PodEndpoint>& endpoints) {
  kubernetes::EndpointSlice slice;
  for (const PodEndpoint& endpoint : endpoints) *slice.add_endpoints() = ToMessage(ns, endpoint);
  Json patch = kube::ToJson(slice);
  patch["metadata"]["uid"] = uid;
  return patch;
}

std::vector<PodEndpoint> ReadSlice(const kubernetes::EndpointSlice& slice) {
  std::vector<PodEndpoint> endpoints;
  for (const kubernetes::Endpoint& message : slice.endpoints()) {
    PodEndpoint& endpoint = endpoints.emplace_back();
    endpoint.pod = message.target_ref().name();
    endpoint.uid = message.target_ref().uid();
    endpoint.host = message.hostname();
    endpoint.node = message.node_name();
    if (message.addresses_size() > 0) endpoint.address = message.addresses(0);
  }
  return endpoints;
}

}  // namespace starling::resources
