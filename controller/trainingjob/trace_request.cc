// SPDX-License-Identifier: Apache-2.0
// A timeline that somebody asks for: the annotation's word goes to the coordinator until what it
// has recorded for it is stored, in a ConfigMap of the job's. So neither a controller nor a
// coordinator that dies loses it; at worst it is recorded once more.
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {

std::string OpenTraceRequest(const Pass& pass) {
  const std::string& request = pass.observed.trace_request;
  return request == pass.observed.trace_stored ? "" : request;
}

void AnswerTraceRequest(Pass& pass) {
  const std::string request = OpenTraceRequest(pass);
  if (request.empty() || pass.report == nullptr) return;
  if (pass.report->trace_request() != request || pass.report->trace().empty()) return;
  pass.decision.actions.push_back(StoreTrace{request, pass.report->trace()});
}

}  // namespace starling::trainingjob
