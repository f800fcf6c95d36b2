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
