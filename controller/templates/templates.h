// SPDX-License-Identifier: Apache-2.0
// Where administrators' templates lie: in a cluster as objects, on one machine as files.
//
//   const auto templates = std::make_shared<templates::FolderTemplates>(home + "/templates");
//   options.admission["TrainingJob"] = kube::AdmitTrainingJobs(templates::Finder(templates));
//
// Nothing is kept between two calls: a template that was changed is the changed one for the next
// job. To add a place: an implementation of Templates.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "api/spec/template.h"
#include "controller/kube/kube_client.h"

namespace starling::templates {

// Thread-safe, all implementations.
class Templates {
 public:
  virtual ~Templates() = default;

  // NotFound, and where it was looked for; other errors: it may be there.
  virtual absl::StatusOr<kube::Json> Find(const spec::TemplateName& name) const = 0;
  // Those that jobs of a namespace may name, by kind and name.
  virtual absl::StatusOr<std::vector<kube::Json>> List(const std::string& ns) const = 0;
};

spec::FindTemplate Finder(std::shared_ptr<const Templates> templates);

// Files of YAML or JSON in a folder, or one such file, each with one template. A TrainingTemplate
// that names a namespace is of that one alone. A file that cannot be read is told to those who ask
// for a template that no other file has.
class FolderTemplates final : public Templates {
 public:
  explicit FolderTemplates(std::string path) : path_(std::move(path)) {}

  absl::StatusOr<kube::Json> Find(const spec::TemplateName& name) const override;
  absl::StatusOr<std::vector<kube::Json>> List(const std::string& ns) const override;

 private:
  const std::string path_;
};

// Objects of an API server. `client` must outlive it.
class ClusterTemplates final : public Templates {
 public:
  explicit ClusterTemplates(kube::KubeClient& client) : client_(client) {}

  absl::StatusOr<kube::Json> Find(const spec::TemplateName& name) const override;
  absl::StatusOr<std::vector<kube::Json>> List(const std::string& ns) const override;

 private:
  kube::KubeClient& client_;
};

}  // namespace starling::templates
