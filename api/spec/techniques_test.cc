// SPDX-License-Identifier: Apache-2.0
// Every pair of techniques is played through the table: whether a job may have both is held against
// a list that was written down here, and each rule of the table must be noticed by it.
#include "api/spec/techniques.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "api/spec/resolve.h"
#include "api/spec/test_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::spec {
namespace {

using ::testing::HasSubstr;
using v1alpha1::TrainingJobSpec;

using Settings = std::vector<std::string>;

Settings operator+(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Settings kServers = {"exchange.parameterServer.replication=1"};
const Settings kAsynchronous = {"exchange.parameterServer.consistency.asynchronous={}"};
const Settings kSparse =
    kServers + Settings{"workload.sparseLogisticRegression={}", "dataset.train.libsvm.uri=a",
                        "dataset.validation.libsvm.uri=b"};
const Settings kSparseLinear = {"workload.linearRegression={}", "dataset.train.libsvm.uri=a",
                                "dataset.validation.libsvm.uri=b"};
const Settings kLanguage = {"workload.languageModel.model.transformer={}",
                            "dataset.train.text.uri=a", "dataset.validation.text.uri=b"};
const Settings kProximal = {"optimizer.proximalGradient.l1=0.01"};
const Settings kOwnProgram = {"workload.container={}", "dataset=null"};
const Settings kOwnLoop = {"workload.pytorch.script=a", "dataset=null"};

struct Played {
  std::string field;  // of the technique; named by its last part
  std::string value;
  Settings beside = {};  // with which it may stand alone
};

const std::vector<Played>& AllPlayed() {
  const std::string consistency = "exchange.parameterServer.consistency.";
  const std::string topology = "exchange.parameterServer.topology.";
  static const auto* const kAll = new std::vector<Played>{
      {"workload.classification.model.mlp", "{}"},
      {"workload.sparseLogisticRegression", "{}", kSparse},
      {"workload.container", "{}", kOwnProgram},
      {"workload.pytorch", R"({"script": "a"})", kOwnLoop},
      {"runPolicy.successPolicy", "AllWorkers", kOwnProgram},
      {"dataset.train.csv.uri", "a"},
      {"dataset.train.synthetic", "{}"},
      {"dataset.train.libsvm", R"({"uri": "a"})", kSparse},
      {"dataset.normalize", "true"},
      {"validation.patience", "3"},
      {"validation.keepBest", "true"},
      {"stop.target", R"({"metric": "validation/loss", "atMost": 1})"},
      {"preset", "pytorchDdp"},
      {"reproducible", "true"},
      {"exchange.none", "{}"},
      {"exchange.allReduce.algorithm", "Ring"},
      {"exchange.parameterServer.replication", "1"},
      {"exchange.parameterServer.tensors", R"(["first*"])"},
      {"replicaSpecs.parameterServer", R"({"replicas": 1})", kServers},
      {consistency + "bulkSynchronous", "{}"},
      {consistency + "asynchronous", "{}"},
      {consistency + "boundedDelay", "{}"},
      {consistency + "staleSynchronous", "{}"},
      {consistency + "eagerStaleSynchronous", "{}"},
      {consistency + "backupWorkers", "{}"},
      {consistency + "softSync", "{}"},
      {topology + "tree", "{}"},
      {topology + "hostReduce", "{}"},
      {"update.localSgd", "{}", kAsynchronous},
      {"update.activations", "{}", kServers},
      {"update.hogwild", "{}", kSparse + kAsynchronous},
      {"compression.codec.bfloat16", "{}"},
      {"compression.codec.float16", "{}"},
      {"compression.codec.oneBit", "{}"},
      {"compression.codec.topK", "{}"},
      {"compression.codec.ternGrad", "{}"},
      {"compression.codec.int8", "{}"},
      {"compression.codec.threshold", "{}"},
      {"compression.codec.deepGradientCompression", "{}"},
      {"compression.codec.sparseBinary", "{}"},
      {"compression.codec.entropyTopK", "{}"},
      {"compression.codec.logarithmic", "{}"},
      {"compression.warmupSteps", "5", {"compression.codec.oneBit={}"}},
      {"compression.errorFeedback", "true", {"compression.codec.float16={}"}},
      {"compression.keyCache", "false", kSparse},
      {"compression.kktFilter", "true", kSparse + kAsynchronous + kProximal},
      {"experiment.network", R"({"delay": "1ms"})"},
      {"experiment.network.podsPerHost", "2", {"experiment.network.delay=1ms"}},
      {"optimizer.sgd.momentum", "0.9"},
      {"optimizer.sgd.nesterov", "true", {"optimizer.sgd.momentum=0.9"}},
      {"optimizer.sgd.weightDecay", "0.1"},
      {"optimizer.adam", "{}"},
      {"optimizer.adamW", "{}"},
      {"optimizer.rmsProp", "{}"},
      {"optimizer.lars", "{}"},
      {"optimizer.adagrad", "{}", kServers},
      {"optimizer.adaRevision", "{}", kServers},
      {"optimizer.delayCompensated", "{}", kServers},
      {"optimizer.ftrl", "{}", kServers},
      {"optimizer.proximalGradient", "{}", kServers},
      {"optimizer.clipNorm", "1"},
      {"numerics", R"({"mixedPrecision": {}})"}};
  return *kAll;
}

std::string NameOf(const Played& played) {
  const std::vector<std::string> parts = absl::StrSplit(played.field, '.');
  if (played.field == "replicaSpecs.parameterServer") return "servers";
  if (parts.back() == "mlp") return "classification";
  if (parts.back() == "replication") return "parameterServer";
  return parts.back() == "uri" ? parts[parts.size() - 2] : parts.back();
}

// Nothing where no such file can be written: the reader refuses it.
std::optional<TrainingJobSpec> ReadableWith(const Settings& settings) {
  nlohmann::json job = DigitsJob();
  for (const std::string& setting : settings) {
    const auto equals = setting.find('=');
    const absl::Status status =
        SetPath(job, absl::StrCat("spec.", setting.substr(0, equals)), setting.substr(equals + 1));
    if (!status.ok()) throw std::invalid_argument(std::string(status.message()));
  }
  v1alpha1::TrainingJob read;
  if (!ReadJob(job, read).empty()) return std::nullopt;
  return Resolve(read.spec());
}

TrainingJobSpec SpecWith(const Settings& settings) {
  std::optional<TrainingJobSpec> spec = ReadableWith(settings);
  if (!spec.has_value()) throw std::invalid_argument(absl::StrJoin(settings, " "));
  return *std::move(spec);
}

Settings AloneWith(const Played& played) {
  return played.beside + Settings{absl::StrCat(played.field, "=", played.value)};
}

// A job with both, where one can be written: two members of one union cannot.
struct Pair {
  std::string a, b;
  TrainingJobSpec spec;
};

std::vector<Pair> Pairs() {
  std::vector<Pair> pairs;
  const std::vector<Played>& all = AllPlayed();
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = i; j < all.size(); ++j) {
      const Played &a = all[i], &b = all[j];
      const auto own = [](const Played& one) {
        return Settings{absl::StrCat(one.field, "=", one.value)};
      };
      const auto spec = ReadableWith(b.beside + a.beside + own(a) + own(b));
      if (!spec || !IsOn(*spec, a.field, true) || !IsOn(*spec, b.field, true)) continue;
      pairs.push_back({NameOf(a), NameOf(b), *spec});
    }
  }
  return pairs;
}

