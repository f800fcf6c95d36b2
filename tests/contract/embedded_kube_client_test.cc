// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/embedded_kube_client.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "common/clock/clock.h"
#include "tests/contract/kube_client_apply_contract.h"
#include "tests/contract/kube_client_contract.h"
#include "tests/contract/kube_client_messages_contract.h"
#include "tests/contract/kube_client_reads_contract.h"

namespace starling::kube {
namespace {

// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "starling-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string File() const { return (path_ / "store.db").string(); }

 private:
  std::filesystem::path path_;
};

class EmbeddedCluster final : public Cluster {
 public:
  enum class Kind { kMemory, kFile, kTwoConnections };

  explicit EmbeddedCluster(Kind kind) {
    EmbeddedOptions options;
    if (kind != Kind::kMemory) options.path = folder_.File();
    writer_ = *OpenEmbeddedKubeClient(clock_, options);
    if (kind == Kind::kTwoConnections) reader_ = *OpenEmbeddedKubeClient(clock_, options);
  }

  KubeClient& writer() override { return *writer_; }
  KubeClient& reader() override { return reader_ ? *reader_ : *writer_; }

 private:
  const clock::SystemClock clock_;
  const Folder folder_;
  std::unique_ptr<KubeClient> writer_;
  std::unique_ptr<KubeClient> reader_;
};

ClusterFactory Factory(const std::string& name, EmbeddedCluster::Kind kind) {
  return {name, [kind] { return std::make_unique<EmbeddedCluster>(kind); }};
}

const auto kStores =
    testing::Values(Factory("Memory", EmbeddedCluster::Kind::kMemory),
                    Factory("File", EmbeddedCluster::Kind::kFile),
                    Factory("TwoConnections", EmbeddedCluster::Kind::kTwoConnections));

INSTANTIATE_TEST_SUITE_P(Embedded, KubeClientContract, kStores, NameOfFactory);
INSTANTIATE_TEST_SUITE_P(Embedded, KubeClientApplyContract, kStores, NameOfFactory);
INSTANTIATE_TEST_SUITE_P(Embedded, KubeClientMessagesContract, kStores, NameOfFactory);

}  // namespace
}  // namespace starling::kube
