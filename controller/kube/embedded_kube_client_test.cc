// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/embedded_kube_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/clock/clock.h"
#include "common/sqlite/sqlite.h"
#include "controller/kube/objects.h"
#include "controller/kube/sync_counter_testing.h"

namespace starling::kube {
namespace {

using testing::HasSubstr;

class EmbeddedKubeClientTest : public testing::Test {
 protected:
  EmbeddedKubeClientTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "starling-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~EmbeddedKubeClientTest() override { std::filesystem::remove_all(folder_); }

  std::string Path() const { return (folder_ / "store.db").string(); }

  EmbeddedOptions File() const {
    EmbeddedOptions options;
    options.path = Path();
    return options;
  }

  std::unique_ptr<KubeClient> Open(const EmbeddedOptions& options) {
    auto client = OpenEmbeddedKubeClient(clock_, options);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  static Json Object(const std::string& name, const std::string& value = "") {
    return {{"metadata", {{"name", name}}}, {"data", {{"key", value}}}};
  }

  // As it is applied.
  static Json Applicable(const std::string& name, const std::string& value = "") {
    Json object = Object(name, value);
    object["apiVersion"] = "v1";
    object["kind"] = "ConfigMap";
    return object;
  }

  clock::FakeClock clock_;
  std::filesystem::path folder_;
};

TEST_F(EmbeddedKubeClientTest, ObjectsOutliveTheirClient) {
  ASSERT_TRUE(Open(File())->Create(kConfigMap, Object("kept")).ok());

  EXPECT_TRUE(Open(File())->Get(kConfigMap, {"default", "kept"}).ok());
}

TEST_F(EmbeddedKubeClientTest, TheFileIsForItsOwnerOnly) {
  Open(File());

  EXPECT_EQ(std::filesystem::status(Path()).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(EmbeddedKubeClientTest, TimesAreTheClocks) {
  const auto created = Open({})->Create(kConfigMap, Object("timed"));

  ASSERT_TRUE(created.ok());
  EXPECT_EQ(CreationTimeOf(*created), clock_.Now());
}

TEST_F(EmbeddedKubeClientTest, AWatchFromAForgottenVersionIsGone) {
  EmbeddedOptions options;
  options.change_log_limit = 64;
  const auto client = Open(options);
  const auto slow = client->Watch(kConfigMap, "", {{}, "1"});
  ASSERT_TRUE(slow.ok()) << slow.status();
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(client->Create(kConfigMap, Object("x" + std::to_string(i))).ok());
  }

  EXPECT_TRUE(absl::IsOutOfRange(client->Watch(kConfigMap, "", {{}, "1"}).status()));
  EXPECT_TRUE(absl::IsOutOfRange((*slow)->Next(absl::ZeroDuration()).status()));
  EXPECT_TRUE(absl::IsOutOfRange(client->Watch(kConfigMap, "", {{}, "999999"}).status()))
      << "of a store that was there before";
  EXPECT_TRUE(absl::IsInvalidArgument(client->Watch(kConfigMap, "", {{}, "soon"}).status()));
}

TEST_F(EmbeddedKubeClientTest, AWatchOfAQuietKindIsKeptUpToDateByBookmarks) {
  const auto client = Open({});
  const auto watch = client->Watch(kPod, "", {{}, "1"});
  ASSERT_TRUE(watch.ok());
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(client->Create(kConfigMap, Object("x" + std::to_string(i))).ok());
  }

  const auto event = (*watch)->Next(absl::ZeroDuration());

  ASSERT_TRUE(event.ok() && event->has_value());
  EXPECT_EQ((*event)->type, WatchEventType::kBookmark);
  EXPECT_EQ(ResourceVersionOf(*(*event)->object), "301");
}

TEST_F(EmbeddedKubeClientTest, APageAfterAChangeIsGone) {
  const auto client = Open({});
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(client->Create(kPod, Object(name)).ok());
  const auto page = client->List(kPod, "", {{}, 1, ""});
  ASSERT_TRUE(page.ok());

  ASSERT_TRUE(client->Create(kConfigMap, Object("other-kind")).ok());
  EXPECT_TRUE(client->List(kPod, "", {{}, 1, page->continue_token}).ok());
  ASSERT_TRUE(client->Create(kPod, Object("d")).ok());
  EXPECT_TRUE(absl::IsOutOfRange(client->List(kPod, "", {{}, 1, page->continue_token}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client->List(kPod, "", {{}, 1, "nonsense"}).status()));
}

TEST_F(EmbeddedKubeClientTest, AdmissionFillsInAndRefuses) {
  EmbeddedOptions options;
  options.admission["ConfigMap"] = [](const AdmissionRequest& request) {
    request.object["data"]["filled"] = request.old_object ? "again" : "in";
    return StringAt(request.object, "/data/key") == "bad"
               ? absl::InvalidArgumentError("data.key: bad")
               : absl::OkStatus();
  };
  const auto client = Open(options);

  const auto created = client->Create(kConfigMap, Object("admitted"));
  ASSERT_TRUE(created.ok());
  EXPECT_EQ(StringAt(*created, "/data/filled"), "in");
  const auto refused = client->Create(kConfigMap, Object("refused", "bad")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_EQ(refused.message(), "data.key: bad");
  const auto spoilt =
      client->Patch(kConfigMap, {"default", "admitted"}, {{"data", {{"key", "bad"}}}});
  EXPECT_TRUE(absl::IsInvalidArgument(spoilt.status()));
}

TEST_F(EmbeddedKubeClientTest, AdmissionDoesNotHoldBackWhatOnlyTouchesMetadata) {
  const auto lenient = Open(File());
  Json wanted = Object("old");
  wanted["metadata"]["finalizers"] = {"starling.dev/test"};
  ASSERT_TRUE(lenient->Create(kConfigMap, wanted).ok());
  EmbeddedOptions options = File();
  options.admission["ConfigMap"] = [](const AdmissionRequest&) {
    return absl::InvalidArgumentError("a newer rule");
  };
  const auto strict = Open(options);

  const Json patch = {{"metadata", {{"finalizers", nullptr}}}};

  EXPECT_TRUE(strict->Patch(kConfigMap, {"default", "old"}, patch).ok());
  EXPECT_FALSE(strict->Create(kConfigMap, Object("new")).ok());
}

TEST_F(EmbeddedKubeClientTest, OnlyWritesOfJobsWaitForTheDisk) {
  const SyncCounter syncs;
  const auto client = Open(File());
  const auto syncs_of_create = [&](const ResourceKind& kind) {
    const int before = syncs.count();
    EXPECT_TRUE(client->Create(kind, Object("x")).ok());
    return syncs.count() - before;
  };

  EXPECT_EQ(syncs_of_create(kPod), 0);
  EXPECT_GT(syncs_of_create(kTrainingJob), 0);
}

TEST_F(EmbeddedKubeClientTest, APageOfWhatIsInNoNamespaceHasANextOne) {
  const auto client = Open({});
  for (const char* name : {"a", "b"}) ASSERT_TRUE(client->Create(kNode, Object(name)).ok());
  const auto page = client->List(kNode, "", {{}, 1, ""});
  ASSERT_TRUE(page.ok());

  const auto next = client->List(kNode, "", {{}, 1, page->continue_token});

  ASSERT_TRUE(next.ok()) << next.status();
  ASSERT_EQ(next->items.size(), 1);
  EXPECT_EQ(NameOf(next->items[0]), "b");
}

TEST_F(EmbeddedKubeClientTest, AContinueTokenThatNoPageGaveIsRefused) {
  const auto client = Open({});
  for (const char* token : {"1", "1/default", "one/default/a", "/default/a"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(client->List(kPod, "", {{}, 1, token}).status())) << token;
  }
}

TEST_F(EmbeddedKubeClientTest, AWatchStartsAtTheBeginningOfTheStoreAndNoEarlier) {
  const auto client = Open({});

  EXPECT_TRUE(client->Watch(kPod, "", {{}, "0"}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(client->Watch(kPod, "", {{}, "-1"}).status()));
}

TEST_F(EmbeddedKubeClientTest, APatchThatIsNoObjectIsRefused) {
  const auto client = Open({});
  ASSERT_TRUE(client->Create(kPod, Object("x")).ok());

  for (const Json& patch : {Json::array(), Json("text"), Json()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(client->Patch(kPod, {"default", "x"}, patch).status()))
        << patch;
    EXPECT_TRUE(
        absl::IsInvalidArgument(client->PatchStatus(kPod, {"default", "x"}, patch).status()))
        << patch;
  }
  EXPECT_EQ(StringAt(*client->Get(kPod, {"default", "x"}), "/status/phase"), "Pending");
}

TEST_F(EmbeddedKubeClientTest, APatchMayNameItsObjectAndNoOther) {
  const auto client = Open({});
  ASSERT_TRUE(client->Create(kConfigMap, Object("x")).ok());
  const auto patch = [&](const char* field, const char* value) {
    return client->Patch(kConfigMap, {"default", "x"}, {{"metadata", {{field, value}}}}).status();
  };

  EXPECT_TRUE(patch("name", "x").ok());
  EXPECT_TRUE(patch("namespace", "default").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(patch("name", "y")));
  EXPECT_TRUE(absl::IsInvalidArgument(patch("namespace", "other")));
}

TEST_F(EmbeddedKubeClientTest, AStatusPatchOfAnOldVersionIsAConflict) {
  const auto client = Open({});
  ASSERT_TRUE(client->Create(kPod, Object("x")).ok());

  const auto status = client
                          ->PatchStatus(kPod, {"default", "x"},
                                        {{"metadata", {{"resourceVersion", "1"}}},
                                         {"status", {{"phase", "Running"}}}})
                          .status();

  EXPECT_TRUE(absl::IsAborted(status)) << status;
}

TEST_F(EmbeddedKubeClientTest, AStatusPatchNeedsAKindWithAStatus) {
  const auto client = Open({});
  ASSERT_TRUE(client->Create(kConfigMap, Object("x")).ok());

  const Json patch = {{"status", {{"phase", "Running"}}}};

  EXPECT_TRUE(absl::IsNotFound(client->PatchStatus(kConfigMap, {"default", "x"}, patch).status()));
}

TEST_F(EmbeddedKubeClientTest, AStatusUpdateMustSayOfWhichVersion) {
  const auto client = Open({});
  ASSERT_TRUE(client->Create(kPod, Object("x")).ok());

  Json blind = Object("x");
  blind["metadata"]["namespace"] = "default";

  EXPECT_TRUE(absl::IsInvalidArgument(client->UpdateStatus(kPod, blind).status()));
}

TEST_F(EmbeddedKubeClientTest, AnUpdateToAStatusThatIsTooLargeIsRefused) {
  const auto client = Open({});
  auto pod = client->Create(kPod, Object("x"));
  ASSERT_TRUE(pod.ok());

  (*pod)["status"]["message"] = std::string(1'500'000, 'x');

  EXPECT_TRUE(absl::IsInvalidArgument(client->UpdateStatus(kPod, *pod).status()));
}

TEST_F(EmbeddedKubeClientTest, APatchToAStatusThatIsTooLargeIsRefused) {
  const auto client = Open({});
  ASSERT_TRUE(client->Create(kPod, Object("x")).ok());

  const Json patch = {{"status", {{"message", std::string(1'500'000, 'x')}}}};

  EXPECT_TRUE(absl::IsInvalidArgument(client->PatchStatus(kPod, {"default", "x"}, patch).status()));
}

TEST_F(EmbeddedKubeClientTest, ScaleNeedsAKindWithAScale) {
  const auto client = Open({});
  ASSERT_TRUE(client->Create(kConfigMap, Object("x")).ok());

  const Json scale = {{"metadata", {{"name", "x"}, {"namespace", "default"}}},
                      {"spec", {{"replicas", 1}}}};

  EXPECT_TRUE(absl::IsNotFound(client->UpdateScale(kConfigMap, scale).status()));
}

TEST_F(EmbeddedKubeClientTest, AnOptionalKindIsServedOnlyIfAskedFor) {
  EmbeddedOptions with;
  with.optional_kinds = {kVolcanoPodGroup};

  EXPECT_TRUE(*Open(with)->Serves(kVolcanoPodGroup));
  EXPECT_FALSE(*Open(with)->Serves(kKueueWorkload));
  EXPECT_TRUE(Open(with)->Create(kVolcanoPodGroup, Object("x")).ok());
}

TEST_F(EmbeddedKubeClientTest, OfAKindThatIsNotServedNothingIsDone) {
  const auto client = Open({});

  EXPECT_TRUE(absl::IsNotFound(client->List(kKueueWorkload, "", {}).status()));
  EXPECT_TRUE(absl::IsNotFound(client->Watch(kKueueWorkload, "", {{}, "1"}).status()));
  EXPECT_TRUE(absl::IsNotFound(client->Create(kKueueWorkload, Object("x")).status()));
  EXPECT_TRUE(absl::IsNotFound(client->DryRunCreate(kKueueWorkload, Object("x")).status()));
}

TEST_F(EmbeddedKubeClientTest, OnlyAGeneratedNameIsTriedAgain) {
  int tries = 0;
  EmbeddedOptions options;
  options.admission["ConfigMap"] = [&](const AdmissionRequest& request) {
    ++tries;
    request.object["metadata"]["name"] = "taken";
    return absl::OkStatus();
  };
  const auto client = Open(options);
  ASSERT_TRUE(client->Create(kConfigMap, Object("taken")).ok());
  const auto tries_of = [&](const Json& object) {
    tries = 0;
    EXPECT_TRUE(absl::IsAlreadyExists(client->Create(kConfigMap, object).status()));
    return tries;
  };

  EXPECT_EQ(tries_of(Object("taken")), 1);
  EXPECT_EQ(tries_of({{"metadata", {{"generateName", "x-"}}}}), 8);
}

TEST_F(EmbeddedKubeClientTest, ApplyingNeedsTheKindAndTheName) {
  const auto client = Open({});
  ASSERT_TRUE(client->Apply(kConfigMap, Applicable("x"), {"me"}).ok());
  const auto without = [&](const char* pointer) {
    Json object = Applicable("x");
    object["metadata"]["generateName"] = "x-";
    const Json::json_pointer field(pointer);
    object[field.parent_pointer()].erase(field.back());
    return client->Apply(kConfigMap, object, {"me"}).status();
  };

  for (const char* field : {"/apiVersion", "/kind", "/metadata/name"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(without(field))) << field;
  }
}

TEST_F(EmbeddedKubeClientTest, WhoOwnsFieldsIsNotApplied) {
  Json object = Applicable("x");
  object["metadata"]["managedFields"] = Json::array();

  EXPECT_TRUE(absl::IsInvalidArgument(Open({})->Apply(kConfigMap, object, {"me"}).status()));
}

TEST_F(EmbeddedKubeClientTest, ApplyingTwiceMakesOneObject) {
  const auto client = Open({});
  const auto apply = [&](const ResourceKind& kind, const char* ns) {
    Json object = Applicable("x");
    object["kind"] = std::string(kind.kind);
    if (ns != nullptr) object["metadata"]["namespace"] = ns;
    const auto first = client->Apply(kind, object, {"me"});
    const auto second = client->Apply(kind, object, {"me"});
    EXPECT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
    if (!first.ok() || !second.ok()) return std::string("failed");
    EXPECT_EQ(UidOf(*first), UidOf(*second));
    return NamespaceOf(*second);
  };

  EXPECT_EQ(apply(kConfigMap, nullptr), "default");
  EXPECT_EQ(apply(kConfigMap, "other"), "other");
  EXPECT_EQ(apply(kNode, nullptr), "");
}

TEST_F(EmbeddedKubeClientTest, WhatIsAppliedAnewIsAdmittedAndChecked) {
  EmbeddedOptions options;
  options.admission["ConfigMap"] = [](const AdmissionRequest& request) {
    request.object["data"]["filled"] = "in";
    return StringAt(request.object, "/data/key") == "bad" ? absl::InternalError("bad")
                                                          : absl::OkStatus();
  };
  const auto client = Open(options);

  const auto applied = client->Apply(kConfigMap, Applicable("x"), {"me"});
  ASSERT_TRUE(applied.ok()) << applied.status();
  EXPECT_EQ(StringAt(*applied, "/data/filled"), "in");
  const auto refused = client->Apply(kConfigMap, Applicable("y", "bad"), {"me"}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  const auto illegal = client->Apply(kConfigMap, Applicable("Not a name"), {"me"}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(illegal)) << illegal;
}

TEST_F(EmbeddedKubeClientTest, ASecretsPlainTextIsStoredEncoded) {
  const auto secret = Open({})->Create(
      kSecret, {{"metadata", {{"name", "s"}}}, {"stringData", {{"key", "value"}}}});

  ASSERT_TRUE(secret.ok()) << secret.status();
  EXPECT_EQ(StringAt(*secret, "/data/key"), "dmFsdWU=");
  EXPECT_FALSE(secret->contains("stringData"));
}

TEST_F(EmbeddedKubeClientTest, AnObjectThatIsTooLargeIsRefused) {
  const auto status =
      Open({})->Create(kConfigMap, Object("large", std::string(1'600'000, 'x'))).status();

  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("larger than"));
}

TEST_F(EmbeddedKubeClientTest, AFileThatIsNoStoreIsNotTouched) {
  std::ofstream(Path()) << "my precious notes, which are longer than a database header, I hope; "
                           "at least a hundred bytes, of which SQLite reads the first few";
  const auto size = std::filesystem::file_size(Path());

  const auto status = OpenEmbeddedKubeClient(clock_, File()).status();

  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr(Path()));
  EXPECT_EQ(std::filesystem::file_size(Path()), size);
}

TEST_F(EmbeddedKubeClientTest, AnotherProgramsDatabaseIsNotTouched) {
  ASSERT_TRUE((*sqlite::Database::Open(Path(), {}))->Execute("CREATE TABLE t(x)").ok());

  EXPECT_TRUE(absl::IsDataLoss(OpenEmbeddedKubeClient(clock_, File()).status()));
}

TEST_F(EmbeddedKubeClientTest, AStoreOfANewerFormatIsNotTouched) {
  Open(File());
  ASSERT_TRUE((*sqlite::Database::Open(Path(), {}))->Execute("PRAGMA user_version = 99").ok());

  const auto status = OpenEmbeddedKubeClient(clock_, File()).status();

  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.message(), HasSubstr("newer Starling"));
}

TEST_F(EmbeddedKubeClientTest, AMissingFolderIsNamed) {
  EmbeddedOptions options;
  options.path = (folder_ / "missing" / "store.db").string();

  const auto status = OpenEmbeddedKubeClient(clock_, options).status();

  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(status.message(), HasSubstr("missing"));
}

TEST_F(EmbeddedKubeClientTest, AStoreOfSomeoneElseIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  Open(File());
  ASSERT_EQ(::chown(Path().c_str(), 12345, 12345), 0);

  const auto status = OpenEmbeddedKubeClient(clock_, File()).status();

  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(status.message(), HasSubstr("12345"));
}

TEST_F(EmbeddedKubeClientTest, ADamagedStoreSaysSo) {
  {
    const auto client = Open(File());
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(
          client->Create(kConfigMap, Object("x" + std::to_string(i), std::string(2000, 'x'))).ok());
    }
  }
  std::fstream file(Path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096);
  file << std::string(60000, '\xff');
  file.close();

  const auto client = OpenEmbeddedKubeClient(clock_, File());
  const auto status = client.ok() ? (*client)->List(kConfigMap, "", {}).status() : client.status();

  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("move the file"));
}

// Starts `body` in a process of its own. Not from several threads: a child of one of them may find
// a lock that another held for ever.
pid_t StartChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  return child;
}

// Its exit status as waitpid gives it.
int Await(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

int InChild(const std::function<int()>& body) { return Await(StartChild(body)); }

TEST_F(EmbeddedKubeClientTest, AFullDiskIsNamedAndLosesNothing) {
  Open(File())->Create(kConfigMap, Object("before")).IgnoreError();

  const int status = InChild([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const auto client = OpenEmbeddedKubeClient(clock_, File());
    if (!client.ok()) return 2;
    const rlimit limit{200'000, 200'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < 100; ++i) {
      const auto created =
          (*client)->Create(kConfigMap, Object("x" + std::to_string(i), std::string(20'000, 'x')));
      if (created.ok()) continue;
      const bool clear =
          absl::IsResourceExhausted(created.status()) || absl::IsUnavailable(created.status());
      return clear && (*client)->Get(kConfigMap, {"default", "before"}).ok() ? 0 : 3;
    }
    return 4;
  });

  EXPECT_EQ(status, 0);
  EXPECT_TRUE(Open(File())->Create(kConfigMap, Object("after")).ok());
}

TEST_F(EmbeddedKubeClientTest, ProcessesWriteTogetherWithoutLosingAny) {
  Open(File())->Create(kConfigMap, Object("counter", "0")).IgnoreError();
  const auto count = [&](int times) {
    const auto client = OpenEmbeddedKubeClient(clock_, File());
    if (!client.ok()) return 1;
    for (int done = 0; done < times;) {
      auto object = (*client)->Get(kConfigMap, {"default", "counter"});
      if (!object.ok()) return 2;
      (*object)["data"]["key"] = std::to_string(std::stoi(StringAt(*object, "/data/key")) + 1);
      const auto status = (*client)->Update(kConfigMap, *object).status();
      if (!status.ok() && !absl::IsAborted(status)) return 3;
      done += status.ok() ? 1 : 0;
    }
    return 0;
  };

  std::vector<pid_t> children(3);
  for (pid_t& child : children) child = StartChild([&] { return count(50); });
  std::vector<int> statuses;
  statuses.reserve(children.size());
  for (const pid_t child : children) statuses.push_back(Await(child));

  EXPECT_THAT(statuses, testing::Each(0));
  const auto counter = Open(File())->Get(kConfigMap, {"default", "counter"});
  ASSERT_TRUE(counter.ok());
  EXPECT_EQ(StringAt(*counter, "/data/key"), "150");
}

TEST_F(EmbeddedKubeClientTest, AKilledWriterLeavesAWholeStoreBehind) {
  for (int round = 0; round < 5; ++round) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto client = OpenEmbeddedKubeClient(clock_, File());
      for (int i = 0; client.ok(); ++i) {
        const std::string name = "r" + std::to_string(round) + "-" + std::to_string(i);
        if (!(*client)->Create(kConfigMap, Object(name, std::string(3000, 'x'))).ok()) break;
        const char told = (*client)->Delete(kConfigMap, {"default", name}, {}).ok() ? '1' : '0';
        if (i >= 5 * round && ::write(ready[1], &told, 1) < 0) break;
      }
      ::_exit(1);
    }
    char told = 0;
    ASSERT_EQ(::read(ready[0], &told, 1), 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);

    EXPECT_EQ(told, '1');
    const auto database = sqlite::Database::Open(Path(), {});
    ASSERT_TRUE(database.ok());
    EXPECT_EQ(*(*database)->Number("SELECT count(*) FROM pragma_integrity_check "
                                   "WHERE integrity_check <> 'ok'"),
              0);
    EXPECT_TRUE(Open(File())->List(kConfigMap, "", {}).ok());
  }
}

TEST_F(EmbeddedKubeClientTest, AnotherConnectionsWriteWakesAWatchSoon) {
  const auto writer = Open(File());
  const auto reader = Open(File());
  const auto watch = reader->Watch(kConfigMap, "", {{}, "1"});
  ASSERT_TRUE(watch.ok());
  const clock::SystemClock real;
  std::thread writing([&] { EXPECT_TRUE(writer->Create(kConfigMap, Object("x")).ok()); });
  const absl::Time start = real.Now();

  const auto event = (*watch)->Next(absl::Seconds(10));
  writing.join();

  ASSERT_TRUE(event.ok() && event->has_value());
  EXPECT_LT(real.Now() - start, absl::Seconds(2));
}

}  // namespace
}  // namespace starling::kube