// Who is refused beside whom, of those that may stand alone. Each pair is listed once.
constexpr const char* kRefused = R"(
activations: clipNorm deepGradientCompression entropyTopK errorFeedback int8 keyCache kktFilter lars
activations: logarithmic numerics oneBit sparseBinary ternGrad threshold topK warmupSteps
adaRevision: clipNorm numerics
adagrad: clipNorm numerics
algorithm: activations adaRevision adagrad delayCompensated ftrl hogwild keyCache kktFilter localSgd
algorithm: proximalGradient servers
asynchronous: clipNorm lars numerics
backupWorkers: clipNorm hogwild hostReduce kktFilter lars localSgd numerics tree
bfloat16: warmupSteps
boundedDelay: clipNorm hogwild lars numerics
bulkSynchronous: clipNorm hogwild kktFilter lars localSgd numerics
classification: hogwild keyCache kktFilter libsvm
container: activations adaRevision adagrad adam adamW algorithm asynchronous backupWorkers bfloat16
container: boundedDelay bulkSynchronous clipNorm csv deepGradientCompression delayCompensated
container: eagerStaleSynchronous entropyTopK errorFeedback float16 ftrl hogwild hostReduce int8
container: keepBest keyCache kktFilter lars libsvm localSgd logarithmic momentum nesterov network
container: none normalize numerics oneBit parameterServer patience podsPerHost preset
container: proximalGradient reproducible rmsProp servers softSync sparseBinary staleSynchronous
container: synthetic target tensors ternGrad threshold topK tree warmupSteps weightDecay
csv: hogwild keyCache kktFilter
deepGradientCompression: adaRevision adagrad adam adamW delayCompensated ftrl keyCache kktFilter
deepGradientCompression: lars momentum nesterov proximalGradient rmsProp
delayCompensated: clipNorm numerics
eagerStaleSynchronous: clipNorm hogwild hostReduce keyCache kktFilter lars localSgd numerics tree
entropyTopK: adaRevision adagrad adam adamW delayCompensated ftrl keyCache kktFilter lars momentum
entropyTopK: nesterov proximalGradient rmsProp
float16: warmupSteps
ftrl: clipNorm numerics
hogwild: adaRevision adagrad adam adamW clipNorm deepGradientCompression delayCompensated
hogwild: entropyTopK ftrl int8 kktFilter lars logarithmic momentum nesterov numerics oneBit
hogwild: proximalGradient rmsProp sparseBinary ternGrad threshold topK warmupSteps weightDecay
hostReduce: activations adaRevision clipNorm deepGradientCompression delayCompensated entropyTopK
hostReduce: errorFeedback hogwild int8 keyCache kktFilter lars localSgd logarithmic numerics oneBit
hostReduce: podsPerHost sparseBinary ternGrad threshold topK warmupSteps
int8: keyCache kktFilter
keyCache: adaRevision clipNorm delayCompensated lars numerics
kktFilter: adaRevision adagrad adam adamW clipNorm delayCompensated ftrl lars momentum nesterov
kktFilter: numerics proximalGradient rmsProp weightDecay
libsvm: activations adaRevision algorithm clipNorm deepGradientCompression delayCompensated
libsvm: eagerStaleSynchronous entropyTopK hostReduce int8 lars localSgd logarithmic none normalize
libsvm: numerics oneBit reproducible sparseBinary tensors ternGrad threshold topK tree warmupSteps
localSgd: clipNorm keyCache kktFilter lars numerics proximalGradient
logarithmic: keyCache kktFilter
none: activations adaRevision adagrad bfloat16 deepGradientCompression delayCompensated entropyTopK
none: errorFeedback float16 ftrl hogwild int8 keyCache kktFilter localSgd logarithmic network oneBit
none: podsPerHost proximalGradient servers sparseBinary ternGrad threshold topK warmupSteps
normalize: hogwild keyCache kktFilter
oneBit: keyCache kktFilter
parameterServer: clipNorm lars numerics
proximalGradient: clipNorm numerics
pytorch: activations adaRevision adagrad adam adamW asynchronous backupWorkers boundedDelay
pytorch: bulkSynchronous clipNorm csv delayCompensated eagerStaleSynchronous ftrl hogwild hostReduce
pytorch: keepBest keyCache kktFilter lars libsvm localSgd momentum nesterov normalize numerics
pytorch: parameterServer patience proximalGradient rmsProp servers softSync staleSynchronous
pytorch: successPolicy synthetic target tensors tree weightDecay
reproducible: activations adaRevision adagrad algorithm asynchronous backupWorkers bfloat16
reproducible: boundedDelay bulkSynchronous deepGradientCompression delayCompensated
reproducible: eagerStaleSynchronous entropyTopK errorFeedback float16 ftrl hogwild hostReduce int8
reproducible: keyCache kktFilter localSgd logarithmic oneBit parameterServer proximalGradient
reproducible: servers softSync sparseBinary staleSynchronous tensors ternGrad threshold topK tree
reproducible: warmupSteps
servers: clipNorm lars numerics
softSync: clipNorm hogwild kktFilter lars numerics
sparseBinary: keyCache kktFilter
sparseLogisticRegression: activations adaRevision algorithm clipNorm csv deepGradientCompression
sparseLogisticRegression: delayCompensated eagerStaleSynchronous entropyTopK hostReduce int8 lars
sparseLogisticRegression: localSgd logarithmic none normalize numerics oneBit reproducible
sparseLogisticRegression: sparseBinary successPolicy synthetic tensors ternGrad threshold topK tree
sparseLogisticRegression: warmupSteps
staleSynchronous: clipNorm hogwild lars numerics
successPolicy: activations adaRevision adagrad adam adamW algorithm asynchronous backupWorkers
successPolicy: bfloat16 boundedDelay bulkSynchronous clipNorm csv deepGradientCompression
successPolicy: delayCompensated eagerStaleSynchronous entropyTopK errorFeedback float16 ftrl hogwild
successPolicy: hostReduce int8 keepBest keyCache kktFilter lars libsvm localSgd logarithmic momentum
successPolicy: nesterov network none normalize numerics oneBit parameterServer patience podsPerHost
successPolicy: preset proximalGradient reproducible rmsProp servers softSync sparseBinary
successPolicy: staleSynchronous synthetic target tensors ternGrad threshold topK tree warmupSteps
successPolicy: weightDecay
synthetic: hogwild keyCache kktFilter
tensors: activations adaRevision adagrad asynchronous backupWorkers bfloat16 boundedDelay clipNorm
tensors: deepGradientCompression delayCompensated eagerStaleSynchronous entropyTopK errorFeedback
tensors: float16 ftrl hogwild hostReduce int8 keyCache kktFilter lars localSgd logarithmic numerics
tensors: oneBit proximalGradient softSync sparseBinary staleSynchronous ternGrad threshold topK tree
tensors: warmupSteps
ternGrad: errorFeedback keyCache kktFilter
threshold: keyCache kktFilter
topK: keyCache kktFilter
tree: activations adaRevision clipNorm deepGradientCompression delayCompensated entropyTopK
tree: errorFeedback hogwild int8 keyCache kktFilter lars localSgd logarithmic numerics oneBit
tree: sparseBinary ternGrad threshold topK warmupSteps
warmupSteps: keyCache kktFilter
)";

