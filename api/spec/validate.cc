// SPDX-License-Identifier: Apache-2.0
#include "api/spec/validate.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/network/plan.h"
#include "api/spec/consistency.h"
#include "api/spec/metrics.h"
#include "api/spec/pod_template.h"
#include "api/spec/quantity.h"
#include "api/spec/resolve.h"
#include "api/spec/techniques.h"

namespace starling::spec {
namespace {

using v1alpha1::DataSource;
using v1alpha1::TrainingJobSpec;

constexpr std::int64_t kMostGroups = 16;                     // of reproducible mode
constexpr std::int64_t kMostValues = std::int64_t{1} << 24;  // in one sample
constexpr std::int64_t kMostSyntheticValues = std::int64_t{1} << 31;

constexpr char kWorker[] = "spec.replicaSpecs.worker";
constexpr char kServerReplicas[] = "spec.replicaSpecs.parameterServer";
constexpr char kExchange[] = "spec.exchange.parameterServer";
constexpr char kTrain[] = "spec.dataset.train";
constexpr char kValidation[] = "spec.dataset.validation";

using Shape = std::vector<std::int64_t>;

std::string ShapeText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Where a source's shape stands in the file, and what it says; nothing where only the data knows.
struct KnownShape {
  std::string path;
  Shape shape;
};

// Of images.
std::optional<KnownShape> ImageShapeOf(const DataSource& source, const std::string& path) {
  if (!source.has_image_folder() && !source.has_tar()) return std::nullopt;
  const bool folder = source.has_image_folder();
  const auto& shape = folder ? source.image_folder().shape() : source.tar().shape();
  return KnownShape{path + (folder ? ".imageFolder.shape" : ".tar.shape"),
                    Shape(shape.begin(), shape.end())};
}

std::optional<KnownShape> ShapeOf(const DataSource& source, const std::string& path) {
  if (source.has_csv() && source.csv().shape_size() > 0) {
    const auto& shape = source.csv().shape();
    return KnownShape{path + ".csv.shape", Shape(shape.begin(), shape.end())};
  }
  if (source.has_synthetic()) {
    const auto& shape = source.synthetic().shape();
    return KnownShape{path + ".synthetic.shape", Shape(shape.begin(), shape.end())};
  }
  return ImageShapeOf(source, path);
}

// Of a sample, where the file says it.
std::optional<KnownShape> InputOf(const TrainingJobSpec& spec) {
  if (!spec.workload().has_language_model()) return ShapeOf(spec.dataset().train(), kTrain);
  return KnownShape{"spec.workload.languageModel.contextLength",
                    {spec.workload().language_model().context_length()}};
}

// Of one sample; more than kMostValues if there are too many.
std::int64_t Values(const Shape& shape) {
  std::int64_t values = 1;
  for (const std::int64_t side : shape) {
    values *= std::min(side, kMostValues + 1);
    if (values > kMostValues) return kMostValues + 1;
  }
  return values;
}

void CheckPreset(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!spec.has_preset()) return;
  const std::vector<std::string> names = PresetNames();
  if (std::find(names.begin(), names.end(), spec.preset()) != names.end()) return;
  errors.push_back(
      {"spec.preset", absl::StrCat("there is no preset \"", spec.preset(), "\"; there are ",
                                   absl::StrJoin(names, ", "), DidYouMean(spec.preset(), names))});
}

// The sizes of one role. `none` says why it may not have 0 replicas, and what to write.
template <typename Role>
void CheckSizes(const Role& role, const std::string& path, bool suspended, const char* none,
                FieldErrors& errors) {
  const std::int64_t replicas = role.replicas(), least = role.min_replicas();
  if (role.has_max_replicas() && least > role.max_replicas()) {
    errors.push_back(
        {path + ".minReplicas", absl::StrCat("must be at most maxReplicas (", role.max_replicas(),
                                             "), not ", least, "; lower it or raise maxReplicas")});
    return;
  }
  if (role.has_max_replicas() && replicas > role.max_replicas()) {
    errors.push_back(
        {path + ".replicas", absl::StrCat("must be at most maxReplicas (", role.max_replicas(),
                                          "), not ", replicas, "; lower it or raise maxReplicas")});
  }
  if (replicas == 0 && suspended) return;
  if (replicas == 0) {
    errors.push_back({path + ".replicas", absl::StrCat("must be at least 1, not 0", none)});
  } else if (replicas < least) {
    errors.push_back(
        {path + ".replicas", absl::StrCat("must be at least minReplicas (", least, "), not ",
                                          replicas, "; raise it or lower minReplicas")});
  }
}

void CheckReplicas(const TrainingJobSpec& spec, FieldErrors& errors) {
  CheckSizes(spec.replica_specs().worker(), kWorker, spec.run_policy().suspend(),
             "; to release all workers and keep the state, set spec.runPolicy.suspend: true",
             errors);
}

void CheckServers(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!spec.exchange().has_parameter_server()) return;
  const auto& servers = spec.replica_specs().parameter_server();
  const std::int64_t copies = spec.exchange().parameter_server().replication();
  if (servers.has_max_replicas() && servers.max_replicas() < copies) {
    errors.push_back(
        {absl::StrCat(kServerReplicas, ".maxReplicas"),
         absl::StrCat("must be at least exchange.parameterServer.replication (", copies, "), not ",
                      servers.max_replicas(), "; raise it or lower replication")});
  }
  CheckSizes(servers, kServerReplicas, spec.run_policy().suspend(),
             ", for the servers hold the model; to release all pods and keep the state, set "
             "spec.runPolicy.suspend: true",
             errors);
}

