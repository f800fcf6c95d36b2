// SPDX-License-Identifier: Apache-2.0
#include "api/spec/parameter_server.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"

namespace starling::spec {
namespace {

using v1alpha1::Consistency;
using v1alpha1::DataSource;
using v1alpha1::TrainingJobSpec;

constexpr char kExchange[] = "spec.exchange.parameterServer";
constexpr char kServers[] = "spec.replicaSpecs.parameterServer";

bool HasServers(const TrainingJobSpec& spec) { return spec.exchange().has_parameter_server(); }

void CheckPresence(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (HasServers(spec) || !spec.replica_specs().has_parameter_server()) return;
  errors.push_back({kServers,
                    "is for spec.exchange.parameterServer, for nobody else has anything to put "
                    "there; leave it out, or write exchange: {parameterServer: {}}"});
}

void CheckSizes(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!HasServers(spec)) return;
  const auto& servers = spec.replica_specs().parameter_server();
  const std::int64_t replicas = servers.replicas(), least = servers.min_replicas();
  const std::int64_t copies = spec.exchange().parameter_server().replication();
  if (servers.has_max_replicas() && servers.max_replicas() < copies) {
    errors.push_back(
        {absl::StrCat(kServers, ".maxReplicas"),
         absl::StrCat("must be at least exchange.parameterServer.replication (", copies, "), not ",
                      servers.max_replicas(), "; raise it or lower replication")});
  }
  if (servers.has_max_replicas() && least > servers.max_replicas()) {
    errors.push_back({absl::StrCat(kServers, ".minReplicas"),
                      absl::StrCat("must be at most maxReplicas (", servers.max_replicas(),
                                   "), not ", least, "; lower it or raise maxReplicas")});
    return;
  }
  if (servers.has_max_replicas() && replicas > servers.max_replicas()) {
    errors.push_back({absl::StrCat(kServers, ".replicas"),
                      absl::StrCat("must be at most maxReplicas (", servers.max_replicas(),
                                   "), not ", replicas, "; lower it or raise maxReplicas")});
  }
  if (replicas == 0 && spec.run_policy().suspend()) return;
  if (replicas == 0) {
    errors.push_back({absl::StrCat(kServers, ".replicas"),
                      "must be at least 1, not 0, for the servers hold the model; to release all "
                      "pods and keep the state, set spec.runPolicy.suspend: true"});
  } else if (replicas < least) {
    errors.push_back({absl::StrCat(kServers, ".replicas"),
                      absl::StrCat("must be at least minReplicas (", least, "), not ", replicas,
                                   "; raise it or lower minReplicas")});
  }
}

void CheckReproducible(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!HasServers(spec) || !spec.reproducible()) return;
  errors.push_back(
      {"spec.reproducible",
       "needs spec.exchange.allReduce: with parameter servers the order of sums depends "
       "on how many workers there are; leave it out or write exchange: {allReduce: {}}"});
}

// Rules that live beside the parameters on the servers.
void CheckOptimizer(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (HasServers(spec)) return;
  const auto& optimizer = spec.optimizer();
  const struct {
    bool given;
    const char* name;
  } rules[] = {{optimizer.has_adagrad(), "adagrad"},
               {optimizer.has_ada_revision(), "adaRevision"},
               {optimizer.has_delay_compensated(), "delayCompensated"},
               {optimizer.has_ftrl(), "ftrl"},
               {optimizer.has_proximal_gradient(), "proximalGradient"}};
  for (const auto& rule : rules) {
    if (!rule.given) continue;
    errors.push_back({absl::StrCat("spec.optimizer.", rule.name),
                      "needs spec.exchange.parameterServer, whose servers apply it; use sgd, adam "
                      "or adamW, or write exchange: {parameterServer: {}}"});
  }
}

