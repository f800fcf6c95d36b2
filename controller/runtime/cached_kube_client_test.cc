// SPDX-License-Identifier: Apache-2.0
// Copies: what they keep, how they follow the store through every kind of loss, and that nobody who
// reads them misses his own writes.
#include "controller/runtime/cached_kube_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/message_json.h"
#include "controller/kube/messages.h"
#include "controller/kube/objects.h"
#include "controller/runtime/fenced_kube_client.h"
#include "controller/testing/faulty_kube_client.h"

namespace starling::runtime {
namespace {

using kube::Json;
using kube::kConfigMap;
using testing::ElementsAre;
using testing::IsEmpty;

Json Config(const std::string& name, const std::string& job = "digits") {
  return {{"metadata", {{"name", name}, {"labels", {{"starling.dev/job", job}}}}},
          {"data", {{"key", "0"}}}};
}

// A store whose lists and watches can be made to lag, to end and to forget, and which counts reads.
class Unsteady final : public ForwardingKubeClient {
 public:
  using ForwardingKubeClient::ForwardingKubeClient;

  absl::StatusOr<Json> Get(const kube::ResourceKind& kind, const kube::ObjectKey& key) override {
    ++gets;
    return ForwardingKubeClient::Get(kind, key);
  }
  absl::StatusOr<kube::ObjectList> List(const kube::ResourceKind& kind, std::string_view ns,
                                        const kube::ListOptions& options) override {
    ++lists;
    largest = std::max(largest, options.limit);
    if (old_list.has_value()) return *old_list;
    return ForwardingKubeClient::List(kind, ns, options);
  }
  absl::StatusOr<std::unique_ptr<kube::WatchStream>> Watch(
      const kube::ResourceKind& kind, std::string_view ns,
      const kube::WatchOptions& options) override {
    ++watches;
    if (!watch_fails.ok()) return watch_fails;
    auto inner = ForwardingKubeClient::Watch(kind, ns, options);
    if (!inner.ok()) return inner.status();
    return std::make_unique<Stream>(*std::move(inner), *this);
  }

  absl::Status watch_fails;                  // of every watch that is begun
  absl::Status next_fails;                   // of the next event, once
  bool silent = false;                       // no events come
  std::optional<kube::ObjectList> old_list;  // what lists say
  int gets = 0;
  int lists = 0;
  int watches = 0;
  std::int64_t largest = 0;

 private:
  class Stream final : public kube::WatchStream {
   public:
    Stream(std::unique_ptr<kube::WatchStream> inner, Unsteady& owner)
        : inner_(std::move(inner)), owner_(owner) {}
    absl::StatusOr<std::optional<kube::WatchEvent>> Next(absl::Duration timeout) override {
      if (!owner_.next_fails.ok()) return std::exchange(owner_.next_fails, absl::OkStatus());
      if (owner_.silent) return std::optional<kube::WatchEvent>();
      return inner_->Next(timeout);
    }
    void Stop() override { inner_->Stop(); }

   private:
    const std::unique_ptr<kube::WatchStream> inner_;
    Unsteady& owner_;
  };
};

class CopyTest : public testing::Test {
 protected:
  CopyTest() {
    cached_.Serve(kConfigMap, informer_);
    informer_.AddHandler([this](const auto& before, const auto& after) {
      told_.push_back(kube::NameOf(after ? *after : *before));
    });
  }

  absl::Status Poll() { return informer_.Poll(absl::ZeroDuration()); }
  // As another process does.
  Json Make(const std::string& name) { return *store_->Create(kConfigMap, Config(name)); }
  void Change(const std::string& name, const std::string& value) {
    ASSERT_TRUE(store_->Patch(kConfigMap, {"default", name}, {{"data", {{"key", value}}}}).ok());
  }
  void Remove(const std::string& name) {
    ASSERT_TRUE(store_->Delete(kConfigMap, {"default", name}, {}).ok());
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& object : informer_.List()) names.push_back(kube::NameOf(*object));
    return names;
  }
  std::string Value(const std::string& name) {
    return kube::StringAt(*cached_.Get(kConfigMap, {"default", name}), "/data/key");
  }

