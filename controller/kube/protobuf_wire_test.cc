// SPDX-License-Identifier: Apache-2.0
// Bytes of a server that is none, or means harm: each an error in words, never more memory than the
// bytes themselves. What a real server sends is in tests/contract/kube_client_messages_contract.h.
#include "controller/kube/protobuf_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "controller/kube/messages.h"

namespace starling::kube {
namespace {

using testing::HasSubstr;

kubernetes::ConfigMap Config(const std::string& name, const std::string& version) {
  kubernetes::ConfigMap config;
  config.mutable_metadata()->set_name(name);
  config.mutable_metadata()->set_resource_version(version);
  (*config.mutable_data())["key"] = "value of " + name;
  return config;
}

std::string ListBody() {
  kubernetes::List list;
  list.mutable_metadata()->set_resource_version("9");
  for (const char* name : {"a", "b"}) list.add_items(Config(name, "5").SerializeAsString());
  return EncodeBody("v1", "ConfigMapList", list);
}

std::string Refusal(int code, const std::string& reason, const std::string& message) {
  kubernetes::Status status;
  status.set_status("Failure");
  status.set_code(code);
  status.set_reason(reason);
  status.set_message(message);
  return EncodeBody("v1", "Status", status);
}

std::string Frame(const std::string& type, const std::string& body) {
  kubernetes::WatchEvent event;
  event.set_type(type);
  event.mutable_object()->set_raw(body);
  const std::string bytes = event.SerializeAsString();
  std::string frame;
  for (int shift = 24; shift >= 0; shift -= 8) {
    frame += static_cast<char>(bytes.size() >> static_cast<unsigned>(shift));
  }
  return frame + bytes;
}

std::string ConfigBody() { return EncodeObject(kConfigMap, Config("a", "5")); }

TEST(ProtobufWire, WhatIsEncodedIsDecoded) {
  const auto object = DecodeObject(kConfigMap, ConfigBody());
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ((*object)->SerializeAsString(), Config("a", "5").SerializeAsString());
  const auto list = DecodeList(kConfigMap, ListBody());
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->items.size(), 2U);
  EXPECT_EQ(NameOf(*list->items[1]), "b");
  EXPECT_EQ(list->resource_version, "9");
}

TEST(ProtobufWire, WhatNobodyReadsIsNotKept) {
  kubernetes::Pod pod;
  pod.mutable_metadata()->set_name("a");
  pod.mutable_spec()->set_node_name("n");
  const std::size_t size = pod.ByteSizeLong();
  // As of a field that the API has and we do not: volumes.
  pod.mutable_spec()->mutable_unknown_fields()->AddLengthDelimited(1, std::string(5000, 'v'));
  const auto read = DecodeObject(kPod, EncodeObject(kPod, pod));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->ByteSizeLong(), size);
}

absl::StatusOr<MessagePtr> ReadRaw(const std::string& raw) {
  kubernetes::Unknown wrapped;
  wrapped.mutable_type_meta()->set_kind("ConfigMap");
  wrapped.set_raw(raw);
  return DecodeObject(kConfigMap, std::string("k8s\0", 4) + wrapped.SerializeAsString());
}

// Values of field 100, which no message here has, of each form that there is.
std::vector<std::string> StrangeFields() {
  const auto text = [](const std::string& length, std::size_t size) {
    return "\xa2\x06" + length + std::string(size, 'v');
  };
  return {"\xa0\x06\x05",
          "\xa0\x06" + std::string(9, '\xff') + "\x01",
          "\xa1\x06" + std::string(8, '\xff'),
          text(std::string(1, '\0'), 0),
          text("\x7f", 127),
          text("\x80\x01", 128),
          text("\xc8\x01", 200),
          "\xa5\x06" + std::string(4, '\xff')};
}

TEST(ProtobufWire, FieldsOfEveryFormArePassedOverAndCutOnesAreErrors) {
  kubernetes::ConfigMap config = Config("a", "5");
  config.mutable_metadata()->set_generation(-1);
  config.set_immutable(true);
  const std::string known = config.SerializeAsString();
  for (const std::string& strange : StrangeFields()) {
    for (const std::string& raw : {strange + known, known + strange, strange + strange}) {
      const auto read = ReadRaw(raw);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ((*read)->ByteSizeLong(), raw == strange + strange ? 0 : known.size());
    }
    for (std::size_t size = 1; size < strange.size(); ++size) {
      EXPECT_FALSE(ReadRaw(known + strange.substr(0, size)).ok()) << size;
    }
  }
  const std::string zeros(20, '\0');
  for (const std::string& wrong :
       {"\xa3\x06" + zeros, "\xa4\x06" + zeros, "\xa6\x06" + zeros, "\xa7\x06" + zeros,
        std::string("\0\0", 2), std::string("\x80\x80\x80\x80\x80\x01\0", 7),
        std::string("\x80\x80\x80\x80\x10\0", 6), std::string("\x0a\x02\0\0", 4),
        "\xa0\x06" + std::string(10, '\xff') + "\x01"}) {
    EXPECT_FALSE(ReadRaw(known + wrong).ok());
    EXPECT_FALSE(ReadRaw(wrong).ok());
  }
  EXPECT_TRUE(ReadRaw("\x08\x05" + known).ok()) << "metadata as a number: of another form";
}

