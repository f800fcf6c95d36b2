// SPDX-License-Identifier: Apache-2.0
// Logistic regression over sparse samples with its weights on a parameter server, process by
// process: the worker pulls and pushes only the rows that a batch touches.
//
//   starling-sparse-bench --train FILE --test FILE [--hashed N] [--rule adagrad|ftrl|sgd]
//                         [--rate R] [--batch N] [--passes N] [--wire shm|tcp]
//
// Prints a JSON object for the reading and for each pass: seconds of training until then (without
// what these figures cost), mean loss of the training set, share of the test set that is right.
// bench/sparse.py reads them.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "bench/peers.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/batches.h"
#include "trainer/data/libsvm_source.h"
#include "trainer/kernels/span_math.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/server_loop.h"
#include "trainer/sparse/logistic_engine.h"

namespace starling::bench {
namespace {

struct Settings {
  std::string train, test, rule = "adagrad", wire = "shm";
  std::int64_t hashed = 1 << 20, batch = 64, passes = 10;
  double rate = 0.1;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string ReadWhole(const std::string& path) {
  std::ostringstream content;
  const std::ifstream file(path, std::ios::binary);
  if (!file) Require(absl::NotFoundError(path + " cannot be read"));
  content << file.rdbuf();
  return std::move(content).str();
}

// Both sets, the test set last.
struct Samples {
  std::shared_ptr<const data::SparseDataset> all;
  std::int64_t train = 0;
};
Samples ReadSamples(const Settings& settings) {
  const std::string train = ReadWhole(settings.train), test = ReadWhole(settings.test);
  const auto hashed = static_cast<std::uint64_t>(settings.hashed);
  const data::SparseDataset first = Must(data::ParseLibsvm(train, hashed, true));
  auto all = std::make_shared<data::SparseDataset>(
      Must(data::ParseLibsvm(train + (train.ends_with('\n') ? "" : "\n") + test, hashed, true)));
  return {all, first.size()};
}

parameter_server::SlotOptions SlotOf(const Settings& settings) {
  auto table = std::make_shared<parameter_server::TableSpec>();
  table->name = "parameters";
  table->kind = parameter_server::TableKind::kSparse;
  table->learning_rate = [rate = settings.rate](std::int64_t) { return rate; };
  if (settings.rule == "ftrl") {
    table->rule = optimizer::MakeFtrl({});
  } else if (settings.rule == "sgd") {
    v1alpha1::Optimizer sgd;
    sgd.mutable_sgd()->set_learning_rate(1);
    table->rule = Must(optimizer::MakeOptimizer(sgd));
  } else {
    table->rule = optimizer::MakeAdagrad({});
  }
  return {table, {0, parameter_server::kHashEnd}, consistency::StaleSynchronous{3}, {}};
}

parameter_server::Ranks BothRanks() { return {{MemberName(0), 0}, {MemberName(1), 0}}; }

std::vector<parameter_server::SlotView> OnlyView() {
  std::vector<parameter_server::SlotView> views(1);
  views[0].group.number = 1;
  views[0].group.members.push_back({BothRanks()[0], "", 1, ""});
  views[0].clients.push_back({BothRanks()[1], 1});
  return views;
}

class Trainer {
 public:
  Trainer(const Settings& settings, const Samples& samples, transport::Mesh& mesh)
      : samples_(samples),
        engine_(samples.all, 0),
        batches_(samples.train, settings.batch, 1),
        client_(BothRanks()[1], 1, {.key_cache = true}) {
    Require(client_.Enter({1, 1, {{BothRanks()[0], BothRanks()[0]}}}, BothRanks(), mesh));
    Require(client_.WaitUntilReady(Soon()).status());
  }

  void Pass() {
    for (std::int64_t i = 0; i < batches_.StepsPerEpoch(); ++i) Step(++step_);
    Require(client_.Drain(Soon()));
  }
  // Loss and accuracy of the samples from `begin` to `end`, with all weights that they use.
  engine::BatchSums Look(std::int64_t begin, std::int64_t end) {
    Fetch({engine_.AllTouched().begin(), engine_.AllTouched().end()});
    std::vector<float> numbers(static_cast<std::size_t>(end - begin));
    std::iota(numbers.begin(), numbers.end(), static_cast<float>(begin));
    return Must(engine_.Evaluate(numbers, LabelsOf(numbers)));
  }