void CheckBackups(const TrainingJobSpec& spec, FieldErrors& errors) {
  const Consistency& consistency = spec.exchange().parameter_server().consistency();
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
  if (!server.consistency().has_bulk_synchronous() || !server.has_samples_per_push()) return;
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

// The model's name in a job file if it is one of these, else nothing.
std::string NameIfAmong(const Consistency& model,
                        std::initializer_list<Consistency::KindCase> these) {
  if (std::ranges::find(these, model.kind_case()) == these.end()) return "";
  return model.GetDescriptor()->FindFieldByNumber(model.kind_case())->json_name();
}

void CheckLocalSgd(const TrainingJobSpec& spec, FieldErrors& errors) {
  const auto& server = spec.exchange().parameter_server();
  if (!spec.update().has_local_sgd() || !HasServers(spec)) return;
  if (spec.optimizer().has_proximal_gradient()) {
    errors.push_back({"spec.update.localSgd",
                      "does not go with spec.optimizer.proximalGradient, whose penalty is that of "
                      "each gradient, not of a sum of several; leave it out"});
  }
  const std::string name =
      NameIfAmong(server.consistency(), {Consistency::kBulkSynchronous, Consistency::kBackupWorkers,
                                         Consistency::kEagerStaleSynchronous});
  if (name.empty()) return;
  errors.push_back(
      {"spec.update.localSgd",
       absl::StrCat("does not go with consistency.", name,
                    ", which says itself when updates are sent; use consistency: {asynchronous: "
                    "{}}, boundedDelay, staleSynchronous or softSync, or leave localSgd out")});
}

// A sum of several workers' pushes has no meaning where each must be seen by itself.
void CheckTopology(const TrainingJobSpec& spec, FieldErrors& errors) {
  const auto& server = spec.exchange().parameter_server();
  const auto& topology = server.topology();
  if (!topology.has_tree() && !topology.has_host_reduce()) return;
  const std::string path =
      absl::StrCat(kExchange, ".topology.", topology.has_tree() ? "tree" : "hostReduce");
  const Consistency& model = server.consistency();
  // Elsewhere what is summed up is a mean.
  const bool sums =
      model.has_asynchronous() || model.has_bounded_delay() || model.has_stale_synchronous();
  const struct {
    bool given;
    const char* field;
    const char* why;
  } refused[] = {
      {model.has_backup_workers(), "spec.exchange.parameterServer.consistency.backupWorkers",
       "asks of each push whether it is late"},
      {model.has_eager_stale_synchronous(),
       "spec.exchange.parameterServer.consistency.eagerStaleSynchronous",
       "has each worker send early what it has"},
      {spec.update().has_local_sgd(), "spec.update.localSgd",
       "lets workers go different ways between two pushes"},
      {spec.optimizer().has_ada_revision(), "spec.optimizer.adaRevision",
       "remembers what each worker has read"},
      {spec.optimizer().has_delay_compensated(), "spec.optimizer.delayCompensated",
       "remembers what each worker has read"},
      {sums && spec.optimizer().has_proximal_gradient(), "spec.optimizer.proximalGradient",
       "takes its penalty with each gradient, not with a sum of several"},
      {spec.workload().has_sparse_logistic_regression(), "spec.workload.sparseLogisticRegression",
       "has each worker push other rows"}};
  for (const auto& one : refused) {
    if (!one.given) continue;
    errors.push_back({path, absl::StrCat("does not go with ", one.field, ", which ", one.why,
                                         "; write topology: {flat: {}}")});
  }
}

// What needs all parameters at once has no meaning where a worker has a few of them.
void CheckSparseExchange(const TrainingJobSpec& spec, FieldErrors& errors) {
  const auto& server = spec.exchange().parameter_server();
  const struct {
    bool given;
    std::string path;
  } refused[] = {{spec.update().has_local_sgd(), "spec.update.localSgd"},
                 {server.consistency().has_eager_stale_synchronous(),
                  absl::StrCat(kExchange, ".consistency.eagerStaleSynchronous")},
                 {spec.optimizer().has_ada_revision(), "spec.optimizer.adaRevision"},
                 {spec.optimizer().has_delay_compensated(), "spec.optimizer.delayCompensated"}};
  for (const auto& one : refused) {
    if (!one.given) continue;
    errors.push_back({one.path,
                      "does not go with spec.workload.sparseLogisticRegression, whose workers hold "
                      "only the weights that their samples use; leave it out"});
  }
}

// Threads take a plain step for each sample, on the few weights that it uses; servers add. What no
// sparse job may have is refused by CheckSparse and CheckTopology.
void CheckHogwild(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!spec.update().has_hogwild() || !HasServers(spec)) return;
  const std::string hogwild = "spec.update.hogwild";
  if (!spec.exchange().parameter_server().consistency().has_asynchronous()) {
    errors.push_back({hogwild,
                      "needs spec.exchange.parameterServer.consistency.asynchronous, for nobody "
                      "waits for anybody; write consistency: {asynchronous: {}}"});
  }
  if (!spec.workload().has_sparse_logistic_regression()) {
    errors.push_back(
        {hogwild,
         "needs spec.workload.sparseLogisticRegression, whose samples use few weights each: "
         "threads of a dense model would add to the same numbers; leave it out"});
    return;
  }
  const auto& optimizer = spec.optimizer();
  const struct {
    bool given;
    const char* field;
    const char* remedy;
  } refused[] = {{optimizer.has_adam(), "adam", "use sgd"},
                 {optimizer.has_adam_w(), "adamW", "use sgd"},
                 {optimizer.has_adagrad(), "adagrad", "use sgd"},
                 {optimizer.has_ftrl(), "ftrl", "use sgd"},
                 {optimizer.has_proximal_gradient(), "proximalGradient", "use sgd"},
                 {optimizer.sgd().momentum() > 0, "sgd.momentum", "leave it out"},
                 {optimizer.sgd().weight_decay() > 0, "sgd.weightDecay",
                  "use spec.workload.sparseLogisticRegression.l2"}};
  for (const auto& one : refused) {
    if (!one.given) continue;
    errors.push_back(
        {absl::StrCat("spec.optimizer.", one.field),
         absl::StrCat("does not go with ", hogwild, ", whose threads take plain steps; ",
                      one.remedy, ", or leave hogwild out")});
  }
}

