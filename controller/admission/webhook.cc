// SPDX-License-Identifier: Apache-2.0
#include "controller/admission/webhook.h"

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/http/http_server.h"
#include "common/http/server_certificate.h"
#include "common/json/json.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "common/sync/mutex.h"
#include "controller/admission/certificates.h"
#include "controller/admission/creator.h"
#include "controller/admission/review.h"
#include "controller/admission/shared_secret.h"
#include "controller/admission/template_review.h"
#include "controller/kube/kube_client.h"
#include "controller/templates/templates.h"

namespace starling::admission {
namespace {

using kube::Json;

constexpr int kThreads = 4;  // to look a template up is to ask the API server
constexpr int kTries = 5;    // of a write that another replica was faster with

std::string Text(const absl::Status& status) { return std::string(status.message()); }

http::Response Serve(const http::Request& request,
                     const std::map<std::string, Reviewer, std::less<>>& reviewers) {
  const auto reviewer = reviewers.find(request.Path());
  if (reviewer == reviewers.end()) {
    return {.status = 404, .body = "not found\n", .headers = {}};
  }
  if (request.method != "POST") {
    return {.status = 405, .body = "send a POST\n", .headers = {{"Allow", "POST"}}};
  }
  const auto review = ReviewText(request.body, reviewer->second);
  if (!review.ok()) {
    return {.status = 400, .body = absl::StrCat(Text(review.status()), "\n"), .headers = {}};
  }
  return {.status = 200,
          .body = json::Dump(*review),
          .content_type = "application/json",
          .headers = {}};
}

// Puts `bundle` into every webhook of `configuration` that calls our service; whether it changed.
bool SetBundle(Json& configuration, const std::string& ns, const std::string& service,
               const std::string& bundle) {
  bool changed = false;
  const auto webhooks = configuration.find("webhooks");
  if (webhooks == configuration.end() || !webhooks->is_array()) return false;
  for (Json& webhook : *webhooks) {
    Json& config = webhook["clientConfig"];
    const Json target = config.value("service", Json::object());
    if (target.value("name", "") != service || target.value("namespace", "") != ns) continue;
    if (config.value("caBundle", "") == bundle) continue;
    config["caBundle"] = bundle;
    changed = true;
  }
  return changed;
}

}  // namespace

class Webhook::Core {
 public:
  Core(kube::KubeClient& client, const clock::Clock& clock, WebhookOptions options)
      : client_(client),
        clock_(clock),
        options_(std::move(options)),
        policy_{.dns_names = ServiceNames(options_.service, options_.ns),
                .authority_life = options_.authority_life,
                .leaf_life = options_.leaf_life} {}