 private:
  std::vector<std::int64_t> LabelsOf(std::span<const float> numbers) const {
    std::vector<std::int64_t> labels;
    for (const float number : numbers) {
      labels.push_back(samples_.all->labels[static_cast<std::size_t>(number)] > 0 ? 1 : 0);
    }
    return labels;
  }
  void Fetch(std::vector<std::uint64_t> keys) {
    parameter_server::Read read;
    read.clock = clock_;
    read.keys = std::move(keys);
    const std::vector<std::uint64_t> asked = read.keys;
    const parameter_server::ReadDone done = Must(client_.Pull(0, read, Soon()));
    version_ = done.version;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      std::memcpy(&engine_.parameters()[asked[i]], done.values->data() + i * sizeof(float),
                  sizeof(float));
    }
  }
  void Step(std::int64_t step) {
    const std::vector<std::int64_t> ids = batches_.SampleIds(step);
    const std::vector<float> numbers(ids.begin(), ids.end());
    const std::vector<std::uint64_t> keys = engine_.Touched(numbers);
    Fetch(keys);
    (void)Must(engine_.ComputeGradients(numbers, LabelsOf(numbers), [](std::int64_t) {}));
    std::vector<float> values;
    values.reserve(keys.size());
    for (const std::uint64_t key : keys) values.push_back(engine_.gradients()[key]);
    kernels::Scale(1 / static_cast<float>(ids.size()), values);
    parameter_server::Entry entry;
    entry.clock = clock_++;
    entry.read = version_;
    entry.weight = static_cast<double>(ids.size());
    entry.update = std::make_shared<const std::string>(
        parameter_server::Encode({parameter_server::UpdateKind::kRows, 0, 0, 0, keys, values, {}}));
    (void)client_.Push(0, entry);
  }

  const Samples& samples_;
  sparse::LogisticEngine engine_;
  const data::Batches batches_;
  parameter_server::ClientLoop client_;
  parameter_server::Clock clock_ = 0;
  parameter_server::Version version_ = 0;
  std::int64_t step_ = 0;
};

void Train(const Settings& settings) {
  const bool shm = settings.wire == "shm";
  const Wire wire{shm ? Wire::Kind::kShm : Wire::Kind::kTcp, settings.wire, absl::ZeroDuration()};
  Fork server([&](int control) {
    const auto channel = Connect(wire, 0, control);
    parameter_server::ServerLoop loop(BothRanks()[0], {SlotOf(settings)});
    (void)loop.Serve(OnlyView(), BothRanks(), *channel->mesh());
  });
  {
    const auto channel = Connect(wire, 1, server.control());
    const double begin = Now();
    const Samples samples = ReadSamples(settings);
    const double read = Now() - begin;
    std::printf("{\"read\": %.4f, \"samples\": %lld, \"pairs\": %zu}\n", read,
                static_cast<long long>(samples.train), samples.all->features.size());
    Trainer trainer(settings, samples, *channel->mesh());
    double seconds = 0;
    for (std::int64_t pass = 1; pass <= settings.passes; ++pass) {
      const double started = Now();
      trainer.Pass();
      seconds += Now() - started;
      const engine::BatchSums train = trainer.Look(0, samples.train);
      const engine::BatchSums test = trainer.Look(samples.train, samples.all->size());
      const transport::Traffic traffic = channel->mesh()->traffic(0);
      std::printf(
          "{\"pass\": %lld, \"seconds\": %.4f, \"loss\": %.6f, \"accuracy\": %.4f, \"sent\": "
          "%llu, \"received\": %llu}\n",
          static_cast<long long>(pass), seconds, train.loss / static_cast<double>(samples.train),
          static_cast<double>(test.correct) /
              static_cast<double>(samples.all->size() - samples.train),
          static_cast<unsigned long long>(traffic.payload_sent),
          static_cast<unsigned long long>(traffic.payload_received));
      std::fflush(stdout);
    }
  }
  server.Join();
}

int Main(int count, char** arguments) {
  Settings settings;
  const std::map<std::string, std::string*> texts = {{"--train", &settings.train},
                                                     {"--test", &settings.test},
                                                     {"--rule", &settings.rule},
                                                     {"--wire", &settings.wire}};
  const std::map<std::string, std::int64_t*> numbers = {
      {"--hashed", &settings.hashed}, {"--batch", &settings.batch}, {"--passes", &settings.passes}};
  for (int i = 1; i < count; i += 2) {
    const std::string name = arguments[i], value = i + 1 < count ? arguments[i + 1] : "";
    if (texts.contains(name)) {
      *texts.at(name) = value;
    } else if (numbers.contains(name) && absl::SimpleAtoi(value, numbers.at(name)) &&
               *numbers.at(name) > 0) {
    } else if (name != "--rate" || !absl::SimpleAtod(value, &settings.rate)) {
      std::fprintf(stderr, "%s %s: unknown, or no number\n", name.c_str(), value.c_str());
      return 2;
    }
  }
  Train(settings);
  return 0;
}

}  // namespace
}  // namespace starling::bench

int main(int count, char** arguments) { return starling::bench::Main(count, arguments); }
