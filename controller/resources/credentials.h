// SPDX-License-Identifier: Apache-2.0
// What the members of a job prove themselves with, all of it derived from the controller's seed.
//
// The seed is 32 random bytes that are made once per home and kept in a Secret of the controller's.
// A job's data-plane key and the key of its certificate authority follow from seed and job UID
// alone (HKDF). So a new leader needs nothing from the old one, and a Secret of a job that somebody
// deleted comes back with the same keys, under which the pods of before and after understand each
// other. Leaves are new each time; none is ever taken back, for they end with their job's UID.
// Their names are tls::PeerName(role, job UID).
//
// A leaf is good for ten years, since jobs are not. After that new connections fail, standing ones
// go on; deleting the job's Secret has it made anew, for pods that start afterwards.
//
// To add a role: a row in kRoles of credentials.cc.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/tls/tls.h"
#include "controller/resources/names.h"

namespace starling::kube {
class KubeClient;
}
namespace starling::kubernetes {
class Secret;
}

namespace starling::resources {

// Whether the job has parameter servers, which need a leaf of their own.
enum class Servers { kNone, kSome };

struct JobCredentials {
  std::string data_plane_key;
  std::string authority;                 // the job's certificate authority, PEM
  std::map<Role, tls::Identity> leaves;  // of each role
};

// FailedPrecondition: the seed is shorter than 32 bytes.
absl::StatusOr<JobCredentials> MakeJobCredentials(std::string_view seed, std::string_view job_uid,
                                                  absl::Time now, Servers servers = Servers::kNone);

// The controller's own, for its stream to the job's coordinator. It is kept nowhere.
absl::StatusOr<tls::Identity> MakeControllerIdentity(std::string_view seed,
                                                     std::string_view job_uid, absl::Time now);

// The data-plane key alone, as hexadecimal text.
std::string DataPlaneKey(std::string_view seed, std::string_view job_uid);

// Whether `secret` is whole and was made from this seed for this job. One that was not cannot be
// used: nobody would accept its leaves.
bool SecretFits(const kubernetes::Secret& secret, std::string_view seed, std::string_view job_uid,
                Servers servers = Servers::kNone);

// The home's seed; made and stored in the first call of all. Whoever comes second takes what is
// there. InvalidArgument: what is there is no seed.
absl::StatusOr<std::string> EnsureSeed(kube::KubeClient& client,
                                       std::string_view ns = kControllerNamespace);

}  // namespace starling::resources
