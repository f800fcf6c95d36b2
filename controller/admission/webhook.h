// SPDX-License-Identifier: Apache-2.0
// The webhooks as they run in the controller, the validating one (review.h) and the mutating ones
// (creator.h, template_review.h): an HTTPS server, its certificates, and the caBundle by which the
// API server knows them.
//
// Every replica of the controller serves, leader or not. Each looks at the certificates' Secret at
// its start and then every minute: who first finds them missing or due writes new ones (the others
// see the conflict and take them), publishes the authority in both configurations, and only then
// serves with the new leaf, without a restart. The server bounds what a stranger can make it hold:
// size of a request, its time, connections.
//
//   ASSIGN_OR_RETURN(webhook, admission::Webhook::Start(client, clock, {.ns = pod_namespace}));
//   readyz: webhook->ready()      main: keep it until after the manager has stopped
//
// The configuration's failurePolicy is Ignore, but for jobs that name a template: the schema's own
// rules still hold while no controller answers, jobs can be submitted through an outage, and what
// slips past is given a Failed condition by the reconciler.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock/clock.h"

namespace starling::kube {
class KubeClient;
}

namespace starling::admission {

inline constexpr int kWebhookPort = 9443;  // as kubebuilder's controllers serve it
inline constexpr char kReviewPath[] = "/validate-starling-dev-v1alpha1-trainingjob";
inline constexpr char kCreatorPath[] = "/mutate-starling-dev-v1alpha1-trainingjob";
inline constexpr char kTemplatePath[] = "/template-starling-dev-v1alpha1-trainingjob";

struct WebhookOptions {
  std::string ns = "starling-system";
  std::string service = "starling-webhook";
  std::string secret = "starling-webhook-certificate";
  // Of the ValidatingWebhookConfiguration and the MutatingWebhookConfiguration.
  std::string configuration = "starling";
  std::string address;      // "": every one of this machine
  int port = kWebhookPort;  // 0: any free one, see Webhook::port()
  int max_connections = 32;
  absl::Duration check_every = absl::Minutes(1);
  absl::Duration retry_after = absl::Seconds(5);
  absl::Duration authority_life = absl::Hours(24) * 3650;
  absl::Duration leaf_life = absl::Hours(24) * 90;
};

// Thread-safe.
class Webhook {
 public:
  // Finds or makes the certificates and serves until it is destroyed. `client` and `clock` must
  // outlive it. Errors: of the client, and UNAVAILABLE where the port cannot be bound.
  static absl::StatusOr<std::unique_ptr<Webhook>> Start(kube::KubeClient& client,
                                                        const clock::Clock& clock,
                                                        WebhookOptions options);
  ~Webhook();
  Webhook(const Webhook&) = delete;
  Webhook& operator=(const Webhook&) = delete;

  int port() const;
  // Whether the API server has been told of the certificate that is served.
  bool ready() const;
  // Looks at the certificates now, as it does every minute: for tests.
  absl::Status Check();

 private:
  class Core;
  explicit Webhook(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace starling::admission
