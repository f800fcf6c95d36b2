// SPDX-License-Identifier: Apache-2.0
#include "cli/session.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/exit_code.h"
#include "common/status/macros.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/training_job_admission.h"

namespace starling::cli {

absl::StatusOr<kube::KubeClient*> Session::Store() {
  if (store_ == nullptr) {
    RETURN_IF_ERROR(home_.Create());
    kube::EmbeddedOptions options;
    options.path = home_.Store();
    options.admission["TrainingJob"] = kube::AdmitTrainingJob;
    ASSIGN_OR_RETURN(store_, kube::OpenEmbeddedKubeClient(clock_, std::move(options)));
  }
  return store_.get();
}

int Session::Fail(const absl::Status& status) {
  // Whoever pressed Ctrl-C knows.
  if (status.ok() || absl::IsCancelled(status)) return ExitCodeOf(status);
  terminal_.Say(absl::StrCat(terminal_.PaintError(Style::kRed, "error:"), " ",
                             std::string(status.message())));
  return ExitCodeOf(status);
}

std::string NamespaceOf(const Arguments& arguments) {
  return arguments.Get("namespace", "default");
}

std::string WithoutKind(std::string_view name, std::string* kind) {
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return std::string(name);
  if (kind != nullptr) *kind = std::string(name.substr(0, slash));
  return std::string(name.substr(slash + 1));
}

kube::ObjectKey JobKey(const Arguments& arguments, std::string_view name) {
  return {NamespaceOf(arguments), WithoutKind(name)};
}

absl::StatusOr<absl::Duration> DurationFlag(const Arguments& arguments, std::string_view flag,
                                            absl::Duration otherwise) {
  if (!arguments.Has(flag)) return otherwise;
  absl::Duration duration;
  const std::string text = arguments.Get(flag);
  if (!absl::ParseDuration(text, &duration) || duration < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", std::string(flag), " ", text, ": not a duration; write 30s, 5m, 1h30m"));
  }
  return duration;
}

}  // namespace starling::cli
