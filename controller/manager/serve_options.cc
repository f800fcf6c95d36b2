// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/serve_options.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/flags/flags.h"
#include "common/status/macros.h"
#include "controller/manager/open_history.h"

namespace starling::manager {
namespace {

constexpr absl::Duration kShortestDrain = absl::Milliseconds(100);

void AddServe(flags::App& app, ServeOptions& options) {
  app.option_defaults()->always_capture_default()->group("The API server, and what is shown");
  AddLogLevel(app, options.log_level);
  AddConnection(app, options.cluster);
  app.option_defaults()->group("The service");
  app.add_option("--rest-bind-address", options.address, "[HOST]:PORT");
  app.add_option("--secret", options.secret,
                 "the Secret in which replicas share their certificate and the key that signs "
                 "places in lists; it must be there");
  app.add_option("--secret-namespace", options.secret_ns,
                 "where that is (POD_NAMESPACE, starling-system)");
  app.add_option("--service", options.service, "whose names the certificate in it is for");
  app.add_option("--tls-folder", options.tls_folder,
                 "a folder with tls.crt and tls.key, such as cert-manager's, in the place of a "
                 "certificate of our own; it is read again each minute");
  app.AddDuration("--linger", options.linger, absl::ZeroDuration(),
                  "once it is asked to end, go on for so long, but not ready: until nobody sends "
                  "callers here any more");
  app.AddDuration("--drain", options.drain, kShortestDrain,
                  "for requests and streams to come to an end, once it is asked to end");
  app.add_option_function<std::vector<std::string>>(
         "--models",
         [&options](const std::vector<std::string>& places) {
           for (const std::string& text : places) {
             const absl::StatusOr<service::ModelPlace> place = service::ParseModelPlace(text);
             if (!place.ok()) {
               throw CLI::ValidationError("--models", std::string(place.status().message()));
             }
             options.models.push_back(*place);
           }
         },
         "models of jobs whose checkpoint.uri begins so are read below the folder, where their "
         "volume is mounted, too; may be given several times")
      ->type_name("URI=FOLDER");
  AddRestLimits(app, options.rest);
  app.option_defaults()->group("What is kept of past jobs; without a place nothing is");
  CLI::Option* file = app.add_option("--history-file", options.history.file,
                                     "a file of SQLite, for one replica alone");
  app.add_option("--history-url", options.history.url,
                 "a PostgreSQL database, for any number of replicas, "
                 "postgresql://user@host/name; passwords from PGPASSWORD or PGPASSFILE "
                 "(STARLING_HISTORY_URL)")
      ->check(CheckHistoryUrl)
      ->excludes(file);
  AddRetention(app, options.history.retention);
}

// From a Secret it comes by the environment, where it is not seen by who sees the process.
absl::Status TakeHistoryUrl(ServeOptions& options) {
  const std::string url = Environment("STARLING_HISTORY_URL");
  if (url.empty() || !options.history.url.empty() || !options.history.file.empty()) {
    return absl::OkStatus();
  }
  if (const std::string wrong = CheckHistoryUrl(url); !wrong.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("STARLING_HISTORY_URL: ", wrong));
  }
  options.history.url = url;
  return absl::OkStatus();
}

// Without a certificate whoever listens on the way would read tokens.
absl::Status CheckAddress(const ServeOptions& options) {
  const std::size_t colon = options.address.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError("--rest-bind-address: must be [HOST]:PORT, such as :8443");
  }
  const std::string host = options.address.substr(0, colon);
  const bool loopback = host == "127.0.0.1" || host == "localhost" || host == "[::1]";
  if (!options.secret.empty() || !options.tls_folder.empty() || loopback) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--rest-bind-address: without a certificate only 127.0.0.1 is served, not \"",
                   host, "\"; give --secret or --tls-folder"));
}

}  // namespace

std::string ServeUsage() {
  ServeOptions options;
  flags::App app;
  AddServe(app, options);
  app.name("starling-controller serve");
  app.description(
      "Serves REST for the TrainingJobs of a Kubernetes cluster. What is read comes from a copy,\n"
      "after the API server has judged the caller; what is written has the caller's own token.\n"
      "Any number of these may run.");
  app.footer("SIGTERM: no new requests; streams say goodbye, and clients go to another replica.");
  return app.help();
}

absl::StatusOr<ServeOptions> ParseServeOptions(const std::vector<std::string>& arguments) {
  ServeOptions options;
  options.cluster.ns = Environment("WATCH_NAMESPACE");
  if (const std::string ns = Environment("POD_NAMESPACE"); !ns.empty()) options.secret_ns = ns;
  flags::App app;
  AddServe(app, options);
  if (const absl::Status parsed = app.Parse(arguments); !parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(parsed.message(), "; see starling-controller serve --help"));
  }
  RETURN_IF_ERROR(CheckAddress(options));
  RETURN_IF_ERROR(TakeHistoryUrl(options));
  return options;
}

}  // namespace starling::manager
