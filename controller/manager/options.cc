// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/options.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "controller/admission/webhook.h"
#include "controller/scheduling/gang.h"

namespace starling::manager {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status Wrong(const std::string& value, const char* remedy) {
  return absl::InvalidArgumentError(absl::StrCat("\"", value, "\": must be ", remedy));
}

absl::Status SetLevel(const std::string& text, log::Level& level) {
  constexpr std::pair<const char*, log::Level> kLevels[] = {{"debug", log::Level::kDebug},
                                                            {"info", log::Level::kInfo},
                                                            {"warning", log::Level::kWarning},
                                                            {"error", log::Level::kError}};
  for (const auto& [name, value] : kLevels) {
    if (text == name) {
      level = value;
      return absl::OkStatus();
    }
  }
  return Wrong(text, "debug, info, warning or error");
}

absl::Status SetDuration(const std::string& text, absl::Duration least, absl::Duration& duration) {
  if (!absl::ParseDuration(text, &duration) || duration < least) {
    return Wrong(text, "a duration such as 2s or 500ms, and not shorter than 100ms");
  }
  return absl::OkStatus();
}

absl::Status SetBool(const std::string& text, bool& value) {
  return absl::SimpleAtob(text, &value) ? absl::OkStatus() : Wrong(text, "true or false");
}

absl::Status SetCount(const std::string& text, std::int64_t most, std::int64_t& value) {
  if (absl::SimpleAtoi(text, &value) && value >= 1 && value <= most) return absl::OkStatus();
  return Wrong(text, absl::StrCat("a whole number from 1 to ", most).c_str());
}

absl::Status SetText(const std::string& text, std::string& value) {
  value = text;
  return absl::OkStatus();
}

absl::Status SetRate(const std::string& text, double& value) {
  if (absl::SimpleAtod(text, &value) && value >= 0 && value <= 1e6) return absl::OkStatus();
  return Wrong(text, "a number of requests a second, 0 for no limit");
}

// "[host]:port" or "0".
absl::Status SetAddress(const std::string& text, std::string& value) {
  int port = 0;
  const std::size_t colon = text.rfind(':');
  const bool valid = text == "0" || (colon != std::string::npos &&
                                     absl::SimpleAtoi(text.substr(colon + 1), &port) && port >= 0 &&
                                     port <= 65535);
  return valid ? SetText(text, value) : Wrong(text, "[HOST]:PORT, such as :8080, or 0 for none");
}

struct Flag {
  const char* name;
  const char* value;  // as --help shows it; null: true if nothing is given
  const char* help;
  absl::Status (*set)(const std::string& value, Options& options);
};

constexpr absl::Duration kShortest = absl::Milliseconds(100);

const Flag kBoth[] = {
    {"--coordinator-silence", "2s", "replace a coordinator that is silent for this long",
     [](const std::string& value, Options& options) {
       return SetDuration(value, kShortest, options.coordinator_silence);
     }},
    {"--log-level", "info", "debug, info, warning or error",
     [](const std::string& value, Options& options) { return SetLevel(value, options.log_level); }},
    {"--zap-log-level", "info", "the same, as kubebuilder's controllers call it",
     [](const std::string& value, Options& options) { return SetLevel(value, options.log_level); }},
};

const Flag kLocal[] = {
    {"--home", "FOLDER", "where store, job folders and lock lie (STARLING_HOME)",
     [](const std::string& value, Options& options) {
       options.home = std::filesystem::absolute(value).lexically_normal().string();
       return absl::OkStatus();
     }},
    {"--exit-when-idle", nullptr, "exit once no job is active for two seconds",
     [](const std::string& value, Options& options) {
       return SetBool(value, options.exit_when_idle);
     }},
};

const Flag kCluster[] = {
    {"--kubeconfig", "FILE", "which cluster, and as whom (KUBECONFIG, or the pod's own account)",
     [](const std::string& value, Options& options) {
       return SetText(value, options.cluster.kubeconfig);
     }},
    {"--context", "NAME", "of the kubeconfig, unlike its current one",
     [](const std::string& value, Options& options) {
       return SetText(value, options.cluster.context);
     }},
    {"--namespace", "NAME", "look at the jobs of one namespace only (WATCH_NAMESPACE)",
     [](const std::string& value, Options& options) { return SetText(value, options.cluster.ns); }},
    {"--image", "IMAGE", "of job pods whose template names none (STARLING_IMAGE)",
     [](const std::string& value, Options& options) {
       return SetText(value, options.cluster.image);
     }},
    {"--leader-elect", nullptr, "of several controllers let one act (true; --leader-elect=false)",
     [](const std::string& value, Options& options) {
       return SetBool(value, options.cluster.leader_elect);
     }},
    {"--leader-election-namespace", "NAME", "where the lease is (POD_NAMESPACE, starling-system)",
     [](const std::string& value, Options& options) {
       return SetText(value, options.cluster.election.ns);
     }},
    {"--leader-elect-lease-duration", "15s", "others wait for so long before they take it",
     [](const std::string& value, Options& options) {
       return SetDuration(value, kShortest, options.cluster.election.duration);
     }},
    {"--leader-elect-renew-deadline", "10s", "a leader that cannot renew for so long stops",
     [](const std::string& value, Options& options) {
       return SetDuration(value, kShortest, options.cluster.election.renew_deadline);
     }},
    {"--leader-elect-retry-period", "2s", "between two tries",
     [](const std::string& value, Options& options) {
       return SetDuration(value, kShortest, options.cluster.election.retry);
     }},
    {"--metrics-bind-address", ":8080", "where /metrics is; 0: nowhere",
     [](const std::string& value, Options& options) {
       return SetAddress(value, options.cluster.metrics_bind_address);
     }},
    {"--health-probe-bind-address", ":8081", "where /healthz and /readyz are; 0: nowhere",
     [](const std::string& value, Options& options) {
       return SetAddress(value, options.cluster.health_probe_bind_address);
     }},
    {"--kube-api-qps", "200", "requests a second to the API server; 0: no limit of ours",
     [](const std::string& value, Options& options) {
       return SetRate(value, options.cluster.kube_api_qps);
     }},
    {"--kube-api-burst", "400", "requests at once",
     [](const std::string& value, Options& options) {
       return SetCount(value, 1'000'000, options.cluster.kube_api_burst);
     }},
    {"--concurrent-reconciles", "8", "jobs that are looked at at the same time",
     [](const std::string& value, Options& options) {
       return SetCount(value, 256, options.cluster.concurrent_reconciles);
     }},
    {"--webhook-port", "9443", "where jobs are validated (in a pod); 0: nowhere",
     [](const std::string& value, Options& options) {
       if (value == "0") {
         options.cluster.webhook_port = 0;
         return absl::OkStatus();
       }
       return SetCount(value, 65535, options.cluster.webhook_port);
     }},
    {"--gang-scheduler", "auto", "auto (what is installed), none, coscheduling, volcano or native",
     [](const std::string& value, Options& options) {
       if (!scheduling::IsGangSchedulerName(value)) {
         return Wrong(value, "auto, none, coscheduling, volcano or native");
       }
       return SetText(value, options.cluster.scheduling.gang_scheduler);
     }},
    {"--gang-scheduler-name", "NAME", "schedulerName of gangs' pods, where it has one of its own",
     [](const std::string& value, Options& options) {
       return SetText(value, options.cluster.scheduling.gang_scheduler_name);
     }},
    {"--sync-period", "10m", "look at each job so often even if nothing changes",
     [](const std::string& value, Options& options) {
       return SetDuration(value, kShortest, options.cluster.resync);
     }},
};

const Flag* FindFlag(const std::string& name, bool& of_a_cluster) {
  of_a_cluster = false;
  const auto named = [&name](const Flag& flag) { return name == flag.name; };
  const Flag* found = std::find_if(std::begin(kBoth), std::end(kBoth), named);
  if (found != std::end(kBoth)) return found;
  found = std::find_if(std::begin(kLocal), std::end(kLocal), named);
  if (found != std::end(kLocal)) return found;
  found = std::find_if(std::begin(kCluster), std::end(kCluster), named);
  of_a_cluster = found != std::end(kCluster);
  return of_a_cluster ? found : nullptr;
}

template <std::size_t N>
std::string Describe(const Flag (&flags)[N]) {
  std::string text;
  for (const Flag& flag : flags) {
    std::string line = absl::StrCat("  ", flag.name, flag.value == nullptr ? "" : " ",
                                    flag.value == nullptr ? "" : flag.value);
    if (line.size() < 37) line.resize(37, ' ');
    absl::StrAppend(&text, line, "  ", flag.help, "\n");
  }
  return text;
}

// Which home, where the command line leaves it open.
absl::Status ChooseHome(bool of_a_cluster, Options& options) {
  if (!options.home.empty()) {
    if (!of_a_cluster) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--home is for one machine, but a flag of a cluster is given with it; leave one out");
  }
  if (of_a_cluster || !Environment("KUBERNETES_SERVICE_HOST").empty()) return absl::OkStatus();
  if (const std::string home = Environment("STARLING_HOME"); !home.empty()) {
    options.home = std::filesystem::absolute(home).lexically_normal().string();
    return absl::OkStatus();
  }
  if (!Environment("KUBECONFIG").empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--home: must be given (or STARLING_HOME be set) to run jobs on this machine, or "
      "--kubeconfig to run them in a cluster");
}

void FillFromEnvironment(ClusterOptions& cluster) {
  cluster.ns = Environment("WATCH_NAMESPACE");
  cluster.image = Environment("STARLING_IMAGE");
  if (!Environment("KUBERNETES_SERVICE_HOST").empty())
    cluster.webhook_port = admission::kWebhookPort;
  if (const std::string ns = Environment("POD_NAMESPACE"); !ns.empty()) cluster.election.ns = ns;
}

}  // namespace

