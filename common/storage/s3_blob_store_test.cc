// SPDX-License-Identifier: Apache-2.0
// What is the object store's own. S3Store.* runs beside a real one that checks signatures
// (tests/storage/with_object_store.py), with what goes wrong on the way done by a proxy; what every
// store promises is in blob_store_test.cc.
#include "common/storage/s3_blob_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <deque>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/bytes/bytes.h"
#include "common/http/raw_client.h"
#include "common/http/scripted_server.h"
#include "common/storage/s3_error.h"
#include "common/storage/web_identity.h"
#include "common/sync/mutex.h"

namespace starling::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::size_t kPart = std::size_t{5} << 20;  // the least that S3 takes

enum class Fault {
  kBusy,        // 503, and the store has heard nothing
  kExpired,     // 403
  kHidden,      // 200 with an error in it, and the store has heard nothing
  kCut,         // the connection ends, and the store has heard nothing
  kLoseAnswer,  // the store has done it
  kTruncate,    // half of the answer comes
  kStall,       // nothing comes any more
  kFlipBit,     // in the request's last byte
};
void PrintTo(Fault fault, std::ostream* out) {
  constexpr const char* kNames[] = {"busy",        "expired",  "hidden", "cut",
                                    "lose answer", "truncate", "stall",  "flip bit"};
  *out << kNames[static_cast<int>(fault)];
}

// Stands between a client and the store, which it names in the variables of the environment.
class FaultProxy {
 public:
  explicit FaultProxy(int port)
      : port_(port),
        server_([this](http::Conversation& conversation, int) { return Handle(conversation); }) {}

  std::string url() const { return server_.url(); }
  int requests() const { return server_.requests(); }
  // What happens to the next requests whose head begins so, one after another.
  void Next(std::string method, std::deque<Fault> faults) {
    const sync::MutexLock lock(mutex_);
    method_ = std::move(method);
    faults_ = std::move(faults);
  }
  bool done() const {
    const sync::MutexLock lock(mutex_);
    return faults_.empty();
  }

 private:
  std::optional<Fault> Take(const std::string& request) {
    const sync::MutexLock lock(mutex_);
    if (faults_.empty() || !request.starts_with(method_)) return std::nullopt;
    const Fault fault = faults_.front();
    faults_.pop_front();
    return fault;
  }

  static std::string Error(const char* code) {
    return absl::StrCat("<Error><Code>", code, "</Code><Message>m</Message></Error>");
  }

  std::string Forward(std::string request) const {
    const std::size_t line = request.find("\r\n") + 2;
    http::RawClient client(port_);
    client.Send(request.insert(line, "Connection: close\r\n"));
    return client.Receive();
  }

  bool Handle(http::Conversation& conversation) {
    const std::optional<Fault> fault = Take(conversation.request);
    const auto refuse = [&](int status, const char* code) {
      conversation.Answer(status, Error(code), "application/xml", "Connection: close\r\n");
    };
    if (fault == Fault::kBusy) refuse(503, "SlowDown");
    if (fault == Fault::kExpired) refuse(403, "ExpiredToken");
    if (fault == Fault::kHidden) refuse(200, "InternalError");
    if (fault == Fault::kStall) conversation.AwaitTheirEnd();
    if (fault.has_value() && *fault < Fault::kLoseAnswer) return false;
    if (fault == Fault::kStall) return false;
    if (fault == Fault::kFlipBit) conversation.request.back() ^= 1;
    const std::string answer = Forward(conversation.request);
    if (fault == Fault::kLoseAnswer) return false;
    conversation.Say(fault == Fault::kTruncate ? answer.substr(0, answer.size() - 4) : answer);
    return false;
  }

  const int port_;
  mutable sync::Mutex mutex_;
  std::string method_ ABSL_GUARDED_BY(mutex_);
  std::deque<Fault> faults_ ABSL_GUARDED_BY(mutex_);
  http::ScriptedServer server_;
};

class S3Store : public testing::Test {
 protected:
  S3Store() : proxy_(PortOf(variables_("AWS_ENDPOINT_URL"))) {
    options_.bucket = variables_("STARLING_TEST_BUCKET");
    options_.settings = *ReadS3Settings(variables_, options_.bucket);
    options_.credentials = *FindCredentials(variables_, options_.settings);
    options_.first_wait = absl::Milliseconds(1);
  }