  ~Core() {
    {
      sync::MutexLock lock(mutex_);
      stopping_ = true;
      stopped_.NotifyAll();
    }
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start();
  absl::Status Check();
  int port() const { return server_->port(); }
  bool ready() const {
    sync::MutexLock lock(mutex_);
    return ready_;
  }

 private:
  absl::Status Publish(const std::string& bundle);
  absl::Status PublishIn(const kube::ResourceKind& kind, const std::string& encoded);
  void Run();

  kube::KubeClient& client_;
  const clock::Clock& clock_;
  const WebhookOptions options_;
  const CertificatePolicy policy_;
  std::shared_ptr<http::ServerCertificate> certificate_;
  std::unique_ptr<http::HttpServer> server_;

  sync::Mutex checking_;  // one look at a time
  std::string served_ ABSL_GUARDED_BY(checking_);
  mutable sync::Mutex mutex_;
  sync::Condition stopped_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

absl::Status Webhook::Core::Publish(const std::string& bundle) {
  const std::string encoded = absl::Base64Escape(bundle);
  RETURN_IF_ERROR(PublishIn(kube::kValidatingWebhookConfiguration, encoded));
  return PublishIn(kube::kMutatingWebhookConfiguration, encoded);
}

absl::Status Webhook::Core::PublishIn(const kube::ResourceKind& kind, const std::string& encoded) {
  absl::Status last;
  for (int i = 0; i < kTries; ++i) {
    auto found = client_.Get(kind, {"", options_.configuration});
    if (absl::IsNotFound(found.status())) return absl::OkStatus();  // nobody calls us
    if (!found.ok()) return found.status();
    if (!SetBundle(*found, options_.ns, options_.service, encoded)) return absl::OkStatus();
    last = client_.Update(kind, *found).status();
    if (last.ok()) {
      log::Info("webhook authority published", {{"kind", kind.kind}});
    }
    if (!absl::IsAborted(last)) return last;
  }
  return last;
}

absl::Status Webhook::Core::Check() {
  sync::MutexLock checking(checking_);
  ASSIGN_OR_RETURN(
      const ServingCertificate current,
      SharedCertificate(client_, clock_, {options_.ns, options_.secret}, policy_, "webhook"));
  const absl::Status published = Publish(current.bundle);
  if (certificate_ == nullptr) {
    ASSIGN_OR_RETURN(certificate_,
                     http::ServerCertificate::Create(current.certificate, current.key));
    served_ = current.certificate;
  }
  // The bundle first: until the API server knows it, the leaf before is the one that it accepts.
  RETURN_IF_ERROR(published);
  if (served_ != current.certificate) {
    RETURN_IF_ERROR(certificate_->Replace(current.certificate, current.key));
    served_ = current.certificate;
    log::Info("webhook certificate replaced", {});
  }
  sync::MutexLock lock(mutex_);
  ready_ = true;
  return absl::OkStatus();
}

absl::Status Webhook::Core::Start() {
  absl::Status first = Check();
  if (certificate_ == nullptr) return first;
  if (!first.ok()) {
    log::Warning("webhook authority not published yet; trying again", {{"error", Text(first)}});
  }
  http::HttpServerOptions server;
  server.address = options_.address;
  server.port = options_.port;
  server.body_limit = kLargestReview;
  server.max_connections = options_.max_connections;
  server.certificate = certificate_;
  server.handler_threads = kThreads;
  const spec::FindTemplate find =
      templates::Finder(std::make_shared<templates::ClusterTemplates>(client_));
  std::map<std::string, Reviewer, std::less<>> reviewers = {
      {kReviewPath, Review},
      {kCreatorPath, NoteCreator},
      {kTemplatePath, [find](const Json& review) { return LayTemplate(review, find); }}};
  ASSIGN_OR_RETURN(server_, http::HttpServer::Start(
                                std::move(server),
                                [reviewers = std::move(reviewers)](const http::Request& request) {
                                  return Serve(request, reviewers);
                                }));
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void Webhook::Core::Run() {
  absl::Duration pause = ready() ? options_.check_every : options_.retry_after;
  std::string told;
  while (true) {
    {
      sync::MutexLock lock(mutex_);
      const absl::Time until = absl::Now() + pause;
      while (!stopping_ && absl::Now() < until) stopped_.WaitFor(mutex_, until - absl::Now());
      if (stopping_) return;
    }
    const absl::Status status = Check();
    pause = status.ok() ? options_.check_every : options_.retry_after;
    const std::string text = Text(status);
    if (text != told && !status.ok()) {
      log::Error("webhook certificates cannot be kept; trying again", {{"error", text}});
    }
    told = text;
  }
}

absl::StatusOr<std::unique_ptr<Webhook>> Webhook::Start(kube::KubeClient& client,
                                                        const clock::Clock& clock,
                                                        WebhookOptions options) {
  auto core = std::make_unique<Core>(client, clock, std::move(options));
  RETURN_IF_ERROR(core->Start());
  return std::unique_ptr<Webhook>(new Webhook(std::move(core)));
}

Webhook::Webhook(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Webhook::~Webhook() = default;

int Webhook::port() const { return core_->port(); }
bool Webhook::ready() const { return core_->ready(); }
absl::Status Webhook::Check() { return core_->Check(); }

}  // namespace starling::admission
