// SPDX-License-Identifier: Apache-2.0
#include "api/spec/techniques.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "api/spec/resolve.h"
#include "common/status/check.h"
#include "google/protobuf/message.h"

namespace starling::spec {
namespace {

using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr char kPreset[] = "preset";
constexpr char kServers[] = "exchange.parameterServer";
constexpr char kBulkSynchronous[] = "exchange.parameterServer.consistency.bulkSynchronous";
constexpr char kAsynchronous[] = "exchange.parameterServer.consistency.asynchronous";
constexpr char kBoundedDelay[] = "exchange.parameterServer.consistency.boundedDelay";
constexpr char kStale[] = "exchange.parameterServer.consistency.staleSynchronous";
constexpr char kEager[] = "exchange.parameterServer.consistency.eagerStaleSynchronous";
constexpr char kBackups[] = "exchange.parameterServer.consistency.backupWorkers";
constexpr char kSoftSync[] = "exchange.parameterServer.consistency.softSync";
constexpr char kAllReduce[] = "exchange.allReduce";
constexpr char kTensors[] = "exchange.parameterServer.tensors";
constexpr char kTree[] = "exchange.parameterServer.topology.tree";
constexpr char kHostReduce[] = "exchange.parameterServer.topology.hostReduce";
constexpr char kLocalSgd[] = "update.localSgd";
constexpr char kActivations[] = "update.activations";
constexpr char kHogwild[] = "update.hogwild";
constexpr char kBfloat16[] = "compression.codec.bfloat16";
constexpr char kFloat16[] = "compression.codec.float16";
constexpr char kTernGrad[] = "compression.codec.ternGrad";
constexpr char kDeep[] = "compression.codec.deepGradientCompression";
constexpr char kEntropyTopK[] = "compression.codec.entropyTopK";
constexpr char kErrorFeedback[] = "compression.errorFeedback";
constexpr char kKeyCache[] = "compression.keyCache";
constexpr char kKktFilter[] = "compression.kktFilter";
constexpr char kClassification[] = "workload.classification";
constexpr char kLanguage[] = "workload.languageModel";
constexpr char kSparse[] = "workload.sparseLogisticRegression";
constexpr char kLinear[] = "workload.linearRegression";
constexpr char kRegression[] = "workload.regression";
constexpr char kAutoencoder[] = "workload.autoencoder";
constexpr char kSparseData[] = "dataset.train.libsvm";
constexpr char kText[] = "dataset.train.text";
constexpr char kContainer[] = "workload.container";
constexpr char kPytorch[] = "workload.pytorch";
constexpr char kProximal[] = "optimizer.proximalGradient";
constexpr char kAdaRevision[] = "optimizer.adaRevision";
constexpr char kDelayCompensated[] = "optimizer.delayCompensated";
constexpr char kValidationData[] = "dataset.validation";

constexpr char kNetwork[] = "experiment.network";

constexpr char kLeaveOut[] = "leave it out";

// Codecs that encode the numbers of a tensor together.
const std::vector<std::string>& TensorCodecs() {
  static const auto* const kCodecs = new std::vector<std::string>{"compression.codec.oneBit",
                                                                  "compression.codec.topK",
                                                                  "compression.codec.int8",
                                                                  "compression.codec.threshold",
                                                                  "compression.codec.sparseBinary",
                                                                  "compression.codec.logarithmic",
                                                                  kTernGrad,
                                                                  kDeep,
                                                                  kEntropyTopK};
  return *kCodecs;
}

std::vector<std::string> LossyCodecs() {
  std::vector<std::string> codecs = TensorCodecs();
  codecs.insert(codecs.end(), {kBfloat16, kFloat16});
  return codecs;
}

TechniqueRule Needs(std::vector<std::string> fields, std::string why,
                    std::string remedy = kLeaveOut) {
  return {TechniqueRule::Kind::kNeeds, std::move(fields), std::move(why), std::move(remedy)};
}

TechniqueRule Excludes(std::vector<std::string> fields, std::string why,
                       std::string remedy = kLeaveOut) {
  return {TechniqueRule::Kind::kExcludes, std::move(fields), std::move(why), std::move(remedy)};
}

TechniqueRule NeedsBeside(std::vector<std::string> beside, std::vector<std::string> fields,
                          std::string why, std::string remedy) {
  TechniqueRule rule = Needs(std::move(fields), std::move(why), std::move(remedy));
  rule.beside = std::move(beside);
  return rule;
}

TechniqueRule ExcludesBeside(std::vector<std::string> beside, std::vector<std::string> fields,
                             std::string why, std::string remedy) {
  return {TechniqueRule::Kind::kExcludes, std::move(fields), std::move(why), std::move(remedy),
          std::move(beside)};
}

// What training by our own program needs and another's has no use for.
Technique OwnTraining(const std::string& field) {
  return {field, {Excludes({kContainer}, "whose program sees to it itself")}};
}

std::vector<Technique> OwnTrainings() {
  std::vector<Technique> table;
  for (const char* field :
       {kPreset, "reproducible", "dataset", "optimizer", "validation", "stop", "exchange", "update",
        "compression", "checkpoint", "experiment", "export", "dataPlane",
        "replicaSpecs.coordinator.template", "replicaSpecs.coordinator.standby"}) {
    table.push_back(OwnTraining(field));
  }
  return table;
}

// What a program's own loop says, and nobody else can.
std::vector<Technique> OwnLoops() {
  std::vector<Technique> table;
  for (const char* field : {"dataset.train", "dataset.validation", "dataset.normalize", "optimizer",
                            "validation", "stop.target", "update"}) {
    table.push_back({.field = field,
                     .rules = {Excludes({kPytorch}, "whose program sees to it itself")},
                     .by_presence = true});
  }
  constexpr char kAllReduced[] = "whose workers hold the whole model and sum up gradients";
  table.push_back(
      {kServers, {Excludes({kPytorch}, kAllReduced, "write exchange: {allReduce: {}}")}});
  return table;
}

std::vector<Technique> Data() {
  std::vector<Technique> table;
  for (const auto& [csv, idx, synthetic, folder, tar, libsvm] :
       {std::array<const char*, 6>{"dataset.train.csv", "dataset.train.idx",
                                   "dataset.train.synthetic", "dataset.train.imageFolder",
                                   "dataset.train.tar", "dataset.train.libsvm"},
        {"dataset.validation.csv", "dataset.validation.idx", "dataset.validation.synthetic",
         "dataset.validation.imageFolder", "dataset.validation.tar",
         "dataset.validation.libsvm"}}) {
    table.push_back(
        {csv,
         {Needs({kClassification, kLinear, kRegression, kAutoencoder}, "which read dense samples",
                "write libsvm: {uri: ...}, or text for languageModel")}});
    for (const char* images : {idx, synthetic, folder, tar}) {
      table.push_back({images,
                       {Needs({kClassification, kAutoencoder}, "for their labels are classes",
                              "give csv to a regression, text to a languageModel")}});
    }
    table.push_back({libsvm,
                     {Needs({kSparse, kLinear}, "which read sparse samples",
                            "give csv, idx, imageFolder, tar or synthetic data to a "
                            "classification")}});
  }
  for (const char* text : {kText, "dataset.validation.text"}) {
    table.push_back({text,
                     {Needs({kLanguage}, "which predicts a text's next symbol",
                            "give csv, idx or synthetic data to a classification")}});
  }
  table.push_back({"dataset.normalize",
                   {Excludes({kSparseData},
                             "whose features stay as they are: most are 0, and would not be after "
                             "it"),
                    Excludes({kText}, "whose symbols are no amounts")}});
  table.push_back(
      {"dataset.augmentation",
       {Needs({"dataset.train.imageFolder", "dataset.train.tar"}, "for it changes images",
              "give the images as a folder, or leave it out")}});
  table.push_back({"dataset.cache",
                   {Needs({"dataset.train.imageFolder", "dataset.train.tar"},
                          "for other data are read once, when a worker starts")}});
  table.push_back(
      {"dataset.microBatchSize",
       {Excludes({kActivations}, "which sends what layers of a whole share are given")}});
  table.push_back({"dataset.onBadRecord",
                   {Needs({"dataset.train.csv", "dataset.train.libsvm", "dataset.train.imageFolder",
                           "dataset.train.tar"},
                          "for other data are right as a whole or not at all")}});
  return table;
}

// Rules that live beside the parameters on the servers.
Technique ServersRule(const std::string& field, std::vector<TechniqueRule> more = {}) {
  Technique technique{
      field,
      {Needs({kServers}, "whose servers apply it",
             "use sgd, adam, adamW or rmsProp, or write exchange: {parameterServer: {}}")}};
  technique.rules.insert(technique.rules.end(), more.begin(), more.end());
  return technique;
}

// Threads take a plain step for each sample; servers add what the weights have changed by.
TechniqueRule NotWithThreads(const char* remedy) {
  return Excludes({kHogwild}, "whose threads take plain steps", remedy);
}

std::vector<Technique> Optimizers() {
  constexpr char kUseSgd[] = "use sgd, or leave hogwild out";
  constexpr char kFewWeights[] = "whose workers hold only the weights that their samples use";
  const TechniqueRule plain = NotWithThreads(kUseSgd);
  const TechniqueRule dense = Excludes({kSparse}, kFewWeights, "use adagrad or sgd");
  return {{"optimizer.sgd.nesterov",
           {Needs({"optimizer.sgd.momentum"}, "which it looks ahead by",
                  "set momentum, such as 0.9, or leave nesterov out")}},
          {"optimizer.clipNorm",
           {Excludes({kServers}, "whose servers apply each update by itself",
                     "leave it out, or write exchange: {allReduce: {}}")}},
          {"optimizer.sgd.momentum", {NotWithThreads("leave it out, or leave hogwild out")}},
          {"optimizer.sgd.weightDecay",
           {NotWithThreads("use spec.workload.sparseLogisticRegression.l2, or leave hogwild out")}},
          {"optimizer.adam", {plain}},
          {"optimizer.adamW", {plain}},
          {"optimizer.rmsProp", {plain}},
          {"optimizer.lars",
           {Excludes({kServers}, "whose shards are parts of tensors, while it measures whole ones",
                     "use sgd, adam, adamW or rmsProp, or write exchange: {allReduce: {}}")}},
          ServersRule("optimizer.adagrad", {plain}),
          ServersRule(kAdaRevision, {dense}),
          ServersRule(kDelayCompensated, {dense}),
          ServersRule("optimizer.ftrl", {plain}),
          ServersRule(kProximal, {plain})};
}

// A sum of several workers' pushes has no meaning where each must be seen by itself.
std::vector<Technique> Exchanges() {
  constexpr char kFlat[] = "write topology: {flat: {}}";
  std::vector<Technique> table = {
      {"replicaSpecs.parameterServer",
       {Excludes({kContainer}, "whose program sees to it itself"),
        Needs({kServers}, "for nobody else has anything to put there",
              "leave it out, or write exchange: {parameterServer: {}}")}},
      {"reproducible",
       {Excludes({kServers}, "whose sums depend on how many workers there are",
                 "leave it out, or write exchange: {allReduce: {}}")}},
      {"exchange.allReduce.algorithm",
       {Excludes({"reproducible"}, "which sums up in an order of its own",
                 "write algorithm: Auto, or leave it out")}},
      {kEager,
       {Excludes({kSparse}, "whose workers hold only the weights that their samples use",
                 "use consistency: {staleSynchronous: {}}")}}};
  constexpr char kBoth[] = "leave it out, or leave exchange.parameterServer.tensors out";
  table.push_back(
      {kTensors,
       {Needs({kBulkSynchronous}, "for the workers make every step together",
              "write consistency: {bulkSynchronous: {}}"),
        Needs({kClassification, kLanguage, kRegression, kAutoencoder},
              "whose models have several tensors",
              "leave it out, and all parameters lie on the servers"),
        Excludes({kTree, kHostReduce}, "which sums up whole gradients on their way", kBoth),
        Excludes({kActivations}, "whose layers all lie on servers", kBoth),
        Excludes(
            {"optimizer.adagrad", kAdaRevision, kDelayCompensated, "optimizer.ftrl", kProximal},
            "which servers alone apply, while workers apply it to the other tensors",
            "use sgd, adam, adamW or rmsProp"),
        Excludes(LossyCodecs(), "for the other tensors travel as they are",
                 "write codec: {identity: {}}, or leave it out")}});
  for (const char* topology : {kTree, kHostReduce}) {
    table.push_back(
        {topology,
         {Excludes({kBackups}, "which asks of each push whether it is late", kFlat),
          Excludes({kEager}, "which has each worker send early what it has", kFlat),
          Excludes({kLocalSgd}, "which lets workers go different ways between two pushes", kFlat),
          Excludes({kAdaRevision, kDelayCompensated}, "which remembers what each worker has read",
                   kFlat),
          Excludes({kSparse}, "which has each worker push other rows", kFlat),
          // Elsewhere what is summed up is a mean.
          ExcludesBeside({kAsynchronous, kBoundedDelay, kStale}, {kProximal},
                         "which takes its penalty with each gradient, not with a sum of several",
                         kFlat)}});
  }
  return table;
}

std::vector<Technique> Updates() {
  constexpr char kOnlyServers[] = "the only exchange that does it yet";
  return {
      {kLocalSgd,
       {Needs({kServers}, kOnlyServers),
        Excludes({kBulkSynchronous, kBackups, kEager}, "which says itself when updates are sent",
                 "use consistency: {asynchronous: {}}, boundedDelay, staleSynchronous or softSync, "
                 "or leave localSgd out"),
        Excludes({kProximal}, "whose penalty is that of each gradient, not of a sum of several"),
        Excludes({kSparse}, "whose workers hold only the weights that their samples use")}},
      {kActivations,
       {Needs({kServers}, kOnlyServers),
        Needs({kClassification, kRegression, kAutoencoder},
              "whose models have fully connected layers"),
        Excludes({kTree, kHostReduce}, "which sums up gradients on their way")}},
      {kHogwild,
       {Needs({kSparse},
              "whose samples use few weights each: threads of a dense model would add to the same "
              "numbers"),
        Needs({kAsynchronous}, "for nobody waits for anybody",
              "write consistency: {asynchronous: {}}, or leave hogwild out")}}};
}

// Numbers that were rounded once are rounded no more: who sums them up decodes them first.
Technique Codec(const std::string& field) {
  constexpr char kIdentity[] = "write codec: {identity: {}}, or leave it out";
  return {field,
          {Needs({kAllReduce, kServers}, "for nothing else sends updates", kIdentity),
           Excludes({"reproducible"}, "whose gradients travel as they are", kIdentity)}};
}

Technique TensorCodec(const std::string& field) {
  constexpr char kClose[] = "use codec: {float16: {}} or bfloat16, or leave it out";
  Technique technique = Codec(field);
  technique.rules.push_back(
      Excludes({kTree, kHostReduce}, "where sums would be encoded again on their way", kClose));
  technique.rules.push_back(Excludes({kActivations}, "whose products are no tensors", kClose));
  technique.rules.push_back(Excludes({kSparseData}, "whose pushes are rows of a table", kClose));
  return technique;
}

// Velocities are made where updates are encoded: another momentum would count them twice.
TechniqueRule NoOtherMomentum() {
  return Excludes({"optimizer.sgd.momentum", "optimizer.adam", "optimizer.adamW",
                   "optimizer.rmsProp", "optimizer.lars", "optimizer.adagrad", kAdaRevision,
                   kDelayCompensated, "optimizer.ftrl", kProximal},
                  "whose steps would count what was kept once more",
                  "use optimizer: {sgd: {}} without momentum, for the codec has its own");
}

std::vector<Technique> Compressions() {
  constexpr char kRows[] = "whose workers name the rows that they read and push";
  std::vector<Technique> table = {
      Codec(kBfloat16),
      Codec(kFloat16),
      {"compression.warmupSteps", {Needs(TensorCodecs(), "for nothing else loses much at first")}},
      {kErrorFeedback,
       {Needs(LossyCodecs(), "for nothing else leaves anything out"),
        Excludes({kTernGrad}, "which is right on average: what it leaves out is not missing"),
        Excludes({kTree, kHostReduce}, "where sums are encoded that are no worker's own"),
        Excludes({kActivations}, "whose products are no elements that it could be kept for")}},
      {.field = kKeyCache, .rules = {Needs({kSparse}, kRows)}, .by_presence = true},
      {kKktFilter,
       {Needs({kSparse}, kRows),
        Needs({"optimizer.proximalGradient.l1"},
              "which holds a weight at 0 against small gradients",
              "write optimizer: {proximalGradient: {l1: ...}}, or leave kktFilter out"),
        Excludes({kBulkSynchronous, kBackups, kSoftSync},
                 "which applies several pushes as one: what none of them changes, they may change "
                 "together",
                 "use consistency: {asynchronous: {}}, boundedDelay or staleSynchronous, or leave "
                 "kktFilter out")}}};
  for (const std::string& codec : TensorCodecs()) table.push_back(TensorCodec(codec));
  for (const char* codec : {kDeep, kEntropyTopK}) table.push_back({codec, {NoOtherMomentum()}});
  for (const char* codec : {"ternGrad", "int8"}) {
    table.push_back({absl::StrCat("compression.codec.", codec, ".sharedScale"),
                     {Excludes({kServers}, "whose pushes have their own scales")}});
  }
  return table;
}

// Of a network, at workers that all hold it, so that all skip a step or none does.
std::vector<Technique> Numbers() {
  return {{"numerics",
           {Needs({kClassification, kLanguage}, "whose networks are computed in layers"),
            Excludes({kServers}, "whose servers apply each push by itself, to weights of 32 bits",
                     "leave it out, or write exchange: {allReduce: {}}")}}};
}

std::vector<Technique> Workloads() {
  constexpr char kGive[] = "give it, or leave this out";
  return {
      {kSparse,
       {Needs({kServers}, "for its weights lie on servers",
              "write exchange: {parameterServer: {}}")}},
      {kLinear,
       {NeedsBeside({kSparseData}, {kServers}, "for the weights of sparse samples lie on servers",
                    "write exchange: {parameterServer: {}}, or give csv data"),
        ExcludesBeside({kSparseData},
                       {kEager, kTree, kHostReduce, kLocalSgd, kAdaRevision, kDelayCompensated},
                       "which needs all weights, where workers hold only those that their samples "
                       "use",
                       "leave it out, or give csv data")}},
      {"workload.classification.model.transformer",
       {Needs({kLanguage}, "for its places are symbols of a text",
              "write layers: [...] with transformerBlock")}},
      {"workload.linearRegression.hashedFeatures",
       {Needs({"dataset.train.libsvm"}, "for columns of csv data have a weight each")}},
      {"validation.patience", {Needs({kValidationData}, "to judge by", kGive)}},
      {"validation.keepBest", {Needs({kValidationData}, "to judge by", kGive)}},
      {"stop.target", {Needs({kValidationData}, "to judge by", kGive)}},
      {"runPolicy.successPolicy",
       {Needs({kContainer}, "for other jobs succeed when training ends")}}};
}

std::vector<Technique> Experiments() {
  return {{kNetwork,
           {Needs({"experiment.network.bandwidth", "experiment.network.delay",
                   "experiment.network.links"},
                  "for nothing else is emulated"),
            Needs({kAllReduce, kServers}, "for nothing else sends updates")}},
          {"experiment.network.podsPerHost",
           {Excludes({kHostReduce}, "which goes by the nodes that pods really run on",
                     "write topology: {flat: {}}, or leave it out")}}};
}

std::vector<Technique> AllTechniques() {
  std::vector<Technique> table;
  for (const auto& part : {OwnTrainings(), OwnLoops(), Workloads(), Data(), Optimizers(),
                           Exchanges(), Updates(), Compressions(), Numbers(), Experiments()}) {
    table.insert(table.end(), part.begin(), part.end());
  }
  return table;
}

// "spec.a", "spec.a or spec.b", "spec.a, spec.b or spec.c".
std::string OneOf(const std::vector<std::string>& fields, const char* prefix = "spec.") {
  std::string text;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const char* before = i == 0 ? "" : i + 1 == fields.size() ? " or " : ", ";
    absl::StrAppend(&text, before, prefix, fields[i]);
  }
  return text;
}

bool IsPresent(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                             : reflection.HasField(message, &field);
}

bool IsOnAt(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(message, &field) != 0;
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.GetInt64(message, &field) != 0;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(message, &field) != 0;
    case FieldDescriptor::CPPTYPE_ENUM: {
      const std::string off = RulesOf(field).default_value();  // JSON: with its quotes
      return absl::StrCat("\"", EnumText(*reflection.GetEnum(message, &field)), "\"") != off;
    }
    default:
      return true;
  }
}

