// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/cluster_access.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "api/rest/rights.h"
#include "common/bytes/bytes.h"

namespace starling::service {
namespace {

constexpr absl::Duration kGoodBefore = absl::Hours(1);  // then a token is a stranger's again
constexpr char kTokenExpired[] = "TokenExpired";
constexpr char kForbiddenNow[] = "Forbidden";

rest::Problem Unjudgeable(const absl::Status& status) {
  rest::Problem problem = rest::MakeProblem("Unavailable", std::string(status.message()));
  problem.headers.emplace_back("Retry-After", "1");
  return problem;
}

// https://host:port of the very host that was asked.
bool IsSameOrigin(std::string_view origin, std::string_view host) {
  const std::size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos || host.empty()) return false;
  const std::string_view from = origin.substr(scheme + 3);
  return absl::EqualsIgnoreCase(absl::string_view(from.data(), from.size()),
                                absl::string_view(host.data(), host.size()));
}

std::string DigestOf(const std::string& token) { return bytes::Sha256Hex(token); }

}  // namespace

ClusterAccess::ClusterAccess(kube::KubeClient& reviews, OpenClient open, const clock::Clock& clock,
                             ClusterAccessOptions options)
    : reviews_(reviews),
      open_(std::move(open)),
      clock_(clock),
      options_(std::move(options)),
      strangers_(clock, {.reads_per_second = options_.unknown_tokens_per_second}) {}

std::optional<rest::Problem> ClusterAccess::CheckOrigin(const http::Request& request,
                                                        const rest::Route& route) const {
  const std::string_view origin = request.Header("Origin");
  if (!route.writes() || origin.empty() || IsSameOrigin(origin, request.Header("Host"))) {
    return std::nullopt;
  }
  return rest::MakeProblem("ForeignOrigin", "a page of another server may not write here");
}

std::variant<Person, rest::Problem> ClusterAccess::WhoIs(const std::string& token) {
  const std::string digest = DigestOf(token);
  const absl::Time now = clock_.Now();
  bool good_before = false;
  {
    sync::MutexLock lock(mutex_);
    const auto found = known_.find(digest);
    if (found != known_.end()) {
      good_before = found->second.person.has_value();
      if (now < found->second.until) {
        if (good_before) return *found->second.person;
        return Unauthorized("nobody has this token, or it has expired");
      }
    }
  }
  if (!good_before && strangers_.Take("", /*writes=*/false) > absl::ZeroDuration()) {
    rest::Problem problem =
        rest::MakeProblem("TooManyRequests", "too many tokens that nobody has seen before");
    problem.headers.emplace_back("Retry-After", "1");
    return problem;
  }
  auto person = ReviewToken(reviews_, token, options_.audience);
  if (!person.ok()) return Unjudgeable(person.status());
  Remember(digest, *person);
  if (!*person) return Unauthorized("nobody has this token, or it has expired");
  return **std::move(person);
}

void ClusterAccess::Remember(const std::string& digest, std::optional<Person> person) {
  sync::MutexLock lock(mutex_);
  if (known_.size() >= options_.most_tokens && !known_.contains(digest)) {
    std::erase_if(known_, [](const auto& entry) { return !entry.second.person; });
    if (known_.size() >= options_.most_tokens) known_.clear();
  }
  Known& known = known_[digest];
  // Whoever the token is of now, what was allowed to whom it was of is judged anew.
  if (!person || !known.person || known.person->name != person->name) known = {};
  known.person = std::move(person);
  known.until = clock_.Now() + options_.remembered;
}

absl::StatusOr<bool> ClusterAccess::May(const std::string& token, const Person& person,
                                        const Action& action) {
  const std::string digest = DigestOf(token);
  const absl::Time now = clock_.Now();
  {
    sync::MutexLock lock(mutex_);
    const auto known = known_.find(digest);
    if (known != known_.end()) {
      const auto answer = known->second.answers.find(action);
      if (answer != known->second.answers.end() && now < answer->second.second) {
        return answer->second.first;
      }
    }
  }
  absl::StatusOr<bool> allowed = ReviewAccess(reviews_, person, action);
  if (!allowed.ok()) return allowed;
  sync::MutexLock lock(mutex_);
  const auto known = known_.find(digest);
  if (known == known_.end()) return allowed;
  constexpr std::size_t kMostAnswers = 1000;
  auto& answers = known->second.answers;
  if (answers.size() >= kMostAnswers) answers.clear();
  answers[action] = {*allowed, now + options_.remembered};
  return allowed;
}

std::optional<rest::Problem> ClusterAccess::CheckRights(const std::string& token,
                                                        const Person& person,
                                                        const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    const absl::StatusOr<bool> allowed = May(token, person, action);
    if (!allowed.ok()) return Unjudgeable(allowed.status());
    if (*allowed) continue;
    return rest::MakeProblem("Forbidden",
                             absl::StrCat("\"", person.name, "\" may not ", action.ToString()));
  }
  return std::nullopt;
}