TEST(ProtobufWire, AFieldThatIsNewerThanTheLastKnownOneIsPassedOver) {
  const std::string known = Config("a", "5").SerializeAsString();
  // Numbers 5, 6 and 7, as varints; ConfigMap's last is 4.
  for (const char tag : {'\x28', '\x30', '\x38'}) {
    const auto read = ReadRaw(known + tag + '\x01');
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ((*read)->SerializeAsString(), known);
  }
}

TEST(ProtobufWire, MessagesOfAnyLengthAreReadWhole) {
  for (std::size_t length = 0; length < 300; ++length) {
    const kubernetes::ConfigMap config = Config(std::string(length, 'n'), "5");
    const auto read = ReadRaw(config.SerializeAsString());
    ASSERT_TRUE(read.ok()) << length << ": " << read.status();
    EXPECT_EQ((*read)->SerializeAsString(), config.SerializeAsString()) << length;
  }
  const kubernetes::ConfigMap config = Config(std::string(20'000, 'n'), "5");
  EXPECT_EQ((*ReadRaw(config.SerializeAsString()))->SerializeAsString(),
            config.SerializeAsString());
}

// A container's last words may be of any bytes, and must not hide the pods beside it.
TEST(ProtobufWire, TextThatIsNoUtf8IsReadAsItIs) {
  kubernetes::Pod pod;
  pod.mutable_status()->set_message("caf\xe9 \xff");
  const auto read = DecodeObject(kPod, EncodeObject(kPod, pod));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(static_cast<const kubernetes::Pod&>(**read).status().message(), "caf\xe9 \xff");
}

TEST(ProtobufWire, RefusalsAreTheServersOwn) {
  EXPECT_EQ(*DecodeStatus(Refusal(409, "AlreadyExists", "taken")),
            absl::AlreadyExistsError("taken"));
  EXPECT_EQ(*DecodeStatus(Refusal(410, "Expired", "too old")), absl::OutOfRangeError("too old"));
  EXPECT_EQ(DecodeStatus(ConfigBody()), std::nullopt);
  EXPECT_EQ(DecodeStatus("k8s"), std::nullopt);
}

TEST(ProtobufWire, ARefusalForTheSakeOfTheUidIsAConflict) {
  kubernetes::Status status;
  status.set_status("Failure");
  status.set_code(422);
  status.mutable_details()->add_causes()->set_field("spec");
  EXPECT_TRUE(absl::IsInvalidArgument(*DecodeStatus(EncodeBody("v1", "Status", status))));
  status.mutable_details()->add_causes()->set_field("metadata.uid");
  status.mutable_details()->add_causes()->set_field("metadata.name");
  EXPECT_TRUE(absl::IsAborted(*DecodeStatus(EncodeBody("v1", "Status", status))));
  status.set_status("Success");
  EXPECT_EQ(DecodeStatus(EncodeBody("v1", "Status", status)), std::nullopt);
}

TEST(ProtobufWire, WhatWasDeletedIsTheObjectOrItsNameAndUid) {
  const auto decoded = [](const std::string& body) {
    return DecodeDeleted(kConfigMap, {"team", "a"}, body);
  };
  const auto object = decoded(ConfigBody());
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(ResourceVersionOf(**object), "5");
  kubernetes::Status status;
  status.set_status("Success");
  status.mutable_details()->set_uid("u");
  const auto gone = decoded(EncodeBody("v1", "Status", status));
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_EQ(KeyOf(**gone), (ObjectKey{"team", "a"}));
  EXPECT_EQ(UidOf(**gone), "u");
  EXPECT_TRUE(absl::IsNotFound(decoded(Refusal(404, "NotFound", "no")).status()));
}

// Good news, and then bytes that are no message.
std::string CutStatus() {
  kubernetes::Status status;
  status.set_status("Success");
  kubernetes::Unknown wrapped;
  wrapped.mutable_type_meta()->set_kind("Status");
  wrapped.set_raw(status.SerializeAsString() + "\x0a\x7f");
  return std::string("k8s\0", 4) + wrapped.SerializeAsString();
}

TEST(ProtobufWire, AStatusThatWasCutTellsNothing) {
  const auto gone = DecodeDeleted(kConfigMap, {"team", "a"}, CutStatus());
  EXPECT_TRUE(absl::IsUnavailable(gone.status())) << gone.status();
  EXPECT_THAT(gone.status().message(), HasSubstr("Status is none"));
  EXPECT_EQ(DecodeStatus(CutStatus()), std::nullopt);
}

TEST(ProtobufWire, AListIsOfItsKindAndHasAVersion) {
  kubernetes::List list;
  EXPECT_TRUE(absl::IsUnavailable(
      DecodeList(kConfigMap, EncodeBody("v1", "ConfigMapList", list)).status()));
  list.mutable_metadata()->set_resource_version("9");
  list.mutable_metadata()->set_continue_("on");
  EXPECT_EQ(DecodeList(kConfigMap, EncodeBody("v1", "ConfigMapList", list))->continue_token, "on");
  EXPECT_TRUE(
      absl::IsUnavailable(DecodeList(kConfigMap, EncodeBody("v1", "SecretList", list)).status()));
}

TEST(ProtobufWire, ABodySaysOfWhichKindItIsAndIsNotPacked) {
  kubernetes::Unknown wrapped;
  ASSERT_TRUE(wrapped.ParseFromString(ConfigBody().substr(4)));
  EXPECT_EQ(wrapped.type_meta().api_version(), "v1");
  EXPECT_EQ(wrapped.type_meta().kind(), "ConfigMap");
  wrapped.set_content_encoding("gzip");
  const auto packed = OpenBody(std::string("k8s\0", 4) + wrapped.SerializeAsString());
  EXPECT_TRUE(absl::IsUnavailable(packed.status()));
  EXPECT_THAT(packed.status().message(), HasSubstr("encoded as gzip"));
  EXPECT_THAT(OpenBody(std::string("k8s\0\x0a\x05", 6)).status().message(), HasSubstr("was cut"));
  EXPECT_THAT(DecodeObject(kConfigMap, EncodeBody("", "", kubernetes::Secret())).status().message(),
              HasSubstr("a nameless kind"));
}

TEST(ProtobufWire, AnObjectOfAnotherKindIsNone) {
  for (const auto& body : {ListBody(), EncodeObject(kSecret, kubernetes::Secret()),
                           EncodeBody("", "", kubernetes::Secret())}) {
    const auto read = DecodeObject(kConfigMap, body);
    EXPECT_TRUE(absl::IsUnavailable(read.status()));
    EXPECT_THAT(read.status().message(), HasSubstr("where a ConfigMap belongs"));
  }
  EXPECT_TRUE(absl::IsUnavailable(DecodeList(kConfigMap, ConfigBody()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      DecodeObject(kTrainingJob,
                   EncodeBody("starling.dev/v1alpha1", "TrainingJob", kubernetes::Pod()))
          .status()));
}

TEST(ProtobufWire, WhatDoesNotBeginWithTheMagicIsNoAnswerOfAnApiServer) {
  std::string wrong = ConfigBody();
  wrong[3] = '1';
  for (const std::string& bytes : {std::string(), std::string("k8s"), wrong, std::string("{}")}) {
    EXPECT_THAT(DecodeObject(kConfigMap, bytes).status().message(),
                HasSubstr("is it an API server"));
  }
}

// Cut anywhere, a byte changed anywhere: an error or some object, and no crash (the sanitizers'
// builds run this too).
TEST(ProtobufWire, NoBytesDoHarm) {
  const std::string bodies[] = {ConfigBody(), ListBody(), Refusal(404, "NotFound", "no")};
  for (const std::string& body : bodies) {
    for (std::size_t length = 0; length < body.size(); ++length) {
      EXPECT_FALSE(DecodeList(kConfigMap, body.substr(0, length)).ok()) << length;
    }
  }
  std::minstd_rand random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string body = bodies[round % 3];
    for (int i = 0; i <= round % 4; ++i) body[random() % body.size()] = static_cast<char>(random());
    (void)DecodeObject(kConfigMap, body).ok();
    (void)DecodeList(kConfigMap, body).ok();
    (void)DecodeDeleted(kConfigMap, {"n", "a"}, body).ok();
    (void)DecodeStatus(body).has_value();
    (void)DecodeEvent(kConfigMap, body).ok();
  }
}

TEST(ProtobufWire, NestingWithoutEndIsRefused) {
  // Groups of an unknown field (number 15, types 3 and 4), one within another.
  const std::string body = std::string(100'000, '\x7b') + std::string(100'000, '\x7c');
  kubernetes::Unknown wrapped;
  wrapped.mutable_type_meta()->set_kind("ConfigMap");
  wrapped.set_raw(body);
  const auto read = DecodeObject(kConfigMap, std::string("k8s\0", 4) + wrapped.SerializeAsString());
  EXPECT_TRUE(absl::IsUnavailable(read.status())) << read.status();
}

std::vector<std::string> Cut(FrameBuffer& frames, const std::string& bytes, std::size_t piece) {
  std::vector<std::string> whole;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    frames.Add(std::string_view(bytes).substr(at, piece));
    for (auto frame = frames.Next(); frame.ok() && frame->has_value(); frame = frames.Next()) {
      whole.push_back(**frame);
    }
  }
  return whole;
}

TEST(FrameBuffer, FramesAreWholeHoweverTheyAreCut) {
  const std::string added = Frame("ADDED", ConfigBody());
  const std::string deleted = Frame("DELETED", ConfigBody());
  for (std::size_t piece = 1; piece <= added.size() + deleted.size(); ++piece) {
    FrameBuffer frames(1000);
    EXPECT_EQ(Cut(frames, added + deleted, piece),
              (std::vector<std::string>{added.substr(4), deleted.substr(4)}))
        << piece;
  }
}

TEST(FrameBuffer, FramesMayBeAsLongAsIsSaidAndEmpty) {
  for (const std::size_t size : {0U, 255U, 256U, 300U}) {
    FrameBuffer frames(300);
    frames.Add(std::string("\0\0", 2) + static_cast<char>(size >> 8U) + static_cast<char>(size) +
               std::string(size, 'x'));
    const auto frame = frames.Next();
    ASSERT_TRUE(frame.ok() && frame->has_value()) << size;
    EXPECT_EQ((*frame)->size(), size);
  }
  FrameBuffer frames(300);
  frames.Add(std::string("\0\0\x01\x2d", 4));
  EXPECT_FALSE(frames.Next().ok());
}

TEST(FrameBuffer, ALengthBeyondReasonEndsTheStreamBeforeItsBytesAreAwaited) {
  FrameBuffer frames(16U << 20U);
  frames.Add(std::string("\xff\xff\xff\xff", 4));
  EXPECT_TRUE(absl::IsUnavailable(frames.Next().status()));
  frames.Clear();
  const std::string good = Frame("ADDED", ConfigBody());
  EXPECT_EQ(Cut(frames, good, 3).size(), 1U) << "another stream begins anew";
}

TEST(DecodeEvent, SaysWhatHappened) {
  const auto event = DecodeEvent(kConfigMap, Frame("MODIFIED", ConfigBody()).substr(4));
  ASSERT_TRUE(event.ok() && event->has_value()) << event.status();
  EXPECT_EQ((*event)->type, WatchEventType::kModified);
  EXPECT_EQ(NameOf(*(*event)->object), "a");
  const auto gone = DecodeEvent(kConfigMap, Frame("ERROR", Refusal(410, "Gone", "old")).substr(4));
  EXPECT_EQ(gone.status(), absl::OutOfRangeError("old"));
  const auto newer = DecodeEvent(kConfigMap, Frame("RENAMED", ConfigBody()).substr(4));
  EXPECT_TRUE(newer.ok() && !newer->has_value());
}

TEST(DecodeEvent, AnEventThatWasCutIsNone) {
  const auto cut = DecodeEvent(kConfigMap, Frame("ADDED", ConfigBody()).substr(4) + "\x0a\x7f");
  EXPECT_TRUE(absl::IsUnavailable(cut.status())) << cut.status();
  EXPECT_THAT(cut.status().message(), HasSubstr("cannot be understood"));
}

TEST(DecodeEvent, AnObjectWithoutAVersionIsOfNoUse) {
  const std::string body = EncodeObject(kConfigMap, Config("a", ""));
  EXPECT_TRUE(
      absl::IsUnavailable(DecodeEvent(kConfigMap, Frame("ADDED", body).substr(4)).status()));
  EXPECT_TRUE(absl::IsUnavailable(DecodeEvent(kConfigMap, "").status()));
}

}  // namespace
}  // namespace starling::kube