void CheckBackups(const TrainingJobSpec& spec, FieldErrors& errors) {
  const auto& consistency = spec.exchange().parameter_server().consistency();
  if (!consistency.has_backup_workers()) return;
  const std::int64_t backups = consistency.backup_workers().backups();
  const std::int64_t workers = spec.replica_specs().worker().replicas();
  if (workers == 0 || backups < workers) return;
  errors.push_back(
      {absl::StrCat(kExchange, ".consistency.backupWorkers.backups"),
       absl::StrCat("must be less than replicaSpecs.worker.replicas (", workers, "), not ", backups,
                    ", or nobody's update counts; lower it or ask for more workers")});
}

// A step is one batch, and each of its portions is to weigh the same. No job has more workers than
// portions make sense for.
void CheckPortions(const TrainingJobSpec& spec, FieldErrors& errors) {
  constexpr std::int64_t kMost = 1024;
  const auto& server = spec.exchange().parameter_server();
  if (!WorksInStep(spec) || !server.has_samples_per_push()) return;
  const std::int64_t batch = spec.dataset().global_batch_size();
  const std::int64_t samples = server.samples_per_push();
  if (batch <= 0 || samples <= 0) return;
  const bool divides = batch % samples == 0;
  if (divides && batch / samples <= kMost) return;
  const auto fits = [&](std::int64_t size) { return batch % size == 0 && batch / size <= kMost; };
  std::int64_t other = std::min(samples, batch);
  while (other > 1 && !fits(other)) --other;
  while (!fits(other)) ++other;
  const std::string wanted = divides ? absl::StrCat("must leave at most ", kMost, " portions of")
                                     : std::string("must divide");
  errors.push_back(
      {absl::StrCat(kExchange, ".samplesPerPush"),
       absl::StrCat(wanted, " dataset.globalBatchSize (", batch, "), not ", samples,
                    ", for with consistency.bulkSynchronous a step is one such batch, worked off "
                    "in equal portions; write ",
                    other, ", or leave it out")});
}

void CheckReproducible(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!spec.reproducible()) return;
  const auto& worker = spec.replica_specs().worker();
  // Of workload.pytorch its program may say it, when it runs.
  const std::int64_t batch =
      spec.dataset().has_global_batch_size() ? spec.dataset().global_batch_size() : kMostGroups;
  const std::int64_t most = std::min(batch, kMostGroups);
  const bool bounded = worker.has_max_replicas();
  const std::int64_t workers = bounded ? worker.max_replicas() : worker.replicas();
  if (workers <= most) return;
  errors.push_back(
      {absl::StrCat(kWorker, (bounded ? ".maxReplicas" : ".replicas")),
       absl::StrCat("must be at most ", most, " with spec.reproducible (the lesser of ",
                    kMostGroups, " and globalBatchSize), not ", workers)});
}

