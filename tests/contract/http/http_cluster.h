// SPDX-License-Identifier: Apache-2.0
// The API server that KUBECONFIG names, as a cluster for the contract suite.
//
// With STARLING_TEST_FAULTS set the way to it is bad, and its users look after unknown results.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "controller/kube/http_kube_client.h"
#include "tests/contract/http/retrying_kube_client.h"
#include "tests/contract/kube_client_contract.h"

namespace starling::kube {

inline std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class HttpCluster final : public Cluster {
 public:
  HttpCluster() : config_(*LoadKubeconfig({}, Environment)) {
    if (Environment("STARLING_TEST_FAULTS").empty()) return;
    patient_writer_ = std::make_unique<RetryingKubeClient>(*writer_);
    patient_reader_ = std::make_unique<RetryingKubeClient>(*reader_);
  }

  KubeClient& writer() override {
    return patient_writer_ ? *static_cast<KubeClient*>(patient_writer_.get()) : *writer_;
  }
  KubeClient& reader() override {
    return patient_reader_ ? *static_cast<KubeClient*>(patient_reader_.get()) : *reader_;
  }

 private:
  const ClusterConfig config_;
  const std::unique_ptr<HttpKubeClient> writer_ = *OpenHttpKubeClient(config_, {});
  const std::unique_ptr<HttpKubeClient> reader_ = *OpenHttpKubeClient(config_, {});
  std::unique_ptr<RetryingKubeClient> patient_writer_;
  std::unique_ptr<RetryingKubeClient> patient_reader_;
};

}  // namespace starling::kube