// What of `rule` is broken, as a field's path or, of what is needed, the first alternative; null if
// nothing is.
const std::string* Broken(const v1alpha1::TrainingJobSpec& spec, const TechniqueRule& rule) {
  const auto on = [&](const std::string& field) { return IsOn(spec, field); };
  if (!rule.beside.empty() && std::ranges::none_of(rule.beside, on)) return nullptr;
  const auto found = std::ranges::find_if(rule.fields, on);
  if (rule.kind == TechniqueRule::Kind::kExcludes)
    return found == rule.fields.end() ? nullptr : &*found;
  return found == rule.fields.end() ? &rule.fields.front() : nullptr;
}

std::string ErrorOf(const v1alpha1::TrainingJobSpec& spec, const Technique& technique) {
  if (!technique.pending.empty()) return WordsOfPending(technique);
  for (const TechniqueRule& rule : technique.rules) {
    if (const std::string* field = Broken(spec, rule)) return WordsOf(rule, *field);
  }
  return "";
}

bool IsBelow(const FieldError& error, const FieldError& other) {
  return absl::StartsWith(error.path, other.path + ".");
}

void AddOnce(std::vector<std::string>& texts, std::string text) {
  if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
}

std::string BesideText(const TechniqueRule& rule) {
  return rule.beside.empty() ? "" : absl::StrCat(" (beside ", OneOf(rule.beside, ""), ")");
}

}  // namespace

