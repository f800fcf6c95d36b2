// SPDX-License-Identifier: Apache-2.0
// The program as scripts see it: arguments, exit codes, what goes where; and what `run` decides.
#include "cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/apply.h"
#include "cli/arguments.h"
#include "cli/control_plane.h"
#include "cli/history.h"
#include "cli/job_source.h"
#include "controller/history/sql_history.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class NoInterrupts final : public Interrupts {
 public:
  int count() const override { return 0; }
  void Wait(absl::Duration) const override {}
};

struct Outcome {
  int code;
  std::string out;
  std::string error;
};

constexpr const char* kJob = R"(
apiVersion: starling.dev/v1alpha1
kind: TrainingJob
metadata: {name: digits}
spec:
  workload: {classification: {model: {mlp: {hidden: [8]}}}}
  dataset: {train: {csv: {uri: train.csv}}}
)";

class ProgramTest : public testing::Test {
 protected:
  ProgramTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "starling-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    Write("train.csv", "a,b,label\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n");
    Write("job.yaml", kJob);
  }
  ~ProgramTest() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name) const { return (folder_ / name).string(); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(File(name)) << text;
  }

  Outcome Call(const std::vector<std::string>& words) {
    std::ostringstream out;
    std::ostringstream error;
    Terminal terminal(out, error, {});
    const NoInterrupts interrupts;
    const auto environment = [this](const char* name) {
      return std::string_view(name) == "STARLING_HOME" ? File("home") : std::string();
    };
    const int code =
        RunProgram({terminal, clock_, interrupts, environment, File("no-programs")}, words);
    return {code, out.str(), error.str()};
  }

  std::unique_ptr<kube::KubeClient> Store() {
    kube::EmbeddedOptions options;
    options.path = File("home/store.db");
    return *kube::OpenEmbeddedKubeClient(clock_, options);
  }

  const clock::FakeClock clock_;
  std::filesystem::path folder_;
};

TEST_F(ProgramTest, HelpIsDataAndNoCommandIsAMistake) {
  EXPECT_EQ(Call({"help"}).code, 0);
  EXPECT_THAT(Call({"help"}).out, HasSubstr("Exit codes"));
  EXPECT_EQ(Call({"--help"}).code, 0);
  EXPECT_EQ(Call({}).code, 2);
  EXPECT_THAT(Call({}).out, IsEmpty());
  EXPECT_EQ(Call({"help", "nonsense"}).code, 2);
}

TEST_F(ProgramTest, EveryCommandHasHelpThatBeginsWithExamples) {
  for (const Verb& verb : Verbs()) {
    const std::string name(verb.name);
    const Outcome asked = Call({name, "--help"});
    EXPECT_EQ(asked.code, 0) << name;
    EXPECT_EQ(asked.out, Call({"help", name}).out);
    EXPECT_LT(asked.out.find("Examples:"), asked.out.find("Usage:")) << name;
  }
}

TEST_F(ProgramTest, AMistypedCommandOrFlagGetsASuggestion) {
  const Outcome verb = Call({"scael", "digits"});
  EXPECT_EQ(verb.code, 2);
  EXPECT_THAT(verb.error, HasSubstr("did you mean \"scale\"?"));
  const Outcome flag = Call({"scale", "digits", "--replcas", "4"});
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.error, HasSubstr("did you mean \"--replicas\"?"));
  EXPECT_THAT(Call({"get", "pdos"}).error, HasSubstr("did you mean \"pods\"?"));
}

TEST_F(ProgramTest, WrongUsageIsExitCode2) {
  const std::vector<std::vector<std::string>> wrong = {{"run"},
                                                       {"run", "a", "b"},
                                                       {"run", "a", "-o", "yaml"},
                                                       {"scale", "digits"},
                                                       {"scale", "digits", "--replicas"},
                                                       {"scale", "digits", "--replicas", "many"},
                                                       {"get", "jobs", "-o", "table"},
                                                       {"get", "pods", "--history"},
                                                       {"logs", "x", "--tail", "-3"},
                                                       {"suspend", "x", "--timeout", "soon"},
                                                       {"completion", "tcsh"},
                                                       {"delete", "pod", "x"},
                                                       {"version", "--wait"}};
  for (const auto& words : wrong) {
    EXPECT_EQ(Call(words).code, 2) << testing::PrintToString(words);
  }
}