// Dense rows are ranges, which no list names; their values' form is not chosen.
void CheckCompression(const TrainingJobSpec& spec, FieldErrors& errors) {
  const auto& compression = spec.compression();
  const struct {
    bool given;
    const char* path;
    const char* why;
  } unbuilt[] = {{compression.codec().has_float16(), "spec.compression.codec.float16", "codec"},
                 {compression.error_feedback(), "spec.compression.errorFeedback", "errorFeedback"}};
  for (const auto& one : unbuilt) {
    if (!one.given) continue;
    errors.push_back(
        {one.path, absl::StrCat("is not done by any exchange yet; leave ", one.why, " out")});
  }
  if (spec.workload().has_sparse_logistic_regression()) return;
  const struct {
    bool given;
    const char* path;
  } sparse[] = {{compression.codec().has_bfloat16(), "spec.compression.codec.bfloat16"},
                {compression.has_key_cache(), "spec.compression.keyCache"},
                {compression.kkt_filter(), "spec.compression.kktFilter"}};
  for (const auto& one : sparse) {
    if (!one.given) continue;
    errors.push_back({one.path,
                      "is for spec.workload.sparseLogisticRegression, whose workers name the rows "
                      "that they read and push; leave it out"});
  }
}

// What cannot change a weight by itself may do so together with others' gradients.
void CheckKkt(const TrainingJobSpec& spec, FieldErrors& errors) {
  const auto& server = spec.exchange().parameter_server();
  if (!spec.compression().kkt_filter() || !spec.workload().has_sparse_logistic_regression()) return;
  const std::string kkt = "spec.compression.kktFilter";
  if (!(spec.optimizer().proximal_gradient().l1() > 0)) {
    errors.push_back({kkt,
                      "needs spec.optimizer.proximalGradient with l1 above 0, which holds a weight "
                      "at 0 against small gradients; write optimizer: {proximalGradient: {l1: ...}}"
                      ", or leave kktFilter out"});
  }
  const std::string name = NameIfAmong(
      server.consistency(),
      {Consistency::kBulkSynchronous, Consistency::kBackupWorkers, Consistency::kSoftSync});
  if (name.empty()) return;
  errors.push_back(
      {kkt, absl::StrCat("does not go with consistency.", name,
                         ", which applies several pushes as one: what none of them changes, they "
                         "may change together; use consistency: {asynchronous: {}}, boundedDelay "
                         "or staleSynchronous, or leave kktFilter out")});
}