  static InformerOptions Options() {
    InformerOptions options;
    options.selection.labels = "starling.dev/job";
    options.page = 2;
    options.index_label = "starling.dev/job";
    return options;
  }

  clock::FakeClock clock_;
  std::unique_ptr<kube::KubeClient> store_ = *kube::OpenEmbeddedKubeClient(clock_, {});
  kube::FaultyKubeClient faulty_{*store_};
  Unsteady unsteady_{faulty_};
  Informer informer_{unsteady_, kConfigMap, Options()};
  CachedKubeClient cached_{unsteady_};
  std::vector<std::string> told_;
};

TEST_F(CopyTest, ListsComeInPagesAndReadsCostNothing) {
  for (const char* name : {"a", "b", "c", "d", "e"}) Make(name);
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(unsteady_.lists, 3);
  EXPECT_EQ(unsteady_.largest, 2);

  unsteady_.lists = 0;
  EXPECT_EQ(cached_.List(kConfigMap, "default", {})->items.size(), 5U);
  EXPECT_EQ(Value("c"), "0");
  EXPECT_TRUE(absl::IsNotFound(cached_.Get(kConfigMap, {"default", "x"}).status()));
  EXPECT_EQ(unsteady_.lists + unsteady_.gets, 0);
}

TEST_F(CopyTest, ObjectsOfOneJobAreFoundByItsLabel) {
  Make("a");
  ASSERT_TRUE(store_->Create(kConfigMap, Config("b", "other")).ok());
  ASSERT_TRUE(store_->Create(kConfigMap, {{"metadata", {{"name", "foreign"}}}}).ok());
  ASSERT_TRUE(Poll().ok());
  EXPECT_THAT(Names(), ElementsAre("a", "b")) << "of all others not even the name is kept";

  const auto list = [this](const std::string& selector) {
    std::vector<std::string> names;
    kube::ListOptions options;
    options.selection.labels = selector;
    const kube::ObjectList found = *cached_.List(kConfigMap, "default", options);
    for (const Json& item : found.items) names.push_back(kube::NameOf(item));
    return names;
  };
  EXPECT_THAT(list("starling.dev/job=digits"), ElementsAre("a"));
  EXPECT_THAT(list("starling.dev/job=other"), ElementsAre("b"));
  EXPECT_THAT(list("starling.dev/job=none"), IsEmpty());
  EXPECT_THAT(list("starling.dev/job in (digits,other)"), ElementsAre("a", "b"));
  EXPECT_THAT(list("starling.dev/job!=digits"), ElementsAre("b"));
  EXPECT_THAT(list("starling.dev/job=digits,starling.dev/job"), ElementsAre("a"));
  EXPECT_THAT(list("starling.dev/job==digits"), ElementsAre("a"));
  Json elsewhere = Config("c");
  elsewhere["metadata"]["namespace"] = "elsewhere";
  ASSERT_TRUE(store_->Create(kConfigMap, elsewhere).ok());
  ASSERT_TRUE(Poll().ok());
  EXPECT_THAT(list("starling.dev/job=digits"), ElementsAre("a"));
  EXPECT_THAT(list("starling.dev/job in (digits)"), ElementsAre("a"));
  kube::ListOptions digits;
  digits.selection.labels = "starling.dev/job=digits";
  EXPECT_THAT(cached_.List(kConfigMap, "", digits)->items, testing::SizeIs(2));

  const Json moved = {{"metadata", {{"labels", {{"starling.dev/job", "other"}}}}}};
  ASSERT_TRUE(store_->Patch(kConfigMap, {"default", "a"}, moved).ok());
  ASSERT_TRUE(Poll().ok());
  EXPECT_THAT(list("starling.dev/job=digits"), IsEmpty());
  EXPECT_THAT(list("starling.dev/job=other"), ElementsAre("a", "b"));
}

TEST_F(CopyTest, OwnWritesAreReadAtOnce) {
  ASSERT_TRUE(Poll().ok());
  unsteady_.silent = true;
  ASSERT_TRUE(cached_.Create(kConfigMap, Config("a")).ok());
  EXPECT_EQ(Value("a"), "0");
  ASSERT_TRUE(cached_.Patch(kConfigMap, {"default", "a"}, {{"data", {{"key", "1"}}}}).ok());
  EXPECT_EQ(Value("a"), "1");
  EXPECT_EQ(unsteady_.gets, 0);
  // The watch brings older news: the copy does not go back.
  unsteady_.silent = false;
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(Value("a"), "1");
}

TEST_F(CopyTest, OwnWritesAreToldToThoseWhoAskForThemAlone) {
  std::vector<std::string> others;
  informer_.AddHandler(
      [&](const auto& before, const auto& after) {
        others.push_back(kube::NameOf(after ? *after : *before));
      },
      Informer::Hears::kNotOwnWrites);
  ASSERT_TRUE(Poll().ok());
  ASSERT_TRUE(cached_.Create(kConfigMap, Config("own")).ok());
  Make("another");
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(told_, (std::vector<std::string>{"own", "another"}));
  EXPECT_EQ(others, std::vector<std::string>{"another"});
  Change("own", "1");
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(others, (std::vector<std::string>{"another", "own"}));
}

TEST_F(CopyTest, ChangeThatIsNoNewsIsKeptAndNotToldOf) {
  InformerOptions options = Options();
  options.news = [](const Json& object) {
    return kube::StringAt(object, "/data/key").substr(0, 1);
  };
  Informer informer(*store_, kConfigMap, options);
  std::vector<std::string> told;
  informer.AddHandler([&](const auto& /*before*/, const auto& after) {
    told.push_back(after == nullptr ? "gone" : kube::StringAt(*after, "/data/key"));
  });
  Make("a");
  ASSERT_TRUE(informer.Poll(absl::ZeroDuration()).ok());
  for (const char* value : {"01", "02", "1", "12"}) {
    Change("a", value);
    ASSERT_TRUE(informer.Poll(absl::ZeroDuration()).ok());
  }
  EXPECT_EQ(told, (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(kube::StringAt(*informer.Get({"default", "a"}), "/data/key"), "12");
  Remove("a");
  ASSERT_TRUE(informer.Poll(absl::ZeroDuration()).ok());
  EXPECT_EQ(told.back(), "gone");
}

TEST_F(CopyTest, WhatTheWatchHasSeenGoDoesNotComeBack) {
  ASSERT_TRUE(Poll().ok());
  const Json made = Make("a");
  Remove("a");
  ASSERT_TRUE(Poll().ok());
  informer_.Learn(std::make_shared<const Json>(made));
  EXPECT_THAT(Names(), IsEmpty()) << "the answer to a create came after the deletion was seen";
}

TEST_F(CopyTest, AnObjectThatIsNotSelectedIsNotLearned) {
  ASSERT_TRUE(Poll().ok());
  ASSERT_TRUE(cached_.Create(kConfigMap, {{"metadata", {{"name", "foreign"}}}}).ok());
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(CopyTest, AWriteWhoseAnswerWasLostIsLookedUpBeforeTheNextRead) {
  ASSERT_TRUE(Poll().ok());
  unsteady_.silent = true;
  faulty_.FailWrite(1, kube::Fault::kUnknownResult);
  EXPECT_FALSE(cached_.Create(kConfigMap, Config("a")).ok());
  EXPECT_EQ(cached_.List(kConfigMap, "default", {})->items.size(), 1U);
  EXPECT_EQ(unsteady_.gets, 1);
  EXPECT_EQ(Value("a"), "0");
  EXPECT_EQ(unsteady_.gets, 1) << "once";
}

TEST_F(CopyTest, AWriteThatWasRefusedLeavesNoDoubt) {
  ASSERT_TRUE(Poll().ok());
  const kube::ObjectKey nobody{"default", "nobody"};
  EXPECT_TRUE(absl::IsNotFound(cached_.Patch(kConfigMap, nobody, {{"data", {}}}).status()));
  EXPECT_TRUE(absl::IsNotFound(cached_.Get(kConfigMap, nobody).status()));
  EXPECT_EQ(unsteady_.gets, 0);
}

TEST_F(CopyTest, KindsWithoutACopyAreTheServers) {
  ASSERT_TRUE(Poll().ok());
  ASSERT_TRUE(cached_.Create(kube::kSecret, {{"metadata", {{"name", "s"}}}}).ok());
  EXPECT_TRUE(cached_.Get(kube::kSecret, {"default", "s"}).ok());
  EXPECT_THAT(cached_.List(kube::kSecret, "default", {})->items, testing::SizeIs(1));
  EXPECT_THAT(cached_.ListMessages(kube::kSecret, "default", {})->items, testing::SizeIs(1));
}

TEST_F(CopyTest, WhatIsNotThereIsNoLongerInDoubt) {
  ASSERT_TRUE(Poll().ok());
  faulty_.FailWrite(1, kube::Fault::kRefuse);
  EXPECT_TRUE(absl::IsUnavailable(cached_.Create(kConfigMap, Config("a")).status()));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(cached_.List(kConfigMap, "default", {}).ok());
    EXPECT_EQ(unsteady_.gets, 1) << "asked once";
  }
}

TEST_F(CopyTest, AMessageThatWasWrittenIsReadInFull) {
  ASSERT_TRUE(Poll().ok());
  unsteady_.silent = true;
  ASSERT_TRUE(
      cached_.CreateMessage(kConfigMap, kube::FromJson<kubernetes::ConfigMap>(Config("a"))).ok());
  EXPECT_EQ(Value("a"), "0");
  EXPECT_EQ(unsteady_.gets, 1);
}

TEST_F(CopyTest, DoubtIsOfTheObjectInItsOwnNamespace) {
  ASSERT_TRUE(Poll().ok());
  unsteady_.silent = true;
  faulty_.FailWrite(1, kube::Fault::kUnknownResult);
  Json elsewhere = Config("a");
  elsewhere["metadata"]["namespace"] = "elsewhere";
  EXPECT_FALSE(cached_.Create(kConfigMap, elsewhere).ok());
  EXPECT_TRUE(absl::IsNotFound(cached_.Get(kConfigMap, {"default", "a"}).status()));
  EXPECT_EQ(unsteady_.gets, 0);
  EXPECT_TRUE(cached_.Get(kConfigMap, {"elsewhere", "a"}).ok());
}

TEST_F(CopyTest, WhatIsInDoubtIsNotReadUntilTheServerHasAnswered) {
  ASSERT_TRUE(Poll().ok());
  faulty_.FailWrite(1, kube::Fault::kCrashAfter);
  EXPECT_FALSE(cached_.Create(kConfigMap, Config("a")).ok());
  EXPECT_TRUE(absl::IsCancelled(cached_.Get(kConfigMap, {"default", "b"}).status()));
  EXPECT_TRUE(absl::IsCancelled(cached_.List(kConfigMap, "", {}).status()));
  faulty_.Heal();
  EXPECT_EQ(cached_.List(kConfigMap, "", {})->items.size(), 1U);
  EXPECT_EQ(Value("a"), "0");
}

TEST_F(CopyTest, AnObjectWhoseNameOnlyTheServerKnowsIsLeftToTheWatch) {
  ASSERT_TRUE(Poll().ok());
  faulty_.FailWrite(1, kube::Fault::kUnknownResult);
  Json unnamed = Config("x");
  unnamed["metadata"].erase("name");
  unnamed["metadata"]["generateName"] = "x-";
  EXPECT_FALSE(cached_.Create(kConfigMap, unnamed).ok());
  EXPECT_TRUE(cached_.List(kConfigMap, "default", {})->items.empty());
  EXPECT_EQ(unsteady_.gets, 0);
  ASSERT_TRUE(Poll().ok());
  EXPECT_THAT(Names(), testing::SizeIs(1));
}

TEST_F(CopyTest, PagesAndFieldsAreAskedOfTheServer) {
  ASSERT_TRUE(Poll().ok());
  for (const char* name : {"a", "b"}) Make(name);
  kube::ListOptions page;
  page.limit = 1;
  const kube::ObjectList first = *cached_.List(kConfigMap, "default", page);
  EXPECT_THAT(first.items, testing::SizeIs(1));
  page.limit = 0;
  page.continue_token = first.continue_token;
  EXPECT_THAT(cached_.List(kConfigMap, "default", page)->items, testing::SizeIs(1));
  kube::ListOptions fields;
  fields.selection.fields = "metadata.name=b";
  EXPECT_THAT(cached_.List(kConfigMap, "default", fields)->items, testing::SizeIs(1));
  EXPECT_THAT(cached_.List(kConfigMap, "default", {})->items, IsEmpty()) << "the copy is late";
}

TEST_F(CopyTest, MessagesAreAskedOfTheServerWhereTheCopyIsOfJson) {
  ASSERT_TRUE(Poll().ok());
  Make("a");
  EXPECT_TRUE(cached_.GetMessage(kConfigMap, {"default", "a"}).ok());
  EXPECT_THAT(cached_.ListMessages(kConfigMap, "default", {})->items, testing::SizeIs(1));
}

TEST_F(CopyTest, AnObjectThatWasDeletedIsKnownToGoBeforeTheWatchTellsOfIt) {
  for (const bool waits : {false, true}) {
    const std::string name = waits ? "waits" : "goes";
    Json object = Config(name);
    if (waits) object["metadata"]["finalizers"] = {"starling.dev/test"};
    ASSERT_TRUE(store_->Create(kConfigMap, object).ok());
    ASSERT_TRUE(Poll().ok());
    unsteady_.silent = true;
    ASSERT_TRUE(cached_.Delete(kConfigMap, {"default", name}, {}).ok());
    const Informer::Object known = informer_.Get({"default", name});
    ASSERT_NE(known, nullptr) << "the watch tells of its end";
    EXPECT_TRUE(kube::IsBeingDeleted(*known));
    unsteady_.silent = false;
    ASSERT_TRUE(Poll().ok());
  }
  EXPECT_THAT(Names(), ElementsAre("waits"));
}

TEST_F(CopyTest, ANameThatIsTakenIsReadAndKnownFromThen) {
  ASSERT_TRUE(Poll().ok());
  unsteady_.silent = true;
  Make("a");  // by the former leader, a moment ago
  EXPECT_EQ(cached_.List(kConfigMap, "default", {})->items.size(), 0U) << "the copy is late";
  EXPECT_TRUE(absl::IsAlreadyExists(cached_.Create(kConfigMap, Config("a")).status()));
  EXPECT_EQ(cached_.List(kConfigMap, "default", {})->items.size(), 1U);
}

TEST_F(CopyTest, AConflictSaysThatTheCopyIsOld) {
  Make("a");
  ASSERT_TRUE(Poll().ok());
  unsteady_.silent = true;
  Json old = *cached_.Get(kConfigMap, {"default", "a"});
  Change("a", "theirs");
  old["data"]["key"] = "ours";
  EXPECT_TRUE(absl::IsAborted(cached_.Update(kConfigMap, old).status()));
  EXPECT_EQ(Value("a"), "theirs");
}

TEST_F(CopyTest, AWatchThatLosesItsConnectionGoesOnWhereItWas) {
  Make("a");
  ASSERT_TRUE(Poll().ok());
  const int lists = unsteady_.lists;
  unsteady_.next_fails = absl::UnavailableError("reset by peer");
  EXPECT_FALSE(Poll().ok());
  Make("b");
  Remove("a");
  ASSERT_TRUE(Poll().ok());
  ASSERT_TRUE(Poll().ok());
  EXPECT_THAT(Names(), ElementsAre("b"));
  EXPECT_EQ(unsteady_.lists, lists);
}

TEST_F(CopyTest, AConnectionThatIsLostAgainAndAgainLeadsToANewList) {
  ASSERT_TRUE(Poll().ok());
  const int lists = unsteady_.lists;
  unsteady_.watch_fails = absl::UnavailableError("refused");
  unsteady_.next_fails = absl::UnavailableError("reset by peer");
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(Poll().ok());
  unsteady_.watch_fails = absl::OkStatus();
  Make("a");
  ASSERT_TRUE(Poll().ok());
  EXPECT_GT(unsteady_.lists, lists);
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(CopyTest, AStormOf410EndsWithTheRightCopy) {
  Make("a");
  ASSERT_TRUE(Poll().ok());
  for (int i = 1; i <= 50; ++i) {
    unsteady_.next_fails = absl::OutOfRangeError("too old resource version");
    ASSERT_TRUE(Poll().ok());
    Change("a", std::to_string(i));
    ASSERT_TRUE(Poll().ok());
    EXPECT_EQ(Value("a"), std::to_string(i));
  }
  EXPECT_EQ(told_.size(), 51U) << "each change once";
}

TEST_F(CopyTest, ListsOfAServerThatLagsAreNotBelieved) {
  Make("a");
  const auto before = *store_->List(kConfigMap, "", {Options().selection, 0, ""});
  ASSERT_TRUE(Poll().ok());
  Make("b");
  ASSERT_TRUE(Poll().ok());
  unsteady_.next_fails = absl::OutOfRangeError("gone");
  ASSERT_TRUE(Poll().ok());
  unsteady_.old_list = before;
  EXPECT_TRUE(absl::IsUnavailable(Poll()));
  EXPECT_THAT(Names(), ElementsAre("a", "b")) << "the copy does not go back in time";
  unsteady_.old_list.reset();
  ASSERT_TRUE(Poll().ok());
  EXPECT_THAT(Names(), ElementsAre("a", "b"));
}

TEST_F(CopyTest, AStoreThatWasRestoredIsBelievedInTheEnd) {
  Make("a");
  const auto before = *store_->List(kConfigMap, "", {Options().selection, 0, ""});
  ASSERT_TRUE(Poll().ok());
  Make("b");
  Change("a", "1");
  ASSERT_TRUE(Poll().ok());
  unsteady_.next_fails = absl::OutOfRangeError("gone");
  ASSERT_TRUE(Poll().ok());
  unsteady_.old_list = before;
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(Poll().ok());
  ASSERT_TRUE(Poll().ok());
  EXPECT_THAT(Names(), ElementsAre("a"));
  EXPECT_EQ(Value("a"), "0");
}

TEST(FencedKubeClient, WritesPassOnlyWhileTheyMay) {
  const clock::FakeClock clock;
  const auto store = *kube::OpenEmbeddedKubeClient(clock, {});
  bool leads = true;
  FencedKubeClient fenced(*store, [&leads] { return leads; });
  ASSERT_TRUE(fenced.Create(kConfigMap, Config("a")).ok());
  leads = false;
  const kube::ObjectKey key{"default", "a"};
  const Json object = *fenced.Get(kConfigMap, key);
  const Json patch = {{"data", {{"key", "stale"}}}};
  EXPECT_TRUE(absl::IsFailedPrecondition(fenced.Create(kConfigMap, Config("b")).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(fenced.Update(kConfigMap, object).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(fenced.UpdateStatus(kConfigMap, object).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(fenced.Patch(kConfigMap, key, patch).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(fenced.PatchStatus(kConfigMap, key, patch).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      fenced.Apply(kConfigMap, object, {.field_manager = "x"}).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(fenced.UpdateScale(kConfigMap, object).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(fenced.Delete(kConfigMap, key, {}).status()));
  const auto message = kube::FromJson<kubernetes::ConfigMap>(Config("b"));
  EXPECT_TRUE(absl::IsFailedPrecondition(fenced.CreateMessage(kConfigMap, message).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(fenced.CreateFromJson(kConfigMap, Config("b")).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(fenced.DeleteMessage(kConfigMap, key, {}).status()));
  EXPECT_EQ(*store->Get(kConfigMap, key), object);
  Json tried = Config("a");
  tried["apiVersion"] = "v1";
  tried["kind"] = "ConfigMap";
  EXPECT_TRUE(
      fenced.Apply(kConfigMap, tried, {.field_manager = "x", .force = true, .dry_run = true}).ok())
      << "which writes nothing";
}

}  // namespace
}  // namespace starling::runtime