  static int PortOf(const std::string& url) {
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(url.substr(url.rfind(':') + 1), &port))
        << "runs beside an object store: ctest -R storage_s3";
    return port;
  }

  std::unique_ptr<BlobStore> Direct() { return MakeS3BlobStore(options_, prefix_, kPart); }
  std::unique_ptr<BlobStore> Proxied() {
    S3Options options = options_;
    options.settings.endpoint = proxy_.url();
    return MakeS3BlobStore(std::move(options), prefix_, kPart);
  }
  // Of uploads in parts that are under way below the prefix.
  std::size_t Uploads() {
    const auto answer =
        S3Client(options_).Exchange({.method = "GET", .key = "", .query = {{"uploads", ""}}});
    EXPECT_TRUE(answer.ok() && answer->status == 200) << answer.status() << answer->body;
    std::size_t count = 0;
    for (const std::string_view upload : FindElements(answer->body, "Upload")) {
      count += FindElement(upload, "Key")->text.starts_with(prefix_) ? 1U : 0U;
    }
    return count;
  }

  static std::string Text(BlobStore& store, const std::string& name) {
    const auto content = ReadAll(store, name, std::size_t{64} << 20);
    EXPECT_TRUE(content.ok()) << content.status();
    if (!content.ok()) return "";
    return {reinterpret_cast<const char*>(content->data()), content->size()};
  }

  static std::string Large() {
    std::string content(2 * kPart + 12345, 'x');
    for (std::size_t i = 0; i < content.size(); i += 1000) content[i] = static_cast<char>(i / 1000);
    return content;
  }

  const Variables variables_ = ProcessVariables();
  FaultProxy proxy_;
  S3Options options_;
  const std::string prefix_ = bytes::RandomUuid();
};

TEST_F(S3Store, ABlobIsFoundByItsUriAndByTheUriOfWhatIsAboveIt) {
  const std::unique_ptr<BlobStore> store = Direct();
  ASSERT_TRUE(Put(*store, "a/b c", "12", IfPresent::kReplace).ok());
  const std::string uri = store->UriOf("a/b c");
  EXPECT_EQ(uri, absl::StrCat("s3://", options_.bucket, "/", prefix_, "/a/b c"));
  const auto located = Locate(uri);
  ASSERT_TRUE(located.ok()) << located.status();
  EXPECT_EQ(located->name, "b c");
  EXPECT_EQ(Text(*located->store, located->name), "12");
  const auto bucket = Open(absl::StrCat("s3://", options_.bucket));
  EXPECT_THAT(*(*bucket)->List(prefix_), ElementsAre(prefix_ + "/a/b c"));
}

TEST_F(S3Store, ABucketMayStandBeforeTheHost) {
  options_.settings.endpoint =
      absl::StrReplaceAll(options_.settings.endpoint, {{"127.0.0.1", "localhost"}});
  options_.settings.path_style = false;
  const std::unique_ptr<BlobStore> store = Direct();
  ASSERT_TRUE(Put(*store, "a/b", "12", IfPresent::kFail).ok());
  EXPECT_EQ(Text(*store, "a/b"), "12");
  EXPECT_THAT(*store->List(""), ElementsAre("a/b"));
}

TEST_F(S3Store, ALargeBlobGoesInPartsAndComesBackWhole) {
  const std::unique_ptr<BlobStore> store = Direct();
  const std::string content = Large();
  const auto bytes = bytes::View(content);
  const std::span<const std::byte> pieces[] = {bytes.first(7), {}, bytes.subspan(7)};
  ASSERT_TRUE(store->Put("large", pieces, IfPresent::kFail).ok());
  EXPECT_EQ(*store->Size("large"), content.size());
  EXPECT_TRUE(Text(*store, "large") == content);
  EXPECT_TRUE(absl::IsAlreadyExists(store->Put("large", pieces, IfPresent::kFail)));
  EXPECT_TRUE(store->Put("large", pieces, IfPresent::kReplace).ok());
  EXPECT_EQ(Uploads(), 0U);
}

