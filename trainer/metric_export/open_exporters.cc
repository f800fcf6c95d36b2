// SPDX-License-Identifier: Apache-2.0
#include "trainer/metric_export/open_exporters.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "common/storage/place.h"
#include "trainer/metric_export/mlflow_sink.h"
#include "trainer/metric_export/otlp_sink.h"
#include "trainer/metric_export/tensorboard_sink.h"

namespace starling::metric_export {
namespace {

constexpr std::size_t kUidDigits = 8;  // as a job's folder on one machine has them

// One folder for each job, so that several can be looked at beside one another, and a job that is
// made again under its name does not go on in its predecessor's curves.
absl::StatusOr<std::unique_ptr<Exporter>> OpenTensorBoard(const v1alpha1::TensorBoard& given,
                                                          const Origin& origin,
                                                          const clock::Clock& clock) {
  const absl::StatusOr<storage::Place> place = storage::ParsePlace(given.uri());
  if (!place.ok() || place->kind != storage::Place::Kind::kFile) {
    return absl::InvalidArgumentError(absl::StrCat("spec.export.tensorboard.uri: ", given.uri(),
                                                   " is no folder; write a path or file:///path"));
  }
  std::string folder =
      absl::StrCat(place->path, "/", origin.job_name, "-", origin.job_uid.substr(0, kUidDigits));
  Exporter::Options options{.name = "TensorBoard, " + folder};
  auto sink = std::make_unique<TensorBoardSink>(std::move(folder), origin.pod_name);
  return std::make_unique<Exporter>(std::move(sink), clock, std::move(options));
}

absl::StatusOr<std::unique_ptr<Exporter>> OpenMlflow(const v1alpha1::Mlflow& given,
                                                     const Origin& origin,
                                                     const clock::Clock& clock) {
  MlflowOptions options{
      .uri = given.uri(),
      .experiment = given.experiment(),
      .run_name = origin.job_name,
      .job_uid = origin.job_uid,
      .authorization = MlflowAuthorization(std::getenv("MLFLOW_TRACKING_TOKEN"),
                                           std::getenv("MLFLOW_TRACKING_USERNAME"),
                                           std::getenv("MLFLOW_TRACKING_PASSWORD"))};
  absl::StatusOr<std::unique_ptr<MlflowSink>> sink = MlflowSink::Open(std::move(options));
  if (!sink.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.export.mlflow.uri: ", std::string(sink.status().message())));
  }
  return std::make_unique<Exporter>(*std::move(sink), clock,
                                    Exporter::Options{.name = "MLflow, " + given.uri()});
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::unique_ptr<Exporter>> OpenOtlp(const v1alpha1::Otlp& given,
                                                   const Origin& origin,
                                                   const clock::Clock& clock) {
  OtlpOptions options{.uri = given.uri(),
                      .job_name = origin.job_name,
                      .job_uid = origin.job_uid,
                      .instance = origin.pod_name,
                      .service = Variable("OTEL_SERVICE_NAME"),
                      .attributes = PairsIn(Variable("OTEL_RESOURCE_ATTRIBUTES")),
                      .headers = PairsIn(Variable("OTEL_EXPORTER_OTLP_HEADERS")),
                      .traceparent = Variable("TRACEPARENT")};
  absl::StatusOr<std::unique_ptr<OtlpSink>> sink = OtlpSink::Open(std::move(options));
  if (!sink.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.export.otlp.uri: ", std::string(sink.status().message())));
  }
  return std::make_unique<Exporter>(*std::move(sink), clock,
                                    Exporter::Options{.name = "OTLP, " + given.uri()});
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Exporter>>> OpenExporters(const v1alpha1::Export& places,
                                                                     const Origin& origin,
                                                                     const clock::Clock& clock) {
  std::vector<std::unique_ptr<Exporter>> exporters;
  if (places.has_tensorboard()) {
    ASSIGN_OR_RETURN(exporters.emplace_back(),
                     OpenTensorBoard(places.tensorboard(), origin, clock));
  }
  if (places.has_mlflow()) {
    ASSIGN_OR_RETURN(exporters.emplace_back(), OpenMlflow(places.mlflow(), origin, clock));
  }
  if (places.has_otlp()) {
    ASSIGN_OR_RETURN(exporters.emplace_back(), OpenOtlp(places.otlp(), origin, clock));
  }
  return exporters;
}

}  // namespace starling::metric_export
