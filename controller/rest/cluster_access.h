// SPDX-License-Identifier: Apache-2.0
// Who may ask what of the service of a cluster: the API server says.
//
// Each request is judged before it is carried out: its token by a TokenReview, its right by
// SubjectAccessReviews (rest::AccessRightsOf). What was found out counts for ten seconds, by the
// token's hash. What writes, and what reads pods, events and logs, is carried out besides by a
// client that has the caller's token and no other credentials, so that admission, quotas and the
// audit log see the person and not this service. A refusal says the same whether or not there is
// such an object. A stream is judged again each minute.
//
// Tokens that nobody knows cost the API server a review each; so many a second are asked about, and
// those that were good before do not wait behind them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "controller/kube/http_kube_client.h"
#include "controller/rest/access.h"
#include "controller/rest/call_limits.h"
#include "controller/rest/token_review.h"

namespace starling::service {

struct ClusterAccessOptions {
  std::string ns = {};  // the only namespace that is served; empty: all are
  std::string audience = "starling";
  absl::Duration remembered = absl::Seconds(10);
  absl::Duration streams_judged_every = absl::Minutes(1);
  double unknown_tokens_per_second = 50;
  std::size_t most_tokens = 10'000;
};

// Thread-safe.
class ClusterAccess final : public Door {
 public:
  // A client of the API server whose only credentials are this token.
  using OpenClient = std::function<absl::StatusOr<std::shared_ptr<kube::HttpKubeClient>>(
      const std::string& token)>;

  // `reviews` asks as this service. What is referred to must outlive it.
  ClusterAccess(kube::KubeClient& reviews, OpenClient open, const clock::Clock& clock,
                ClusterAccessOptions options);

  std::variant<Caller, rest::Problem> Admit(const http::Request& request, const rest::Call& call,
                                            const CheckCaller& check) override;

  // Judges those streams whose time has come, and lets go what is out of date: to be called every
  // few seconds. An API server that is away ends no stream.
  void JudgeStreams();

  std::size_t tokens() const;  // that are remembered

 private:
  struct Known {
    std::optional<Person> person;  // nothing: it is nobody's
    absl::Time until;
    std::shared_ptr<kube::HttpKubeClient> client;
    std::map<Action, std::pair<bool, absl::Time>> answers;
  };
  struct Judged {
    std::weak_ptr<Permit> permit;
    std::string token;
    std::vector<Action> actions;
    absl::Time due;
  };

  std::optional<rest::Problem> CheckOrigin(const http::Request& request,
                                           const rest::Route& route) const;
  std::variant<Person, rest::Problem> WhoIs(const std::string& token);
  std::optional<rest::Problem> CheckRights(const std::string& token, const Person& person,
                                           const std::vector<Action>& actions);
  std::vector<Action> ActionsOf(const rest::Call& call) const;
  absl::StatusOr<bool> May(const std::string& token, const Person& person, const Action& action);
  absl::StatusOr<std::shared_ptr<kube::HttpKubeClient>> ClientOf(const std::string& token);
  void Remember(const std::string& digest, std::optional<Person> person);
  const char* WhyNot(const Judged& judged);
  void Forget();

  kube::KubeClient& reviews_;
  const OpenClient open_;
  const clock::Clock& clock_;
  const ClusterAccessOptions options_;
  CallLimits strangers_;
  mutable sync::Mutex mutex_;
  std::map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);  // by the token's hash
  std::vector<Judged> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::service