// Factors are one worker's, of one pass over one batch.
void CheckActivations(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!spec.update().has_activations()) return;
  const auto& topology = spec.exchange().parameter_server().topology();
  const struct {
    bool given;
    const char* field;
    const char* why;
  } refused[] = {{spec.workload().has_sparse_logistic_regression(),
                  "spec.workload.sparseLogisticRegression", "has no fully connected layers"},
                 {topology.has_tree(), "spec.exchange.parameterServer.topology.tree",
                  "sums up gradients on their way"},
                 {topology.has_host_reduce(), "spec.exchange.parameterServer.topology.hostReduce",
                  "sums up gradients on their way"}};
  for (const auto& one : refused) {
    if (!one.given) continue;
    errors.push_back(
        {"spec.update.activations",
         absl::StrCat("does not go with ", one.field, ", which ", one.why, "; leave it out")});
  }
}

void CheckUpdate(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (HasServers(spec)) return;
  const auto& update = spec.update();
  const char* path = update.has_local_sgd()     ? "spec.update.localSgd"
                     : update.has_activations() ? "spec.update.activations"
                     : update.has_hogwild()     ? "spec.update.hogwild"
                                                : nullptr;
  if (path == nullptr) return;
  errors.push_back({path, "needs spec.exchange.parameterServer; leave it out"});
}

void CheckLinear(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (!spec.workload().has_linear_regression()) return;
  errors.push_back({"spec.workload.linearRegression",
                    "is not computed by any worker yet; write classification"});
}

void CheckSparse(const TrainingJobSpec& spec, FieldErrors& errors) {
  const bool sparse = spec.workload().has_sparse_logistic_regression();
  if (sparse && !HasServers(spec)) {
    errors.push_back({"spec.workload.sparseLogisticRegression",
                      "needs spec.exchange.parameterServer, for its weights lie on servers; write "
                      "exchange: {parameterServer: {}}"});
  }
  if (sparse) CheckSparseExchange(spec, errors);
  const auto check = [&](const DataSource& source, const char* path) {
    if (sparse && !source.has_libsvm()) {
      errors.push_back({path,
                        "must be libsvm with spec.workload.sparseLogisticRegression; write "
                        "libsvm: {uri: ...}"});
    } else if (!sparse && source.has_libsvm()) {
      errors.push_back({absl::StrCat(path, ".libsvm"),
                        "is for spec.workload.sparseLogisticRegression; give csv, idx or "
                        "synthetic data to a classification"});
    }
  };
  check(spec.dataset().train(), "spec.dataset.train");
  if (spec.dataset().has_validation())
    check(spec.dataset().validation(), "spec.dataset.validation");
}

}  // namespace

void CheckParameterServer(const TrainingJobSpec& spec, FieldErrors& errors) {
  for (const auto& rule :
       {CheckPresence, CheckSizes, CheckReproducible, CheckOptimizer, CheckBackups, CheckPortions,
        CheckLocalSgd, CheckTopology, CheckActivations, CheckSparse, CheckHogwild, CheckCompression,
        CheckKkt, CheckUpdate, CheckLinear}) {
    rule(spec, errors);
  }
}

}  // namespace starling::spec