const std::vector<Technique>& Techniques() {
  static const auto* const kTable = new std::vector<Technique>(AllTechniques());
  return *kTable;
}

std::vector<const FieldDescriptor*> WayTo(const std::string& path) {
  std::vector<const FieldDescriptor*> way;
  const Descriptor* message = v1alpha1::TrainingJobSpec::descriptor();
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(path, '.'))) {
    const FieldDescriptor* field = message == nullptr ? nullptr : FindField(*message, name);
    STARLING_CHECK(field != nullptr, path.c_str());
    way.push_back(field);
    message = field->message_type();
  }
  return way;
}

// Most of the table speaks of what a job does not have, so the way is gone only as far as there is
// something. (That every path of the table exists, a test holds.)
bool IsOn(const v1alpha1::TrainingJobSpec& spec, const std::string& path, bool by_presence) {
  const Message* message = &spec;
  std::string_view rest = path;
  while (true) {
    const std::size_t dot = rest.find('.');
    const FieldDescriptor* field = FindField(*message->GetDescriptor(), rest.substr(0, dot));
    STARLING_CHECK(field != nullptr, path.c_str());
    if (!IsPresent(*message, *field)) return false;
    if (dot == std::string_view::npos) return by_presence || IsOnAt(*message, *field);
    message = &message->GetReflection()->GetMessage(*message, field);
    rest.remove_prefix(dot + 1);
  }
}

