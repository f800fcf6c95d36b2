// SPDX-License-Identifier: Apache-2.0
// What every command needs of the world: terminal, clock, folders, the store, Ctrl-C.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/spec/template.h"
#include "cli/arguments.h"
#include "cli/home.h"
#include "cli/interrupts.h"
#include "cli/rest_client.h"
#include "cli/terminal.h"
#include "common/clock/clock.h"
#include "controller/kube/cluster_config.h"
#include "controller/kube/http_kube_client.h"

namespace starling::cli {

// Confined to the main thread.
class Session {
 public:
  Session(Terminal& terminal, const clock::Clock& clock, const Interrupts& interrupts, Home home,
          std::string program_folder)
      : terminal_(terminal),
        clock_(clock),
        interrupts_(interrupts),
        home_(std::move(home)),
        program_folder_(std::move(program_folder)) {}

  Terminal& terminal() { return terminal_; }
  const clock::Clock& clock() const { return clock_; }
  const Interrupts& interrupts() const { return interrupts_; }
  const Home& home() const { return home_; }
  const std::string& program_folder() const { return program_folder_; }

  // Templates lie there instead of in the home's folder.
  void UseTemplates(std::string path) { templates_ = std::move(path); }
  // On this machine; where others admit jobs, they know their templates.
  spec::FindTemplate FindsTemplates() const;

  // Makes the session one with a cluster instead of with this machine's home.
  void UseCluster(kube::ClusterConfig cluster) { cluster_ = std::move(cluster); }
  bool in_cluster() const { return cluster_.has_value(); }
  // Or one with a REST service.
  void UseServer(RestServer server) { server_ = std::move(server); }
  bool over_rest() const { return server_.has_value(); }
  bool remote() const { return in_cluster() || over_rest(); }
  // Whether those who train see the files that we see.
  bool sees_files() const { return !remote() || (over_rest() && server_->local); }
  // Between two looks at what is awaited: whoever is asked over a network is asked less often.
  absl::Duration poll() const { return absl::Milliseconds(remote() ? 250 : 30); }
  // The namespace of jobs for which neither the file nor the command line names one.
  std::string default_namespace() const { return cluster_ ? cluster_->ns : "default"; }

  // Opened when first asked for; it stays the session's.
  absl::StatusOr<kube::KubeClient*> Store();
  // Of a session over REST; FailedPrecondition otherwise.
  absl::StatusOr<RestClient*> Rest();
  // The same, or this home's own service. FailedPrecondition: its control plane is not up.
  absl::StatusOr<RestClient*> RestOrHome();
  // Of a cluster; FailedPrecondition on this machine, where logs are files.
  absl::StatusOr<kube::PodLogs*> Logs();

  // Says what is wrong, on stderr; returns the exit code for it.
  int Fail(const absl::Status& status);

 private:
  absl::Status OpenCluster();

  Terminal& terminal_;
  const clock::Clock& clock_;
  const Interrupts& interrupts_;
  const Home home_;
  const std::string program_folder_;
  std::string templates_;  // empty: the home's folder
  std::optional<kube::ClusterConfig> cluster_;
  std::optional<RestServer> server_;
  std::unique_ptr<kube::HttpKubeClient> remote_;  // in a cluster
  std::unique_ptr<RestClient> rest_;              // over REST
  std::unique_ptr<kube::KubeClient> store_;       // on this machine
};

// The cluster that the command line or STARLING_KUBECONFIG chooses; nothing: this machine.
absl::StatusOr<std::optional<kube::ClusterConfig>> ChooseCluster(
    const Arguments& arguments, const EnvironmentReader& environment);

// The REST service that --server or STARLING_SERVER chooses; nothing: none. Its token is that of
// --token-file, of STARLING_TOKEN, else of the home whose service it is, else of the pod.
absl::StatusOr<std::optional<RestServer>> ChooseServer(const Arguments& arguments,
                                                       const EnvironmentReader& environment,
                                                       const Home& home);

// --templates, where it is given; InvalidArgument where somebody else admits jobs.
absl::Status UseTemplates(Session& session, const Arguments& arguments);

// -n, by default "default" (RunProgram puts the context's namespace there).
std::string NamespaceOf(const Arguments& arguments);

// The key of a job as users write it: digits, tj/digits, trainingjob/digits, job/digits, jobs/...
kube::ObjectKey JobKey(const Arguments& arguments, std::string_view name);

// The name without a kind before it ("pod/x" -> "x"); the kind, if any, in `kind`.
std::string WithoutKind(std::string_view name, std::string* kind = nullptr);

// A duration flag in Go's form; `otherwise` if it is not given.
absl::StatusOr<absl::Duration> DurationFlag(const Arguments& arguments, std::string_view flag,
                                            absl::Duration otherwise);

}  // namespace starling::cli
