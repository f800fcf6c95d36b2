// SPDX-License-Identifier: Apache-2.0
// Starling's REST service behind KubeClient's door: the third place where a job can live.
//
//   ASSIGN_OR_RETURN(auto client, OpenRestClient({.url = "https://starling.example", ...}));
//
// REST knows jobs, and of each job its pods and events; everything that it cannot do is
// Unimplemented, with what to do instead. Jobs pass the same contract suite as those of the other
// two implementations (tests/contract/rest).
//
// To add what REST learns: its method here, and if its answers fail in a new way a line in the
// table of rest_problem.cc.
#pragma once

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "cli/event_stream.h"
#include "common/http/http_client.h"
#include "controller/kube/cluster_config.h"
#include "controller/kube/kube_client.h"

namespace starling::cli {

struct RestServer {
  std::string url;             // https://host[:port][/path], or http://
  kube::FileOrText token;      // empty: none is sent
  kube::FileOrText authority;  // PEM, for https; empty: the system's authorities
  bool local = false;          // it is this home's own, and sees the same files
};

// The status that a problem+json means, in its words: each wrong field on a line of its own, as
// `starling validate` prints them, else what happened and what to do.
absl::Status StatusOfProblem(const http::Response& answer);

// Of a pod of ours: digits-worker-0 is of digits; empty: no pod of ours has such a name.
std::string JobOfPod(std::string_view pod);

// Thread-safe.
class RestClient final : public kube::KubeClient {
 public:
  explicit RestClient(std::unique_ptr<http::HttpClient> http) : http_(std::move(http)) {}

  absl::StatusOr<kube::Json> Get(const kube::ResourceKind& kind,
                                 const kube::ObjectKey& key) override;
  // Of jobs one request for each, beside those for the list.
  absl::StatusOr<kube::ObjectList> List(const kube::ResourceKind& kind, std::string_view ns,
                                        const kube::ListOptions& options) override;
  // Of one job, by metadata.name. States, not changes: a slow reader gets the newest one.
  absl::StatusOr<std::unique_ptr<kube::WatchStream>> Watch(
      const kube::ResourceKind& kind, std::string_view ns,
      const kube::WatchOptions& options) override;
  absl::StatusOr<kube::Json> Create(const kube::ResourceKind& kind,
                                    const kube::Json& object) override;
  absl::StatusOr<kube::Json> Update(const kube::ResourceKind& kind,
                                    const kube::Json& object) override;
  absl::StatusOr<kube::Json> UpdateStatus(const kube::ResourceKind& kind,
                                          const kube::Json& object) override;
  absl::StatusOr<kube::Json> Patch(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                                   const kube::Json& patch) override;
  absl::StatusOr<kube::Json> PatchStatus(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                                         const kube::Json& patch) override;
  absl::StatusOr<kube::Json> Apply(const kube::ResourceKind& kind, const kube::Json& object,
                                   const kube::ApplyOptions& options) override;
  absl::StatusOr<kube::Json> DryRunCreate(const kube::ResourceKind& kind,
                                          const kube::Json& object) override;
  absl::StatusOr<bool> Serves(const kube::ResourceKind& kind) override;
  absl::StatusOr<kube::Json> Delete(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                                    const kube::DeleteOptions& options) override;
  absl::StatusOr<kube::Json> GetScale(const kube::ResourceKind& kind,
                                      const kube::ObjectKey& key) override;
  absl::StatusOr<kube::Json> UpdateScale(const kube::ResourceKind& kind,
                                         const kube::Json& scale) override;

  // The job with preset and defaults filled in; InvalidArgument names each wrong field. Nothing is
  // stored.
  absl::StatusOr<kube::Json> Validate(const kube::Json& object);
  // What it would take, and what jobs have taken: docs/reference/rest.md has the answers' fields.
  // No namespace: of all.
  absl::StatusOr<kube::Json> Plan(const kube::Json& object);
  absl::StatusOr<kube::Json> Usage(std::string_view ns, const std::string& from,
                                   const std::string& to);
  // What is known of a job: its "pods", "events" or "incidents".
  absl::StatusOr<std::vector<kube::Json>> PartsOf(const kube::ObjectKey& job,
                                                  std::string_view part);
  // Jobs that were deleted, the newest `most` of them, newest first; of all namespaces if `ns` is
  // empty. One request for each.
  absl::StatusOr<std::vector<kube::Json>> PastJobs(std::string_view ns, std::size_t most);
  // One of them, the newest of its name unless `uid` says which: "job", and "events" and "metrics"
  // as REST answers.
  absl::StatusOr<kube::Json> PastJob(const kube::ObjectKey& job, std::string_view uid);
  // What was recorded of a job's time, packed, and the request that it was for. NotFound: nothing.
  absl::StatusOr<std::string> Trace(const kube::ObjectKey& job, std::string& request);
  // Lines of a job's pods as events `log` with "pod" and "line"; of one pod if `pod` is not empty.
  std::unique_ptr<EventStream> Logs(const kube::ObjectKey& job, std::string_view pod, bool follow,
                                    std::optional<std::int64_t> tail);

 private:
  absl::StatusOr<kube::Json> Ask(http::Request request);
  // Of all pages, or until there are `most`; `include` is REST's.
  absl::StatusOr<std::vector<kube::Json>> Summaries(
      std::string_view ns, const kube::Selection& selection, std::string& version,
      std::string_view include = "live",
      std::size_t most = std::numeric_limits<std::size_t>::max());
  absl::StatusOr<kube::ObjectList> ListJobs(std::string_view ns, const kube::Selection& selection);
  absl::StatusOr<kube::ObjectList> ListParts(const kube::ResourceKind& kind, std::string_view ns,
                                             const kube::Selection& selection);
  absl::StatusOr<kube::Json> Submit(const kube::Json& object, bool dry_run);

  const std::unique_ptr<http::HttpClient> http_;
};

// InvalidArgument, NotFound: the address, the token or the certificates are wrong. Talks to nobody
// yet.
absl::StatusOr<std::unique_ptr<RestClient>> OpenRestClient(const RestServer& server);

}  // namespace starling::cli