// What is asked about is the namespace and the job that the path names. Pods and events have other
// names: they are asked about as a whole.
std::vector<Action> ClusterAccess::ActionsOf(const rest::Call& call) const {
  std::vector<Action> actions;
  for (const rest::AccessRight& right : rest::AccessRightsOf(*call.route)) {
    Action action;
    action.verb = std::string(right.verb);
    action.group = std::string(right.group);
    action.resource = std::string(right.resource);
    action.subresource = std::string(right.subresource);
    action.ns = call.ns.empty() ? options_.ns : call.ns;
    if (right.group == kube::kTrainingJob.group) action.name = call.name;
    actions.push_back(std::move(action));
  }
  return actions;
}

absl::StatusOr<std::shared_ptr<kube::HttpKubeClient>> ClusterAccess::ClientOf(
    const std::string& token) {
  const std::string digest = DigestOf(token);
  {
    sync::MutexLock lock(mutex_);
    const auto known = known_.find(digest);
    if (known != known_.end() && known->second.client != nullptr) return known->second.client;
  }
  absl::StatusOr<std::shared_ptr<kube::HttpKubeClient>> client = open_(token);
  if (!client.ok()) return client;
  sync::MutexLock lock(mutex_);
  const auto known = known_.find(digest);
  if (known != known_.end()) known->second.client = *client;
  return client;
}

std::variant<Caller, rest::Problem> ClusterAccess::Admit(const http::Request& request,
                                                         const rest::Call& call,
                                                         const CheckCaller& check) {
  const rest::Route& route = *call.route;
  if (auto problem = CheckOrigin(request, route)) return *std::move(problem);
  if (route.right.everybody()) return Caller{};
  auto given = BearerToken(request);
  if (auto* problem = std::get_if<rest::Problem>(&given)) return std::move(*problem);
  const std::string& token = std::get<std::string>(given);
  if (token.empty() || !http::IsHeaderText(token) || token.find_first_of(" \t") != token.npos) {
    return Unauthorized("the token is empty or has spaces in it");
  }
  auto who = WhoIs(token);
  if (auto* problem = std::get_if<rest::Problem>(&who)) return std::move(*problem);
  const Person& person = std::get<Person>(who);
  if (auto problem = check(person.name)) return *std::move(problem);
  Caller caller{.name = person.name};
  const bool own_token = rest::NeedsOwnToken(route);
  if (own_token && person.ours_alone) {
    return rest::MakeProblem(
        "Forbidden",
        absl::StrCat("a token for the audience ", options_.audience, " reads jobs only"),
        "use a token that the API server takes");
  }
  if (!options_.ns.empty() && !call.ns.empty() && call.ns != options_.ns) {
    return rest::MakeProblem("Forbidden",
                             "this service is for the namespace " + options_.ns + " alone");
  }
  const std::vector<Action> actions = ActionsOf(call);
  if (auto problem = CheckRights(token, person, actions)) return *std::move(problem);
  if (own_token) {
    auto client = ClientOf(token);
    if (!client.ok()) return Unjudgeable(client.status());
    caller.client = *std::move(client);
  }
  if (call.Flag("watch") || call.Flag("follow")) {
    auto permit = std::make_shared<Permit>();
    sync::MutexLock lock(mutex_);
    streams_.push_back({permit, token, actions, clock_.Now() + options_.streams_judged_every});
    caller.permit = std::move(permit);
  }
  return caller;
}

// Null: nothing speaks against it, as far as anybody can judge.
const char* ClusterAccess::WhyNot(const Judged& judged) {
  const auto who = WhoIs(judged.token);
  const auto* person = std::get_if<Person>(&who);
  if (person == nullptr) {
    return std::get<rest::Problem>(who).status() == 401 ? kTokenExpired : nullptr;
  }
  for (const Action& action : judged.actions) {
    if (!May(judged.token, *person, action).value_or(true)) return kForbiddenNow;
  }
  return nullptr;
}

void ClusterAccess::Forget() {
  const absl::Time now = clock_.Now();
  sync::MutexLock lock(mutex_);
  for (auto& [digest, known] : known_) {
    if (now < known.until) continue;
    known.client = nullptr;
    known.answers.clear();
  }
  std::erase_if(known_, [now](const auto& entry) {
    const Known& known = entry.second;
    return now >= known.until && (!known.person || now - known.until > kGoodBefore);
  });
}

void ClusterAccess::JudgeStreams() {
  Forget();
  std::vector<Judged> due;
  {
    const absl::Time now = clock_.Now();
    sync::MutexLock lock(mutex_);
    std::erase_if(streams_, [](const Judged& judged) { return judged.permit.expired(); });
    for (Judged& judged : streams_) {
      if (now < judged.due) continue;
      judged.due = now + options_.streams_judged_every;
      due.push_back(judged);
    }
  }
  for (const Judged& judged : due) {
    const std::shared_ptr<Permit> permit = judged.permit.lock();
    if (permit == nullptr) continue;
    if (const char* reason = WhyNot(judged)) permit->End(reason);
  }
}

std::size_t ClusterAccess::tokens() const {
  sync::MutexLock lock(mutex_);
  return known_.size();
}

}  // namespace starling::service