void CheckWarmup(const TrainingJobSpec& spec, FieldErrors& errors) {
  const auto& stop = spec.stop();
  const std::int64_t warmup = spec.optimizer().schedule().warmup_steps();
  if (!stop.has_steps() || warmup < stop.steps()) return;
  errors.push_back({"spec.optimizer.schedule.warmupSteps",
                    absl::StrCat("must be less than spec.stop.steps (", stop.steps(), "), not ",
                                 warmup, ", or the learning rate is never reached")});
}

void CheckExchange(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!spec.exchange().has_none()) return;
  const auto& worker = spec.replica_specs().worker();
  const std::string remedy =
      " with spec.exchange.none, for nothing travels between workers; "
      "lower it or use allReduce";
  if (worker.replicas() > 1) {
    errors.push_back({absl::StrCat(kWorker, ".replicas"),
                      absl::StrCat("must be 1, not ", worker.replicas(), ",", remedy)});
  }
  if (worker.max_replicas() > 1) {
    errors.push_back({absl::StrCat(kWorker, ".maxReplicas"),
                      absl::StrCat("must be 1, not ", worker.max_replicas(), ",", remedy)});
  }
}

// Slower, and a step of a common model takes longer than workers wait for one.
void CheckNetwork(const TrainingJobSpec& spec, FieldErrors& errors) {
  constexpr double kLeast = 1e6, kMost = 1e12;
  const auto check = [&](const auto& message, const std::string& path) {
    if (!message.has_bandwidth()) return;
    const double bandwidth = ParseQuantity(message.bandwidth()).value_or(0);
    if (bandwidth >= kLeast && bandwidth <= kMost) return;
    errors.push_back({path + ".bandwidth", absl::StrCat("must be from 1M to 1T bits a second, not ",
                                                        message.bandwidth())});
  };
  const std::string path = "spec.experiment.network";
  const auto& network = spec.experiment().network();
  check(network, path);
  for (int i = 0; i < network.links_size(); ++i) {
    const auto& link = network.links(i);
    const std::string at = absl::StrCat(path, ".links[", i, "]");
    check(link, at);
    if (!link.has_bandwidth() && !link.has_delay()) {
      errors.push_back({at, "must give a bandwidth or a delay, or it is as any other link"});
    }
    if (link.from() == link.to()) {
      errors.push_back(
          {at + ".to", absl::StrCat("must be another pod than from, not ", link.to())});
    }
  }
}

// A bound on the side where the metric is worse would be met from the start.
void CheckBound(const Metric& metric, const v1alpha1::Target& target, FieldErrors& errors) {
  const std::string name = ShortName(metric);
  if (metric.higher_is_better && target.has_at_most()) {
    errors.push_back(
        {"spec.stop.target.atMost", name + " is better the higher it is; write atLeast instead"});
  } else if (!metric.higher_is_better && target.has_at_least()) {
    errors.push_back(
        {"spec.stop.target.atLeast", name + " is better the lower it is; write atMost instead"});
  } else if (metric.is_share && (target.at_least() < 0 || target.at_least() > 1)) {
    errors.push_back(
        {"spec.stop.target.atLeast",
         absl::StrCat("must be a share from 0 to 1, such as 0.95, not ", target.at_least())});
  }
}

void CheckTarget(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!spec.stop().has_target() || spec.workload().kind_case() == 0) return;
  if (spec.workload().has_pytorch()) return;  // refused already
  const auto& target = spec.stop().target();
  std::vector<std::string> names;
  for (const Metric& metric : MetricsOf(spec.workload().kind_case())) {
    if (metric.name == target.metric()) return CheckBound(metric, target, errors);
    names.emplace_back(metric.name);
  }
  const auto& workload =
      *v1alpha1::Workload::descriptor()->FindFieldByNumber(spec.workload().kind_case());
  errors.push_back({"spec.stop.target.metric",
                    absl::StrCat("spec.workload.", workload.json_name(), " has no metric \"",
                                 target.metric(), "\"; it has ", absl::StrJoin(names, ", "),
                                 DidYouMean(target.metric(), names))});
}