std::string Usage() {
  return absl::StrCat(
      "usage: starling-controller --home FOLDER [flags]\n"
      "       starling-controller [--kubeconfig FILE] [flags]\n"
      "\n"
      "Runs TrainingJobs: those of one STARLING_HOME as processes of this machine, or those of a\n"
      "Kubernetes cluster as pods.\n\n",
      Describe(kBoth), "\nOn one machine:\n", Describe(kLocal), "\nIn a cluster:\n",
      Describe(kCluster),
      "\nSIGTERM: on one machine all pods save their work and end, and unfinished jobs go on when\n"
      "it is started again; in a cluster training goes on, and another controller takes over at\n"
      "once.\n"
      "Exit codes: 0 asked to end or idle, 1 failed or no longer the leader, 2 wrong flags or\n"
      "another controller runs.\n");
}

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  FillFromEnvironment(options.cluster);
  bool any_of_a_cluster = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string name = arguments[i];
    const std::size_t equals = name.find('=');
    std::string value = equals == std::string::npos ? "" : name.substr(equals + 1);
    name.resize(std::min(equals, name.size()));
    bool of_a_cluster = false;
    const Flag* flag = FindFlag(name, of_a_cluster);
    if (flag == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": no such flag; see starling-controller --help"));
    }
    any_of_a_cluster = any_of_a_cluster || of_a_cluster;
    if (equals == std::string::npos && flag->value == nullptr) {
      value = "true";
    } else if (equals == std::string::npos) {
      if (i + 1 == arguments.size()) {
        return absl::InvalidArgumentError(absl::StrCat(name, ": needs a value"));
      }
      value = arguments[++i];
    }
    const absl::Status status = flag->set(value, options);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " ", status.message()));
    }
  }
  RETURN_IF_ERROR(ChooseHome(any_of_a_cluster, options));
  RETURN_IF_ERROR(runtime::CheckElection(options.cluster.election));
  return options;
}

}  // namespace starling::manager
