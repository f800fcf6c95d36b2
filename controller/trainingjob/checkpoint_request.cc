// SPDX-License-Identifier: Apache-2.0
// A checkpoint that somebody asks for: the annotation's word goes to the coordinator until the
// status says what was written for it. So neither a controller nor a coordinator that dies loses
// it; at worst one checkpoint more is written.
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {

std::string OpenCheckpointRequest(const Pass& pass) {
  const std::string& request = pass.observed.checkpoint_request;
  return request == pass.status.requested_checkpoint().request() ? "" : request;
}

// All have written their parts, but the newest checkpoint is told by whoever speaks for training,
// who may learn of it a little later.
void AnswerCheckpointRequest(Pass& pass) {
  const std::string request = OpenCheckpointRequest(pass);
  if (request.empty() || pass.report == nullptr) return;
  const v1alpha1::CheckpointStatus& newest = pass.status.last_checkpoint();
  if (pass.report->checkpoint_request() != request || !newest.has_name() ||
      newest.step() < pass.report->checkpoint_request_step()) {
    return;
  }
  v1alpha1::RequestedCheckpoint& answer = *pass.status.mutable_requested_checkpoint();
  answer.set_request(request);
  *answer.mutable_checkpoint() = newest;
}

}  // namespace starling::trainingjob
