// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/http/http_cluster.h"
#include "tests/contract/kube_client_apply_contract.h"
#include "tests/contract/kube_client_contract.h"
#include "tests/contract/kube_client_messages_contract.h"
#include "tests/contract/kube_client_reads_contract.h"

namespace starling::kube {
namespace {

const auto kServer =
    testing::Values(ClusterFactory{"Http", [] { return std::make_unique<HttpCluster>(); }});

INSTANTIATE_TEST_SUITE_P(ApiServer, KubeClientContract, kServer, NameOfFactory);
INSTANTIATE_TEST_SUITE_P(ApiServer, KubeClientApplyContract, kServer, NameOfFactory);
INSTANTIATE_TEST_SUITE_P(ApiServer, KubeClientMessagesContract, kServer, NameOfFactory);

}  // namespace
}  // namespace starling::kube
