// SPDX-License-Identifier: Apache-2.0
// What a job's pods have written, in a cluster: logs as the API server hands them out to the
// caller, the model from a volume that this service has, too, else as a place to fetch it from.
//
// Logs are read with the caller's own token, container by container, so that who may not read them
// gets none, whatever this service may. A follower waits for pods that are not there yet and reads
// those that come later too.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controller/rest/job_files.h"

namespace starling::service {

// A volume of jobs, as their pods name it and as it is mounted here.
struct ModelPlace {
  std::string path;    // where their pods mount it, such as /checkpoints
  std::string folder;  // where it is here, absolute
};

// URI=FOLDER, as a flag has it. InvalidArgument: what it must be.
absl::StatusOr<ModelPlace> ParseModelPlace(std::string_view text);

class ClusterJobFiles final : public JobFiles {
 public:
  // `clock` must outlive it and the logs that it opens.
  explicit ClusterJobFiles(const clock::Clock& clock, std::vector<ModelPlace> places = {})
      : clock_(clock), places_(std::move(places)) {}

  // InvalidArgument: the request has no client of the caller's.
  absl::StatusOr<std::shared_ptr<http::BodyStream>> Logs(const kube::Json& job,
                                                         LogRequest request) const override;
  // A model lies on a volume of the job's. Where that is one of the places it is read there, and of
  // them only what is in the folder of this job's UID, whatever its status or spec name: nobody
  // reads another's by writing its URI into a job of theirs. Else the error says where it is and
  // how to fetch it.
  absl::StatusOr<OpenFile> Model(const kube::Json& job) const override;

 private:
  const clock::Clock& clock_;
  const std::vector<ModelPlace> places_;
};

// Whole lines of all pods as they come: as text, with the pod's name before each where several are
// asked for, or as events. At most 1 MiB/s. Thread-compatible.
class ClusterLogStream final : public http::BodyStream {
 public:
  // Of the job `key`. The request must have a client.
  ClusterLogStream(kube::ObjectKey key, std::string uid, const clock::Clock& clock,
                   LogRequest request);

  Piece Next() override;
  void Drain() override { draining_ = true; }
  bool ReadsFiles() const override { return true; }  // it waits for the API server

 private:
  struct Source {
    std::string pod;
    std::unique_ptr<kube::LogStream> stream;  // null: it has ended
    std::string rest;                         // a line that is not whole yet
  };

  absl::Status LookForPods();
  absl::Status Open(const std::string& uid, const kube::Json& pod);
  bool Read(Source& source, std::string& text);
  std::string Say(const Source& source, std::string_view lines) const;
  Piece End(Piece piece, std::string_view reason) const;

  const kube::ObjectKey key_;
  const std::string uid_;
  const clock::Clock& clock_;
  const LogRequest request_;
  const absl::Time deadline_;
  absl::Time last_said_;
  absl::Time next_look_ = absl::InfinitePast();
  std::map<std::string, Source> sources_;  // by the pod's UID
  bool draining_ = false;
};

}  // namespace starling::service
