// SPDX-License-Identifier: Apache-2.0
// Messages from servers that break off, answer in another form or say no: what becomes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "controller/kube/http_client_testing.h"
#include "controller/kube/messages.h"
#include "controller/kube/protobuf_wire.h"

namespace starling::kube {
namespace {

using testing::HasSubstr;

constexpr const char* kStreamHead =
    "HTTP/1.1 200 X\r\nContent-Type: application/vnd.kubernetes.protobuf;stream=watch\r\n"
    "Transfer-Encoding: chunked\r\n\r\n";

std::string Body(int version) {
  kubernetes::ConfigMap config;
  config.mutable_metadata()->set_name("x");
  config.mutable_metadata()->set_resource_version(absl::StrCat(version));
  return EncodeObject(kConfigMap, config);
}

std::string Frame(const std::string& type, int version) {
  kubernetes::WatchEvent event;
  event.set_type(type);
  event.mutable_object()->set_raw(Body(version));
  const std::string bytes = event.SerializeAsString();
  return std::string("\0\0\0", 3) + static_cast<char>(bytes.size()) + bytes;
}

std::string Answer(int code, const std::string& type, const std::string& body) {
  return absl::StrCat("HTTP/1.1 ", code, " X\r\nContent-Type: ", type,
                      "\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

TEST(HttpMessages, AWatchGoesOnFromTheLastVersionAfterABreakInMidFrame) {
  const ScriptedServer server([](Conversation& c, int number) {
    const bool resumes = c.request.find("resourceVersion=6") != std::string::npos;
    c.Say(kStreamHead);
    if (number == 0) {
      c.Chunk(Frame("ADDED", 5) + Frame("BOOKMARK", 6));
      c.Chunk(Frame("MODIFIED", 7).substr(0, 20));
      return false;
    }
    if (resumes) c.Chunk(Frame("MODIFIED", 7));
    c.AwaitTheirEnd();
    return false;
  });
  auto client = Open(server);
  const auto watch = client->WatchMessages(kConfigMap, "default", {{}, "4"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  std::vector<std::string> versions;
  while (versions.size() < 3) {
    const auto event = (*watch)->Next(absl::Seconds(5));
    ASSERT_TRUE(event.ok() && *event) << event.status();
    versions.push_back(ResourceVersionOf(*(*event)->object));
  }
  EXPECT_THAT(versions, testing::ElementsAre("5", "6", "7"));
}

TEST(HttpMessages, AWatchWithoutAVersionBeginsWithWhatIsPresentAndGoesOnFromThere) {
  kubernetes::ConfigMap config;
  config.mutable_metadata()->set_name("x");
  config.mutable_metadata()->set_resource_version("5");
  kubernetes::List list;
  list.mutable_metadata()->set_resource_version("9");
  list.add_items(config.SerializeAsString());
  const std::string present = EncodeBody("v1", "ConfigMapList", list);
  ExpectPresentAndThenWhatComesAfter(
      [&](Conversation& c) { c.Say(Answer(200, kProtobuf, present)); }, kStreamHead,
      [](HttpKubeClient& client) { return client.WatchMessages(kConfigMap, "default", {}); });
}

TEST(HttpMessages, EventsAreMadeOfFramesThatAreCutAnywhere) {
  EventReader<Message> reader(kConfigMap);
  std::vector<MessageEvent> events;
  const std::string frames = Frame("ADDED", 5) + Frame("NEWER", 6) + Frame("MODIFIED", 7);
  for (std::size_t i = 0; i < frames.size(); i += 9) {
    ASSERT_TRUE(reader.Take(frames.substr(i, 9), events).ok());
  }
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(ResourceVersionOf(*events[0].object), "5");
  EXPECT_EQ(ResourceVersionOf(*events[1].object), "7");
}

TEST(HttpMessages, AFrameOfImpossibleLengthIsAnErrorAfterWhatCameBefore) {
  const ScriptedServer server([](Conversation& c, int number) {
    c.Say(kStreamHead);
    c.Chunk((number == 0 ? Frame("ADDED", 5) : "") + std::string("\x7f\xff\xff\xff", 4));
    c.AwaitTheirEnd();
    return false;
  });
  auto client = Open(server);
  const auto watch = client->WatchMessages(kConfigMap, "default", {{}, "4"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  const auto first = (*watch)->Next(absl::Seconds(5));
  ASSERT_TRUE(first.ok() && *first) << first.status();
  EXPECT_EQ(ResourceVersionOf(*(*first)->object), "5");
  const auto next = (*watch)->Next(absl::Seconds(30));
  EXPECT_TRUE(absl::IsUnavailable(next.status())) << next.status();
}

TEST(HttpMessages, ProtobufIsAskedForAndSent) {
  std::vector<std::string> requests;
  const ScriptedServer server([&requests](Conversation& c, int) {
    requests.push_back(c.request);
    c.Say(Answer(201, kProtobuf, Body(5)));
    return true;
  });
  auto client = Open(server);
  kubernetes::ConfigMap config;
  config.mutable_metadata()->set_name("x");
  ASSERT_TRUE(client->CreateMessage(kConfigMap, config).ok());
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_THAT(requests[0], HasSubstr("Accept: application/vnd.kubernetes.protobuf"));
  EXPECT_THAT(requests[0], HasSubstr("Content-Type: application/vnd.kubernetes.protobuf"));
  EXPECT_THAT(requests[0], HasSubstr(EncodeObject(kConfigMap, config)));
}

TEST(HttpMessages, ARefusalIsReadInWhateverFormItComes) {
  kubernetes::Status status;
  status.set_status("Failure");
  status.set_code(409);
  status.set_reason("AlreadyExists");
  status.set_message("taken");
  const std::pair<std::string, std::string> answers[] = {
      {kProtobuf, EncodeBody("v1", "Status", status)},
      {"application/json",
       R"({"kind":"Status","code":409,"reason":"AlreadyExists","message":"taken"})"}};
  for (const auto& [type, body] : answers) {
    const ScriptedServer server([&type = type, &body = body](Conversation& c, int) {
      c.Say(Answer(409, type, body));
      return true;
    });
    EXPECT_EQ(Open(server)->CreateMessage(kConfigMap, kubernetes::ConfigMap()).status(),
              absl::AlreadyExistsError("taken"))
        << type;
  }
}

TEST(HttpMessages, AnAnswerInAnotherFormIsNoAnswer) {
  for (const char* type : {"application/json", "text/html"}) {
    const ScriptedServer server([type](Conversation& c, int) {
      c.Say(Answer(200, type, "{}"));
      return true;
    });
    const auto read = Open(server)->GetMessage(kConfigMap, {"default", "x"});
    EXPECT_TRUE(absl::IsUnavailable(read.status()));
    EXPECT_THAT(read.status().message(), HasSubstr("where protobuf belongs"));
  }
}

}  // namespace
}  // namespace starling::kube