TEST_F(ProgramTest, WhatIsNotThereIsExitCode3) {
  const std::vector<std::vector<std::string>> missing = {{"get", "job", "x"},
                                                         {"get", "tj/x"},
                                                         {"get", "pods", "x"},
                                                         {"describe", "x"},
                                                         {"scale", "x", "--replicas", "2"},
                                                         {"suspend", "x"},
                                                         {"resume", "x"},
                                                         {"delete", "x"},
                                                         {"logs", "x"}};
  for (const auto& words : missing) {
    EXPECT_EQ(Call(words).code, 3) << testing::PrintToString(words);
  }
}

TEST_F(ProgramTest, AWrongFileIsExitCode2AndStartsNothing) {
  const std::pair<const char*, const char*> wrong[] = {
      {"spec.seed=-1", "spec.seed"},
      {"spec.sed=1", "spec.sed"},
      {"spec.dataset.train.csv.uri=missing.csv", "spec.dataset.train.csv.uri"},
      {"nonsense", "path=value"}};
  for (const auto& [setting, path] : wrong) {
    const Outcome outcome = Call({"run", File("job.yaml"), "--set", setting});
    EXPECT_EQ(outcome.code, 2) << setting;
    EXPECT_THAT(outcome.error, HasSubstr(path));
    EXPECT_THAT(outcome.out, IsEmpty());
  }
  EXPECT_EQ(Call({"run", File("missing.yaml")}).code, 2);
  EXPECT_FALSE(std::filesystem::exists(File("home")));
}

TEST_F(ProgramTest, ValidateShowsTheJobWithItsDefaults) {
  const Outcome outcome = Call({"validate", File("job.yaml"), "--set", "spec.stop.epochs=7"});

  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("globalBatchSize: 64"));
  EXPECT_THAT(outcome.out, HasSubstr("epochs: 7"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("last-applied-spec")));
  EXPECT_EQ(Call({"validate", File("job.yaml"), "--set", "spec.seed=x"}).code, 2);
}

TEST_F(ProgramTest, ATemplateOfTheHomeOrOfAFileIsAppliedAndItsBoundsHold) {
  const std::string small =
      "apiVersion: starling.dev/v1alpha1\nkind: TrainingTemplate\nmetadata: {name: small}\n"
      "spec: {defaults: {stop: {epochs: 3}}, bounds: {fields: [{field: stop.epochs, maximum: "
      "5}]}}\n";
  Write("small.yaml", small);
  const std::string ref = "spec.templateRef.name=small";
  const std::vector<std::string> validate = {"validate", File("job.yaml"), "--set", ref};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Outcome missing = Call(validate);
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.error, HasSubstr("there is no TrainingTemplate \"small\": no file of"));
  const std::vector<std::string> file = {"--templates", File("small.yaml")};
  EXPECT_THAT(Call(with(validate, file)).out, HasSubstr("epochs: 3"));
  EXPECT_THAT(Call(with(validate, {"--templates", File("none")})).error,
              HasSubstr("there is no such file"));
  const std::vector<std::string> submit = {"submit", File("job.yaml"), "--set", ref};
  EXPECT_THAT(Call(with(with(submit, file), {"--set", "spec.stop.epochs=6"})).error,
              HasSubstr("spec.stop.epochs: is 6, and TrainingTemplate \"small\" allows at most 5"));
  std::filesystem::create_directories(File("home/templates"));
  Write("home/templates/any.yaml", small);
  EXPECT_EQ(Call(submit).code, 0);
  EXPECT_THAT(Call({"get", "job", "digits", "-o", "yaml"}).out, HasSubstr("epochs: 3"));
  std::filesystem::remove_all(File("home/templates"));
  EXPECT_THAT(Call(with(submit, file)).out, HasSubstr("unchanged"));
}