void CheckShape(const DataSource& source, const std::string& path, FieldErrors& errors) {
  const auto known = ShapeOf(source, path);
  if (!known) return;
  const std::int64_t values = Values(known->shape);
  if (values > kMostValues) {
    errors.push_back({known->path, absl::StrCat("a sample of shape ", ShapeText(known->shape),
                                                " has more than ", kMostValues, " values")});
  } else if (source.has_synthetic() &&
             source.synthetic().samples() > kMostSyntheticValues / values) {
    errors.push_back({path + ".synthetic.samples",
                      absl::StrCat("must be at most ", kMostSyntheticValues / values,
                                   " with samples of shape ", ShapeText(known->shape), ", not ",
                                   source.synthetic().samples(), ": every worker holds them all")});
  }
}

std::int64_t ClassesOf(const DataSource& source) {  // 0 where only the data knows
  if (source.has_csv()) return source.csv().classes();
  if (source.has_idx()) return source.idx().classes();
  return source.synthetic().classes();
}

// Columns that a regression predicts.
std::int64_t TargetsOf(const v1alpha1::CsvSource& table) {
  return std::max(table.label_columns_size(), 1);
}

void CheckSources(const TrainingJobSpec& spec, FieldErrors& errors) {
  const auto& dataset = spec.dataset();
  CheckShape(dataset.train(), kTrain, errors);
  if (!dataset.has_validation()) return;
  CheckShape(dataset.validation(), kValidation, errors);
  const auto train = ShapeOf(dataset.train(), kTrain);
  const auto validation = ShapeOf(dataset.validation(), kValidation);
  if (train && validation && train->shape != validation->shape) {
    errors.push_back(
        {validation->path, absl::StrCat("must be ", ShapeText(train->shape), ", as ", train->path,
                                        " is, not ", ShapeText(validation->shape))});
  }
  const std::int64_t classes = ClassesOf(dataset.train());
  const std::int64_t judged = ClassesOf(dataset.validation());
  if (classes != 0 && judged != 0 && classes != judged) {
    errors.push_back({kValidation, absl::StrCat("must have ", classes, " classes, as ", kTrain,
                                                " has, not ", judged)});
  }
}

void CheckText(const DataSource& source, const std::string& path, FieldErrors& errors) {
  const auto& text = source.text();
  if (!source.has_text() || text.begin() < text.end()) return;
  errors.push_back({path + ".text.end", absl::StrCat("must be more than begin (", text.begin(),
                                                     "), not ", text.end())});
}

void CheckTexts(const TrainingJobSpec& spec, FieldErrors& errors) {
  CheckText(spec.dataset().train(), kTrain, errors);
  CheckText(spec.dataset().validation(), kValidation, errors);
}

void CheckChannels(const DataSource& source, const std::string& path, FieldErrors& errors) {
  const auto known = ImageShapeOf(source, path);
  if (!known.has_value() || known->shape.size() != 3) return;
  if (known->shape[0] == 1 || known->shape[0] == 3) return;
  errors.push_back(
      {known->path, absl::StrCat("must have 3 channels (red, green, blue) or 1 (grey), not ",
                                 known->shape[0], "; write [3, height, width]")});
}

void CheckImageSources(const TrainingJobSpec& spec, FieldErrors& errors) {
  CheckChannels(spec.dataset().train(), kTrain, errors);
  CheckChannels(spec.dataset().validation(), kValidation, errors);
}

void CheckColumns(const TrainingJobSpec& spec, const DataSource& source, const std::string& path,
                  FieldErrors& errors) {
  if (source.csv().label_columns_size() == 0) return;
  if (!spec.workload().has_regression() && !spec.workload().has_autoencoder()) {
    errors.push_back({path + ".csv.labelColumns",
                      "needs spec.workload.regression or spec.workload.autoencoder, for others "
                      "have one label; write labelColumn"});
  } else if (source.csv().has_label_column()) {
    errors.push_back(
        {path + ".csv.labelColumns", "does not go with labelColumn; name all of them here"});
  }
}

