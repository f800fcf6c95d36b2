// SPDX-License-Identifier: Apache-2.0
// Where the pods of a job are, for its headless service: EndpointSlices that the controller writes
// itself, by which the cluster's DNS knows the pods' names.
//
// For a service with a selector Kubernetes' own controllers would do it. They look through all
// services and pods of a namespace with each change of a pod, write a slice and an object of the
// older kind (Endpoints) each time, and read both; for a job of three pods that was a quarter of
// all requests that it caused. Written here it is one or two.
//
// A slice holds pods of one family of addresses and of a hundred indexes, so that a change in a job
// of thousands of pods rewrites a hundredth of them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "controller/resources/names.h"

namespace starling::kubernetes {
class EndpointSlice;
}

namespace starling::resources {

using Json = nlohmann::json;

// The label of those that Starling manages, and its value.
inline constexpr std::string_view kSliceManagerLabel = "endpointslice.kubernetes.io/managed-by";
inline constexpr std::string_view kSliceManager = "controller.starling.dev";

// One address of one pod.
struct PodEndpoint {
  std::string pod;
  std::string uid;
  std::string host;  // its name under the service; empty: it has none of its own
  std::string node;
  std::string address;  // IP

  friend auto operator<=>(const PodEndpoint&, const PodEndpoint&) = default;
};
// By the names of the slices that hold them.
using PodEndpoints = std::map<std::string, std::vector<PodEndpoint>>;

// Adds an endpoint of the pod of that index to the slice that it belongs to.
void AddEndpoint(const JobIdentity& job, std::int64_t index, PodEndpoint endpoint,
                 PodEndpoints& endpoints);

// A slice of that name, as AddEndpoint gave it. `endpoints` are not empty.
kubernetes::EndpointSlice BuildSlice(const JobIdentity& job, std::string_view name,
                                     const std::vector<PodEndpoint>& endpoints);
// A merge patch that puts them in place of those of the slice with this UID.
Json SlicePatch(const std::string& uid, const std::string& ns,
                const std::vector<PodEndpoint>& endpoints);
std::vector<PodEndpoint> ReadSlice(const kubernetes::EndpointSlice& slice);

}  // namespace starling::resources