TEST_F(ProgramTest, ASubmittedJobCanBeSeenEditedAndDeleted) {
  ASSERT_EQ(Call({"submit", File("job.yaml")}).code, 0);

  EXPECT_EQ(Call({"get", "jobs", "-o", "name"}).out, "trainingjob.starling.dev/digits\n");
  EXPECT_THAT(Call({"get", "jobs"}).out, HasSubstr("Pending"));
  EXPECT_THAT(Call({"get", "job", "tj/digits", "-o", "json"}).out, HasSubstr(File("train.csv")))
      << "URIs are absolute";
  EXPECT_EQ(Call({"scale", "tj/digits", "--replicas", "3"}).code, 0);
  EXPECT_THAT(Call({"scale", "digits", "--replicas", "3", "--role", "parameter-server"}).error,
              HasSubstr("has no parameter servers"));
  EXPECT_THAT(Call({"scale", "digits", "--replicas", "3", "--role", "server"}).error,
              HasSubstr("write worker or parameter-server"));
  EXPECT_EQ(Call({"suspend", "digits"}).code, 0);
  const auto job = Store()->Get(kube::kTrainingJob, {"default", "digits"});
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(kube::IntAt(*job, "/spec/replicaSpecs/worker/replicas"), 3);
  EXPECT_TRUE(kube::BoolAt(*job, "/spec/runPolicy/suspend"));
  EXPECT_EQ(Call({"scale", "digits", "--replicas", "5000"}).code, 2) << "beyond its bounds";
  EXPECT_EQ(Call({"describe", "digits"}).code, 0);
  EXPECT_EQ(Call({"get", "jobs", "-n", "elsewhere", "-o", "name"}).out, "");
  EXPECT_EQ(Call({"delete", "digits"}).code, 0);
  EXPECT_EQ(Call({"get", "job", "digits"}).code, 3);
}

TEST_F(ProgramTest, ParameterServersAreScaledByTheirRole) {
  ASSERT_EQ(
      Call({"submit", File("job.yaml"), "--set", "spec.exchange.parameterServer.replication=2"})
          .code,
      0);
  EXPECT_THAT(Call({"describe", "digits"}).out, HasSubstr("Parameter servers:   0/2"));
  EXPECT_EQ(Call({"scale", "digits", "--role", "parameter-server", "--replicas", "3"}).code, 0);
  const auto job = Store()->Get(kube::kTrainingJob, {"default", "digits"});
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(kube::IntAt(*job, "/spec/replicaSpecs/parameterServer/replicas"), 3);
  EXPECT_THAT(Call({"describe", "digits"}).out, HasSubstr("Parameter servers:   0/3"));
  EXPECT_EQ(Call({"scale", "digits", "--role", "parameter-server", "--replicas", "5000"}).code, 2);
}

TEST_F(ProgramTest, NothingIsDoneToAJobThatIsFinished) {
  ASSERT_EQ(Call({"submit", File("job.yaml")}).code, 0);
  const Json status = {
      {"status",
       {{"state", "Succeeded"}, {"conditions", {{{"type", "Succeeded"}, {"status", "True"}}}}}}};
  ASSERT_TRUE(Store()->PatchStatus(kube::kTrainingJob, {"default", "digits"}, status).ok());
  const std::vector<std::vector<std::string>> calls = {
      {"scale", "digits", "--replicas", "3"},
      {"scale", "digits", "--replicas", "3", "--role", "parameter-server"},
      {"suspend", "digits"},
      {"resume", "digits"}};
  for (const std::vector<std::string>& words : calls) {
    const Outcome outcome = Call(words);
    EXPECT_NE(outcome.code, 0) << words[0];
    EXPECT_EQ(outcome.out, "") << words[0];
    EXPECT_THAT(outcome.error,
                HasSubstr("job \"digits\" is finished; there is nothing to " + words[0]));
  }
}