void CheckTables(const TrainingJobSpec& spec, FieldErrors& errors) {
  CheckColumns(spec, spec.dataset().train(), kTrain, errors);
  CheckColumns(spec, spec.dataset().validation(), kValidation, errors);
  const int train = spec.dataset().train().csv().label_columns_size();
  const int validation = spec.dataset().validation().csv().label_columns_size();
  if (!spec.workload().has_regression() || !spec.dataset().validation().has_csv()) return;
  if (!errors.empty() || train == validation) return;
  errors.push_back({absl::StrCat(kValidation, ".csv.labelColumns"),
                    "must name the columns that the training set's do"});
}

void CheckIdx(const DataSource& source, const std::string& path, FieldErrors& errors) {
  if (!source.has_idx() || source.idx().images_uri() != source.idx().labels_uri()) return;
  errors.push_back({path + ".idx.labelsUri", "must be another file than imagesUri"});
}

void CheckIdxSources(const TrainingJobSpec& spec, FieldErrors& errors) {
  CheckIdx(spec.dataset().train(), kTrain, errors);
  CheckIdx(spec.dataset().validation(), kValidation, errors);
}

// Where the data's shape is to blame for a network that asks for images, its field is named.
bool CheckImages(const TrainingJobSpec& spec, FieldErrors& errors) {
  const auto need = network::NeedOf(network::ModelOf(spec.workload()).model);
  if (!need) return true;
  const DataSource& train = spec.dataset().train();
  const std::string wanted =
      absl::StrCat(need->name, " needs images of shape [channels, height, width], at least ",
                   need->side, " by ", need->side);
  const auto known = ShapeOf(train, kTrain);
  if (!known && train.has_csv()) {
    errors.push_back({absl::StrCat(kTrain, ".csv.shape"), wanted + "; say how a row is one"});
    return false;
  }
  if (!known || network::Meets(*need, known->shape)) return true;
  errors.push_back({known->path, absl::StrCat(wanted, ", not ", ShapeText(known->shape))});
  return false;
}

void CheckModel(const TrainingJobSpec& spec, FieldErrors& errors) {
  network::Described described = network::ModelOf(spec.workload());
  if (!described.given) return;
  if (!described.task.each_place && !CheckImages(spec, errors)) return;
  const auto known = InputOf(spec);
  if (!known || Values(known->shape) > kMostValues) return;
  const DataSource& train = spec.dataset().train();
  if (spec.workload().has_classification()) described.task.classes = ClassesOf(train);
  if (spec.workload().has_regression()) described.task.classes = TargetsOf(train.csv());
  const auto planned = network::PlanNetwork(described.model, known->shape, described.task);
  if (planned.ok()) return;
  const std::string text(planned.status().message());
  const std::size_t colon = text.find(": ");
  errors.push_back({text.substr(0, colon), text.substr(colon + 2)});
}

// Servers move every tensor by the optimizer's rule, and running means follow another one. A codec
// that sends some numbers of a tensor later, or their signs, would make them follow something else.
bool TakesRunningMeans(const v1alpha1::Codec& codec) {
  return codec.kind_case() == 0 || codec.has_identity() || codec.has_bfloat16() ||
         codec.has_float16();
}

void CheckBatchNorm(const TrainingJobSpec& spec, FieldErrors& errors) {
  constexpr std::int64_t kLeast = 2 * kMostGroups;
  const network::Described described = network::ModelOf(spec.workload());
  const auto path = network::PathOfBatchNorm(described.model, described.task.path);
  if (!path) return;
  if (spec.exchange().has_parameter_server()) {
    errors.push_back(
        {*path,
         "has batch normalization, whose running means no server keeps; use groupNorm, "
         "or write exchange: {allReduce: {}}"});
  } else if (!TakesRunningMeans(spec.compression().codec())) {
    errors.push_back(
        {*path,
         "has batch normalization, whose running means travel as gradients do and need "
         "each number; use groupNorm, or write compression.codec: {identity: {}}, "
         "bfloat16 or float16"});
  } else if (spec.reproducible() && spec.dataset().global_batch_size() < kLeast) {
    errors.push_back(
        {*path, absl::StrCat("has batch normalization, which with spec.reproducible is computed "
                             "over each of the ",
                             kMostGroups, " groups of a batch; make dataset.globalBatchSize ",
                             kLeast, " or more, not ", spec.dataset().global_batch_size(),
                             ", so that no group is a single sample")});
  }
}