std::map<std::string, std::set<std::string>> Listed() {
  std::map<std::string, std::set<std::string>> refused;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(kRefused, '\n'))) {
    const std::vector<std::string> sides = absl::StrSplit(line, ": ");
    if (sides.size() != 2) continue;
    for (const std::string& other : std::vector<std::string>(absl::StrSplit(sides[1], ' '))) {
      refused[sides[0]].insert(other);
    }
  }
  return refused;
}

std::string Lines(const std::map<std::string, std::set<std::string>>& refused) {
  std::string lines;
  for (const auto& [name, others] : refused) {
    absl::StrAppend(&lines, name, ": ", absl::StrJoin(others, " "), "\n");
  }
  return lines;
}

std::map<std::string, std::set<std::string>> RefusedBy(const std::vector<Technique>& table) {
  std::map<std::string, std::set<std::string>> refused;
  for (const Pair& pair : Pairs()) {
    if (!CheckTechniques(pair.spec, table).empty()) refused[pair.a].insert(pair.b);
  }
  return refused;
}

TEST(Techniques, EachStandsAloneWithWhatItNeeds) {
  for (const Played& played : AllPlayed()) {
    EXPECT_EQ(Format(CheckTechniques(SpecWith(AloneWith(played)))), "") << played.field;
  }
}