TEST_F(ProgramTest, SubmittingTheSameFileAgainChangesNothingAndAnotherIsRefused) {
  ASSERT_EQ(Call({"submit", File("job.yaml")}).code, 0);
  ASSERT_EQ(Call({"scale", "digits", "--replicas", "3"}).code, 0);

  EXPECT_THAT(Call({"submit", File("job.yaml")}).out, HasSubstr("unchanged"));
  const Outcome refused = Call({"submit", File("job.yaml"), "--set", "spec.seed=5"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr("--replace"));
  EXPECT_EQ(Call({"submit", File("job.yaml"), "--set", "spec.seed=5", "--replace"}).code, 0);

  const auto job = Store()->Get(kube::kTrainingJob, {"default", "digits"});
  EXPECT_EQ(kube::IntAt(*job, "/spec/seed"), 5);
  EXPECT_THAT(Call({"get", "jobs", "--history", "-o", "name"}).out, HasSubstr("digits"));
}

TEST_F(ProgramTest, AFinishedJobMovesToTheHistoryWithItsModel) {
  ASSERT_EQ(Call({"submit", File("job.yaml")}).code, 0);
  Write("model.safetensors", "weights");
  {
    const auto store = Store();
    const Json status = {
        {"status",
         {{"state", "Succeeded"},
          {"conditions", {{{"type", "Succeeded"}, {"status", "True"}}}},
          {"result", {{"model", {{"uri", "file://" + File("model.safetensors")}}}}}}}};
    ASSERT_TRUE(store->PatchStatus(kube::kTrainingJob, {"default", "digits"}, status).ok());
  }

  ASSERT_EQ(Call({"submit", File("job.yaml")}).code, 0);

  const auto history = ListArchive(Home(File("home")), "default");
  ASSERT_EQ(history.size(), 1U);
  EXPECT_EQ(kube::StringAt(history[0], "/status/state"), "Succeeded");
  std::filesystem::remove(File("model.safetensors"));
  const std::string uri = kube::StringAt(history[0], "/status/result/model/uri");
  ASSERT_EQ(uri.substr(0, 7), "file://");
  std::ifstream kept(uri.substr(7));
  std::string text;
  kept >> text;
  EXPECT_EQ(text, "weights");
  EXPECT_FALSE(IsFinished(*Store()->Get(kube::kTrainingJob, {"default", "digits"})));
}

TEST_F(ProgramTest, AJobThatWasDeletedIsListedAndDescribedFromTheHistory) {
  const Outcome none = Call({"get", "jobs", "--history"});
  EXPECT_EQ(none.code, 0);
  EXPECT_THAT(none.error, HasSubstr("no past trainingjobs"));
  ASSERT_EQ(Call({"submit", File("job.yaml")}).code, 0);
  const Json job = *Store()->Get(kube::kTrainingJob, {"default", "digits"});
  const auto record = [&](std::optional<absl::Time> gone) {
    history::JobUpdate update;
    update.record = history::MakeRecord(job, "", [](const Json& object) {
      return Json{{"namespace", kube::NamespaceOf(object)}, {"name", kube::NameOf(object)}};
    });
    update.points["loss"] = {{1, 0, 2.5}, {2, 1, 0.25}};
    update.gone = gone;
    ASSERT_TRUE(history::OpenSqliteHistory(File("home") + "/history.db")->Record({update}).ok());
  };
  record(std::nullopt);
  EXPECT_EQ(Call({"get", "jobs", "--history", "-o", "name"}).out, "") << "it is there";
  ASSERT_TRUE(Store()->Delete(kube::kTrainingJob, {"default", "digits"}, {}).ok());
  EXPECT_THAT(Call({"get", "jobs", "--history", "-o", "name"}).out, HasSubstr("digits"))
      << "nobody has noticed yet";
  record(absl::FromUnixSeconds(1'800'000'000));

  EXPECT_THAT(Call({"get", "jobs", "--history"}).out, HasSubstr("DELETED"));
  EXPECT_THAT(Call({"get", "jobs", "--history", "-l", "team=x", "-o", "name"}).out, "");
  EXPECT_EQ(Call({"get", "job", "digits"}).code, 3);
  const Outcome told = Call({"describe", "digits"});
  EXPECT_EQ(told.code, 0) << told.error;
  EXPECT_THAT(told.out, HasSubstr("2027-01-15T08:00:00Z"));
  EXPECT_THAT(told.out, HasSubstr(kube::UidOf(job)));
  EXPECT_THAT(told.out, ::testing::ContainsRegex("loss +2 +1-2 +2.5 +0.25 +2.5 +0.25"));
  // Another one takes the name.
  ASSERT_EQ(Call({"submit", File("job.yaml")}).code, 0);
  EXPECT_THAT(Call({"describe", "digits"}).out, Not(HasSubstr(kube::UidOf(job))));
  EXPECT_THAT(Call({"describe", "digits", "--uid", kube::UidOf(job)}).out,
              HasSubstr(kube::UidOf(job)));
  EXPECT_EQ(Call({"describe", "digits", "--uid", "nobody"}).code, 3);
  EXPECT_EQ(Call({"describe", "nobody"}).code, 3);
}

TEST_F(ProgramTest, AHistoryThatIsElsewhereIsNamedWithTheWayToIt) {
  ASSERT_EQ(Call({"get", "jobs"}).code, 0);
  Write("home/controller.json",
        R"({"historyUrl": "history postgresql://db/starling", "restUrl": "http://127.0.0.1:7"})");
  const Outcome list = Call({"get", "jobs", "--history"});
  EXPECT_EQ(list.code, 1);
  EXPECT_THAT(list.error, HasSubstr("postgresql://db/starling"));
  EXPECT_THAT(list.error, HasSubstr("http://127.0.0.1:7/v1/jobs?include=history"));
  EXPECT_EQ(Call({"describe", "nobody"}).code, 3);
}

TEST_F(ProgramTest, LogsArePrintedPerPodAndPerJob) {
  ASSERT_EQ(Call({"submit", File("job.yaml")}).code, 0);
  const auto job = *Store()->Get(kube::kTrainingJob, {"default", "digits"});
  const std::string pods = Home(File("home")).FolderOf(job) + "/pods/";
  for (const char* pod : {"digits-worker-0-01234567", "digits-worker-1-89abcdef"}) {
    std::filesystem::create_directories(pods + pod);
    std::ofstream(std::filesystem::path(pods) / pod / "log") << "one\ntwo\nthr";
  }

  EXPECT_EQ(Call({"logs", "digits-worker-0"}).out, "one\ntwo\n");
  EXPECT_EQ(Call({"logs", "digits-worker-0", "--tail", "1"}).out, "two\n");
  const std::string all = Call({"logs", "digits"}).out;
  EXPECT_THAT(all, HasSubstr("[digits-worker-0] one\n[digits-worker-0] two\n"));
  EXPECT_THAT(all, HasSubstr("[digits-worker-1] two\n"));
}

TEST_F(ProgramTest, LogsOfAPodAreThoseOfThePresentJobElseOfTheNewestThatHadIt) {
  ASSERT_EQ(Call({"submit", File("job.yaml")}).code, 0);
  const auto job = *Store()->Get(kube::kTrainingJob, {"default", "digits"});
  const std::filesystem::path present = Home(File("home")).FolderOf(job);
  const std::filesystem::path past = present.parent_path() / "digits-00000000";
  const auto write = [](const std::filesystem::path& folder, const char* pod, const char* text) {
    std::filesystem::create_directories(folder / "pods" / pod);
    std::ofstream(folder / "pods" / pod / "log") << text;
  };
  write(past, "digits-worker-0-01234567", "old\n");
  const auto hour = std::chrono::hours(1);
  const auto log = past / "pods/digits-worker-0-01234567/log";
  std::filesystem::last_write_time(log, std::filesystem::last_write_time(log) - hour);
  EXPECT_EQ(Call({"logs", "digits-worker-0"}).out, "old\n") << "nobody runs it any more";
  const Json pod = {{"apiVersion", "v1"},
                    {"kind", "Pod"},
                    {"metadata",
                     {{"name", "digits-worker-0"},
                      {"namespace", "default"},
                      {"labels", {{"starling.dev/job", "digits"}}}}}};
  ASSERT_TRUE(Store()->Create(kube::kPod, pod).ok());
  EXPECT_EQ(Call({"logs", "digits-worker-0"}).out, "") << "it has said nothing yet";
  write(present, "digits-worker-0-89abcdef", "new\n");
  EXPECT_EQ(Call({"logs", "digits-worker-0"}).out, "new\n");
}

TEST_F(ProgramTest, AControllerThatCannotBeStartedIsExitCode1AndNamed) {
  for (const auto& words : {std::vector<std::string>{"up"}, {"run", File("job.yaml")}}) {
    const Outcome outcome = Call(words);
    EXPECT_EQ(outcome.code, 1) << words[0];
    EXPECT_THAT(outcome.error, HasSubstr("starling-controller"));
  }
}

TEST_F(ProgramTest, TheHomeFolderIsForItsOwnerOnly) {
  ASSERT_EQ(Call({"get", "jobs"}).code, 0);

  EXPECT_EQ(std::filesystem::status(File("home")).permissions(), std::filesystem::perms::owner_all);
}

TEST(HomeTest, ItIsFoundInTheUsualPlaces) {
  const auto home = [](std::map<std::string, std::string> environment,
                       const std::string& given = "") {
    const auto found = FindHome(given, [&](const char* name) { return environment[name]; });
    return found.ok() ? found->path() : "none";
  };

  EXPECT_EQ(home({{"STARLING_HOME", "/a"}, {"HOME", "/h"}}), "/a");
  EXPECT_EQ(home({{"STARLING_HOME", "/a"}}, "/given"), "/given");
  EXPECT_EQ(home({{"XDG_STATE_HOME", "/x"}, {"HOME", "/h"}}), "/x/starling");
  EXPECT_EQ(home({{"XDG_STATE_HOME", "relative"}, {"HOME", "/h"}}), "/h/.local/state/starling");
  EXPECT_EQ(home({}), "none");
}

TEST(ArgumentsTest, FlagsComeInEveryUsualForm) {
  const Verb& get = *FindVerb("get");
  const auto parse = [&](const std::vector<std::string>& words) {
    const auto parsed = ParseArguments(get, words);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed.value_or(Arguments{});
  };

  for (const auto& words : std::vector<std::vector<std::string>>{{"jobs", "-o", "json"},
                                                                 {"jobs", "-ojson"},
                                                                 {"-o=json", "jobs"},
                                                                 {"--output", "json", "jobs"},
                                                                 {"--output=json", "--", "jobs"}}) {
    EXPECT_EQ(parse(words).Get("output"), "json");
    EXPECT_THAT(parse(words).names, ElementsAre("jobs"));
  }
  EXPECT_TRUE(parse({"jobs", "-Ao", "json"}).Has("all-namespaces"));
  EXPECT_THAT(ParseArguments(*FindVerb("run"), {"f", "--set", "a=1", "--set=b=2"})->All("set"),
              ElementsAre("a=1", "b=2"));
  EXPECT_FALSE(ParseArguments(get, {"jobs", "-o", "json", "-o", "yaml"}).ok());
  EXPECT_FALSE(ParseArguments(get, {"jobs", "--all-namespaces=yes"}).ok());
}

TEST(CompletionTest, EveryShellKnowsEveryCommand) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = CompletionScript(shell);
    ASSERT_TRUE(script.ok());
    for (const Verb& verb : Verbs()) EXPECT_THAT(*script, HasSubstr(std::string(verb.name)));
  }
}

TEST(LockTest, TheHolderOfALockIsReadFromTheSystemsTable) {
  constexpr const char* kLocks =
      "1: POSIX  ADVISORY  WRITE 77 fe:00:42 0 EOF\n"
      "2: FLOCK  ADVISORY  WRITE 4242 fe:00:42 0 EOF\n"
      "2: -> FLOCK  ADVISORY  WRITE 99 fe:00:43 0 EOF\n";

  EXPECT_EQ(ParseLockHolder(kLocks, 42), 4242);
  EXPECT_EQ(ParseLockHolder(kLocks, 43), std::nullopt) << "that one only waits";
  EXPECT_EQ(ParseLockHolder("", 42), std::nullopt);
}

}  // namespace
}  // namespace starling::cli