void CheckEmbedding(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!spec.dataset().normalize()) return;
  const network::Described described = network::ModelOf(spec.workload());
  const auto path = network::PathOfEmbedding(described.model, described.task.path);
  if (!path) return;
  errors.push_back({"spec.dataset.normalize",
                    absl::StrCat("must be false, for ", *path,
                                 ".embedding reads the numbers of the data as they are")});
}

void CheckMicroBatch(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!spec.dataset().has_micro_batch_size() || network::ModelOf(spec.workload()).given) return;
  errors.push_back({"spec.dataset.microBatchSize",
                    "is for workloads that are networks, whose layers keep what they are given; "
                    "leave it out"});
}

// What files hold is seen when they are read (trainer/data).
void CheckReconstruction(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (spec.workload().autoencoder().loss() != v1alpha1::RECONSTRUCTION_LOSS_BINARY_CROSS_ENTROPY) {
    return;
  }
  if (spec.dataset().normalize()) {
    errors.push_back({"spec.dataset.normalize",
                      "must be false with spec.workload.autoencoder.loss: BinaryCrossEntropy, "
                      "which is of numbers from 0 to 1; write it, or use SquaredError"});
  }
  const auto check = [&](const v1alpha1::DataSource& source, const char* path) {
    if (!source.has_synthetic()) return;
    errors.push_back({path,
                      "makes numbers of any size, but spec.workload.autoencoder.loss: "
                      "BinaryCrossEntropy is of numbers from 0 to 1; use SquaredError, or other "
                      "data"});
  };
  check(spec.dataset().train(), "spec.dataset.train.synthetic");
  check(spec.dataset().validation(), "spec.dataset.validation.synthetic");
}

void CheckContainer(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!spec.workload().has_container()) return;
  const auto& worker = spec.replica_specs().worker();
  const FieldErrors found = CheckOwnContainer(worker.has_template_() ? worker.template_() : "{}",
                                              absl::StrCat(kWorker, ".template"));
  errors.insert(errors.end(), found.begin(), found.end());
}

// What every other program is given, this one reads by itself.
void CheckTrain(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (spec.workload().has_pytorch() || spec.dataset().has_train()) return;
  errors.push_back({kTrain, "is required and missing"});
}

void CheckScheduling(const TrainingJobSpec& spec, FieldErrors& errors) {
  const auto& worker = spec.replica_specs().worker();
  const auto& policy = spec.run_policy().scheduling_policy();
  if (!policy.has_min_available() || !worker.has_max_replicas()) return;
  if (policy.min_available() <= worker.max_replicas()) return;
  errors.push_back({"spec.runPolicy.schedulingPolicy.minAvailable",
                    absl::StrCat("must be at most maxReplicas of the workers (",
                                 worker.max_replicas(), "), not ", policy.min_available())});
}

void CheckTemplates(const TrainingJobSpec& spec, FieldErrors& errors) {
  const auto& roles = spec.replica_specs();
  const auto check = [&errors](const auto& role, const std::string& path) {
    if (!role.has_template_()) return;
    const FieldErrors found = CheckPodTemplate(role.template_(), path);
    errors.insert(errors.end(), found.begin(), found.end());
  };
  check(roles.coordinator(), "spec.replicaSpecs.coordinator.template");
  check(roles.worker(), absl::StrCat(kWorker, ".template"));
  check(roles.parameter_server(), "spec.replicaSpecs.parameterServer.template");
}

}  // namespace

FieldErrors Validate(const TrainingJobSpec& resolved) {
  FieldErrors errors = CheckTechniques(resolved);
  for (const auto& rule :
       {CheckPreset, CheckReplicas, CheckTemplates, CheckContainer, CheckScheduling}) {
    rule(resolved, errors);
  }
  if (resolved.workload().has_container()) return errors;
  for (const auto& rule : {CheckTrain, CheckReproducible, CheckWarmup, CheckExchange, CheckNetwork,
                           CheckServers, CheckBackups, CheckPortions, CheckTarget, CheckSources,
                           CheckTables, CheckIdxSources, CheckTexts, CheckImageSources, CheckModel,
                           CheckBatchNorm, CheckEmbedding, CheckMicroBatch, CheckReconstruction}) {
    rule(resolved, errors);
  }
  return errors;
}

}  // namespace starling::spec
