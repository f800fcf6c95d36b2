// SPDX-License-Identifier: Apache-2.0
// Which API server to talk to, and as whom: from a kubeconfig, or from inside a pod.
//
//   ASSIGN_OR_RETURN(ClusterConfig config, LoadKubeconfig({}, environment));
//
// Of a kubeconfig everything is read that says where the server is and how to show who we are:
// certificates and keys (in the file or beside it), tokens, files with tokens. What runs programs
// or sends traffic elsewhere (exec plugins, auth providers, proxies, impersonation) is refused by
// name, never passed over.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace starling::kube {

// Text that stands here, or in a file that is read anew whenever it is needed, for it may rotate.
struct FileOrText {
  std::string file;  // absolute; empty: `text`
  std::string text;

  bool empty() const { return file.empty() && text.empty(); }
  absl::StatusOr<std::string> Read() const;  // at most 1 MiB
};

struct ClusterConfig {
  std::string server;           // https://host:port[/path], or http:// (no certificates, no token)
  FileOrText authority;         // PEM; empty: the system's certificate authorities
  bool insecure = false;        // believe any certificate
  std::string tls_server_name;  // whose certificate it must be, if not the host's
  FileOrText certificate;       // PEM; empty: none
  FileOrText key;               // PEM
  FileOrText token;             // for "Authorization: Bearer"
  std::string ns = "default";   // where objects without a namespace belong
  std::string origin;           // for messages: "context a of /root/.kube/config"
};

using EnvironmentReader = std::function<std::string(const char* name)>;

struct KubeconfigChoice {
  std::string path;     // empty: $KUBECONFIG (several, joined by ':', merged), else ~/.kube/config
  std::string context;  // empty: current-context
};

// NotFound: no such file or context. InvalidArgument: what is wrong with it, or not supported.
absl::StatusOr<ClusterConfig> LoadKubeconfig(const KubeconfigChoice& choice,
                                             const EnvironmentReader& environment);

// From the service account that is mounted into a pod. FailedPrecondition: this is no pod. `folder`
// is /var/run/secrets/kubernetes.io/serviceaccount but in tests.
absl::StatusOr<ClusterConfig> InClusterConfig(
    const EnvironmentReader& environment,
    std::string_view folder = "/var/run/secrets/kubernetes.io/serviceaccount");

}  // namespace starling::kube