FieldErrors CheckTechniques(const v1alpha1::TrainingJobSpec& spec,
                            const std::vector<Technique>& table) {
  FieldErrors all;
  v1alpha1::TrainingJobSpec refused_preset;
  for (const Technique& technique : table) {
    if (!IsOn(spec, technique.field, technique.by_presence)) continue;
    if (IsOn(refused_preset, technique.field, technique.by_presence)) continue;
    const std::string error = ErrorOf(spec, technique);
    if (error.empty()) continue;
    all.push_back({absl::StrCat("spec.", technique.field), error});
    if (technique.field == kPreset) refused_preset = PresetSpec(spec.preset());
  }
  FieldErrors errors;
  for (const FieldError& error : all) {
    const auto above = [&](const FieldError& other) { return IsBelow(error, other); };
    const auto same = [&](const FieldError& other) { return error.path == other.path; };
    if (std::ranges::none_of(all, above) && std::ranges::none_of(errors, same)) {
      errors.push_back(error);
    }
  }
  return errors;
}

std::string WordsOf(const TechniqueRule& rule, const std::string& excluded) {
  if (rule.kind == TechniqueRule::Kind::kNeeds) {
    return absl::StrCat("needs ", OneOf(rule.fields), ", ", rule.why, "; ", rule.remedy);
  }
  return absl::StrCat("does not go with spec.", excluded, ", ", rule.why, "; ", rule.remedy);
}

std::string WordsOfPending(const Technique& technique) {
  return absl::StrCat("is ", technique.pending);
}

std::vector<std::string> TechniqueTexts(const FieldDescriptor& field) {
  std::vector<std::string> texts, excluded;
  const auto is_it = [&](const std::string& path) { return WayTo(path).back() == &field; };
  for (const Technique& technique : Techniques()) {
    const bool own = is_it(technique.field);
    if (own && !technique.pending.empty()) AddOnce(texts, "not built yet");
    for (const TechniqueRule& rule : technique.rules) {
      if (rule.kind == TechniqueRule::Kind::kNeeds) {
        if (own) AddOnce(texts, absl::StrCat("needs ", OneOf(rule.fields, "")));
        continue;
      }
      for (const std::string& other : rule.fields) {
        if (own) AddOnce(excluded, other + BesideText(rule));
        if (is_it(other)) AddOnce(excluded, technique.field + BesideText(rule));
      }
    }
  }
  if (!excluded.empty()) texts.push_back("not with " + absl::StrJoin(excluded, ", "));
  return texts;
}

}  // namespace starling::spec