TEST(Techniques, PairsAreRefusedThatAreListedAndNoOthers) {
  EXPECT_EQ(Lines(RefusedBy(Techniques())), Lines(Listed()));
}

// The control: a table that lacks a rule allows something, or says something else, which the pairs
// above, or a technique without what it needs, show.
TEST(Techniques, EachRuleOfTheTableIsNoticed) {
  std::vector<TrainingJobSpec> jobs;
  for (const Pair& pair : Pairs()) jobs.push_back(pair.spec);
  for (const Played& played : AllPlayed()) {
    const std::string own = absl::StrCat(played.field, "=", played.value);
    for (const Settings& settings :
         {Settings{own}, kSparse + Settings{own}, kSparseLinear + Settings{own},
          kSparseLinear + kServers + Settings{own}, kAsynchronous + Settings{own},
          kServers + Settings{own, "dataset.validation=null"},
          kServers + Settings{own, "dataset.microBatchSize=8"}, kOwnProgram + Settings{own},
          kAsynchronous + kProximal + Settings{own}, kOwnLoop + Settings{own},
          kLanguage + Settings{own}}) {
      const auto job = ReadableWith(settings);
      if (job.has_value()) jobs.push_back(*job);
    }
  }
  for (const char* more : {"dataset.train.imageFolder.uri=a",
                           "dataset.validation.imageFolder.uri=a",
                           "dataset.train.tar.uri=a",
                           "dataset.validation.tar.uri=a",
                           "dataset.augmentation.flip=true",
                           "dataset.cache.uri=a",
                           "dataset.onBadRecord=Skip",
                           "dataset.train.idx={\"imagesUri\": \"a\", \"labelsUri\": \"b\"}",
                           "dataset.validation.idx={\"imagesUri\": \"a\", \"labelsUri\": \"b\"}",
                           "dataset.validation.synthetic={}",
                           "dataset.validation.libsvm.uri=a",
                           "dataset.train.text.uri=a",
                           "dataset.validation.text.uri=a",
                           "workload.classification.model.transformer={}",
                           "replicaSpecs.coordinator.template={}",
                           "replicaSpecs.coordinator.standby=true",
                           "checkpoint={}",
                           "experiment={}",
                           "experiment.network={}",
                           "export={}",
                           "dataPlane={}",
                           "optimizer={}",
                           "validation={}",
                           "stop={}",
                           "exchange={}",
                           "update={}",
                           "compression={}",
                           "compression.codec.int8.sharedScale=true",
                           "compression.codec.ternGrad.sharedScale=true",
                           "workload.linearRegression.hashedFeatures=2"}) {
    for (const Settings& beside :
         {Settings{}, kSparse, kServers, Settings{"workload.container={}"}, kOwnLoop}) {
      const auto job = ReadableWith(beside + Settings{more});
      if (job.has_value()) jobs.push_back(*job);
    }
  }
  const std::vector<Technique>& whole = Techniques();
  for (std::size_t row = 0; row < whole.size(); ++row) {
    if (!whole[row].pending.empty()) continue;  // below
    for (std::size_t rule = 0; rule < whole[row].rules.size(); ++rule) {
      for (std::size_t field = 0; field < whole[row].rules[rule].fields.size(); ++field) {
        Technique without = whole[row];
        auto& rules = without.rules;
        if (rules[rule].kind == TechniqueRule::Kind::kNeeds || rules[rule].fields.size() == 1) {
          rules.erase(rules.begin() + static_cast<std::ptrdiff_t>(rule));
        } else {
          rules[rule].fields.erase(rules[rule].fields.begin() + static_cast<std::ptrdiff_t>(field));
        }
        bool noticed = false;
        for (const TrainingJobSpec& job : jobs) {
          noticed =
              noticed || CheckTechniques(job, {whole[row]}) != CheckTechniques(job, {without});
        }
        EXPECT_TRUE(noticed) << whole[row].field << ": "
                             << WordsOf(whole[row].rules[rule],
                                        whole[row].rules[rule].fields[field]);
      }
    }
  }
}