TEST_F(S3Store, OfTwoThatPutALargeBlobAtOnceOneWins) {
  std::atomic<int> winners = 0;
  std::vector<std::thread> threads;
  for (const char mine : {'a', 'b'}) {
    threads.emplace_back([&, mine] {
      const absl::Status status =
          Put(*Direct(), "one", std::string(kPart + 1, mine), IfPresent::kFail);
      EXPECT_TRUE(status.ok() || absl::IsAlreadyExists(status)) << status;
      winners += status.ok();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  EXPECT_EQ(Uploads(), 0U);
}

TEST_F(S3Store, AnUploadThatFailsLeavesNothing) {
  options_.tries = 3;
  const std::unique_ptr<BlobStore> store = Proxied();
  proxy_.Next("PUT", std::deque<Fault>(3, Fault::kBusy));
  const absl::Status status = Put(*store, "large", Large(), IfPresent::kReplace);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("SlowDown")) << status;
  EXPECT_TRUE(proxy_.done()) << proxy_.requests();
  EXPECT_THAT(*store->List(""), IsEmpty());
  EXPECT_EQ(Uploads(), 0U);
}

TEST_F(S3Store, ManyNamesComeInPages) {
  const std::unique_ptr<BlobStore> store = Direct();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 260; ++i) {
        EXPECT_TRUE(Put(*store, absl::StrCat("n/", thread, "-", i), "", IfPresent::kReplace).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->List("n/")->size(), 1040U) << "more than the 1,000 of a page";
}

// What goes wrong on the way.

class S3StoreFault : public S3Store, public testing::WithParamInterface<Fault> {};
INSTANTIATE_TEST_SUITE_P(S3, S3StoreFault,
                         testing::Values(Fault::kBusy, Fault::kCut, Fault::kLoseAnswer,
                                         Fault::kTruncate, Fault::kStall));

TEST_P(S3StoreFault, CostsAnotherTryAndNoMore) {
  if (GetParam() == Fault::kStall) options_.stall_timeout = absl::Seconds(1);
  const std::unique_ptr<BlobStore> store = Proxied();
  const std::deque<Fault> twice(2, GetParam());
  proxy_.Next("PUT", twice);
  // An answer that was lost does not make the writer believe that somebody else was before it.
  EXPECT_TRUE(Put(*store, "a", "1234567", IfPresent::kFail).ok());
  EXPECT_TRUE(proxy_.done());
  EXPECT_TRUE(absl::IsAlreadyExists(Put(*store, "a", "7654321", IfPresent::kFail)));
  proxy_.Next("GET", twice);
  EXPECT_EQ(Text(*store, "a"), "1234567");
  EXPECT_TRUE(proxy_.done());
  proxy_.Next("GET", twice);
  EXPECT_THAT(*store->List(""), ElementsAre("a"));
  proxy_.Next("DELETE", twice);
  EXPECT_TRUE(store->Delete("a").ok());
  EXPECT_TRUE(proxy_.done());
  EXPECT_TRUE(absl::IsNotFound(store->Size("a").status()));
}

TEST_F(S3Store, WhenTheAnswerToTheLastPartIsLostTheBlobIsKnownToBeOurs) {
  const std::unique_ptr<BlobStore> store = Proxied();
  // The first POST begins the upload; that one may be lost too and costs only an upload too many.
  proxy_.Next("POST", {Fault::kBusy, Fault::kBusy});
  const std::string content = Large();
  ASSERT_TRUE(Put(*store, "warm", content, IfPresent::kFail).ok());
  proxy_.Next(absl::StrCat("POST /", options_.bucket, "/", prefix_, "/large?uploadId"),
              {Fault::kHidden, Fault::kLoseAnswer});
  const absl::Status status = Put(*store, "large", content, IfPresent::kFail);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(proxy_.done());
  EXPECT_TRUE(Text(*store, "large") == content);
}

TEST_F(S3Store, BytesThatChangedOnTheWayAreSentAgain) {
  const std::unique_ptr<BlobStore> store = Proxied();
  proxy_.Next("PUT", {Fault::kFlipBit});
  const absl::Status status = Put(*store, "a", "1234567", IfPresent::kReplace);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(proxy_.done());
  EXPECT_EQ(Text(*store, "a"), "1234567");
}

TEST_F(S3Store, AStoreThatStaysAwayIsAnErrorAfterABoundedTime) {
  options_.tries = 3;
  const std::unique_ptr<BlobStore> store = Proxied();
  proxy_.Next("HEAD", std::deque<Fault>(3, Fault::kCut));
  const absl::Status status = store->Size("a").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("does not answer"));
  EXPECT_EQ(proxy_.requests(), 3);
}

// What is wrong with what the user gave.

TEST_F(S3Store, AWrongSecretIsNamedWithTheRemedy) {
  options_.credentials = [](bool) { return Credentials{"test-key", "wrong", ""}; };
  const absl::Status status = Direct()->List("").status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("correct AWS_SECRET_ACCESS_KEY"));
  EXPECT_THAT(status.message(), Not(HasSubstr("wrong")));
  EXPECT_THAT(Direct()->Size("a").status().message(), HasSubstr("AWS_SECRET_ACCESS_KEY"));
}

TEST_F(S3Store, AnUnknownKeyIsNamedWithTheRemedy) {
  options_.credentials = [](bool) { return Credentials{"nobody", "wrong", ""}; };
  const absl::Status status = Put(*Direct(), "a", "1", IfPresent::kReplace);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("does not know the access key nobody"));
}

TEST_F(S3Store, AnotherRegionIsNamedWithTheRemedy) {
  options_.settings.region = "eu-west-7";
  const absl::Status status = Direct()->List("").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("AWS_REGION"));
}

TEST_F(S3Store, AMissingBucketIsNoMissingBlob) {
  options_.bucket = "no-such-bucket";
  for (const absl::Status& status : {Direct()->Size("a").status(), Direct()->List("").status(),
                                     Put(*Direct(), "a", "1", IfPresent::kReplace),
                                     Put(*Direct(), "a", Large(), IfPresent::kReplace)}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("there is no bucket no-such-bucket at http://"));
  }
}

TEST_F(S3Store, ExpiredCredentialsAreAskedForAnewOnceAndThenNamed) {
  std::vector<bool> asked;
  options_.credentials = [&](bool fresh) {
    asked.push_back(fresh);
    return Credentials{"test-key", "test-secret", ""};
  };
  const std::unique_ptr<BlobStore> store = Proxied();
  proxy_.Next("PUT", {Fault::kExpired});
  EXPECT_TRUE(Put(*store, "a", "1", IfPresent::kReplace).ok());
  EXPECT_THAT(asked, ElementsAre(false, true));
  proxy_.Next("PUT", {Fault::kExpired, Fault::kExpired});
  const absl::Status status = Put(*store, "a", "1", IfPresent::kReplace);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("the credentials have expired; give fresh ones"));
  EXPECT_THAT(asked, ElementsAre(false, true, false, true));
}

}  // namespace
}  // namespace starling::storage