// Nothing in the table is pending at present, so the rule is shown with a row of its own.
TEST(Techniques, WhatNoTrainerDoesYetIsRefusedWithARemedy) {
  for (const Technique& technique : Techniques()) EXPECT_EQ(technique.pending, "");
  const Technique pending{
      .field = "reproducible", .rules = {}, .pending = "not built yet; leave it out"};
  const FieldErrors errors = CheckTechniques(SpecWith({"reproducible=true"}), {pending});
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].path, "spec.reproducible");
  EXPECT_EQ(errors[0].message, "is not built yet; leave it out");
  EXPECT_THAT(CheckTechniques(SpecWith({}), {pending}), ::testing::IsEmpty());
}

TEST(Techniques, LinearRegressionIsForEitherExchangeButSparseSamplesNeedServers) {
  const auto errors_of = [](const Settings& settings) {
    return Format(CheckTechniques(SpecWith(settings)));
  };
  const Settings dense = {"workload.linearRegression={}", "dataset.train.csv.uri=a",
                          "dataset.validation.csv.uri=b"};
  EXPECT_EQ(errors_of(dense), "");
  EXPECT_EQ(errors_of(dense + kServers), "");
  EXPECT_EQ(errors_of(kSparseLinear + kServers), "");
  EXPECT_THAT(errors_of(kSparseLinear),
              HasSubstr("spec.workload.linearRegression: needs spec.exchange.parameterServer"));
  EXPECT_THAT(errors_of(kSparseLinear + kServers + Settings{"optimizer.adaRevision={}"}),
              HasSubstr("does not go with spec.optimizer.adaRevision"));
}

TEST(Techniques, LanguageModelsReadTextsOverEitherExchangeAndNobodyElseDoes) {
  const auto errors_of = [](const Settings& settings) {
    return Format(CheckTechniques(SpecWith(settings)));
  };
  EXPECT_EQ(errors_of(kLanguage), "");
  EXPECT_EQ(errors_of(kLanguage + kServers), "");
  EXPECT_EQ(errors_of(kLanguage + Settings{"reproducible=true"}), "");
  EXPECT_EQ(errors_of(kLanguage + Settings{"exchange.parameterServer.tensors=[\"a\"]"}), "");
  EXPECT_THAT(errors_of({"dataset.train.text.uri=a"}),
              HasSubstr("spec.dataset.train.text: needs spec.workload.languageModel"));
  EXPECT_THAT(errors_of(kLanguage + Settings{"dataset.train.csv.uri=a"}),
              HasSubstr("spec.dataset.train.csv: needs spec.workload.classification"));
  EXPECT_THAT(errors_of(kLanguage + Settings{"dataset.normalize=true"}),
              HasSubstr("spec.dataset.normalize: does not go with spec.dataset.train.text"));
  EXPECT_THAT(errors_of({"workload.classification.model.transformer={}"}),
              HasSubstr("model.transformer: needs spec.workload.languageModel"));
}

TEST(Techniques, EachErrorHasAReasonAndARemedy) {
  for (const Technique& technique : Techniques()) {
    for (const TechniqueRule& rule : technique.rules) {
      EXPECT_FALSE(rule.why.empty() || rule.remedy.empty()) << technique.field;
      EXPECT_NE(rule.remedy.back(), '.') << technique.field;
      EXPECT_FALSE(rule.fields.empty()) << technique.field;
      for (const std::string& field : rule.fields + rule.beside) WayTo(field);
    }
  }
}

TEST(Techniques, WhatIsAboveARefusedFieldSpeaksForIt) {
  const FieldErrors errors =
      CheckTechniques(SpecWith({"workload.container={}", "dataset=null", "validation.patience=3"}));
  ASSERT_EQ(errors.size(), 1U) << Format(errors);
  EXPECT_EQ(errors[0].path, "spec.validation");
}

TEST(TechniqueTexts, AreToldOnBothSides) {
  const auto texts = [](const std::string& path) {
    return absl::StrJoin(TechniqueTexts(*WayTo(path).back()), "; ");
  };
  EXPECT_THAT(texts("compression.kktFilter"),
              HasSubstr("needs optimizer.proximalGradient.l1; not with "
                        "exchange.parameterServer.consistency.bulkSynchronous"));
  EXPECT_THAT(texts("exchange.parameterServer.consistency.softSync"),
              HasSubstr("not with compression.kktFilter"));
  EXPECT_THAT(texts("compression.codec.float16"),
              HasSubstr("not with exchange.parameterServer.tensors, reproducible"));
  EXPECT_EQ(texts("seed"), "");
}

}  // namespace
}  // namespace starling::spec
