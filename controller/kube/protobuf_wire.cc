// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/protobuf_wire.h"

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "common/sync/mutex.h"
#include "controller/kube/http_status.h"
#include "controller/kube/messages.h"

namespace starling::kube {
namespace {

constexpr std::string_view kMagic("k8s\0", 4);
constexpr std::size_t kLengthBytes = 4;

absl::Status NotUnderstood(const std::string& what) {
  return absl::UnavailableError(absl::StrCat("API server: ", what));
}

bool Parse(std::string_view bytes, Message& message) {
  return bytes.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max()) &&
         message.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

// Takes a varint off the front of `bytes`; false: it is cut, or longer than one can be.
bool TakeVarint(std::string_view& bytes, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
    if (byte < 0x80U) return true;
  }
  return false;
}

void PutVarint(std::uint64_t value, std::string& bytes) {
  for (; value >= 0x80U; value >>= 7U) bytes += static_cast<char>(value | 0x80U);
  bytes += static_cast<char>(value);
}

// Where the value of that wire type ends that `bytes` begins with, and for a length-delimited one
// where its content begins; false: it is cut, or a group, which Kubernetes does not have.
bool Measure(unsigned wire_type, std::string_view bytes, std::size_t& begin, std::size_t& end) {
  std::string_view rest = bytes;
  std::uint64_t value = 0;
  begin = 0;
  if (wire_type == 0) {
    if (!TakeVarint(rest, value)) return false;
    end = bytes.size() - rest.size();
    return true;
  }
  if (wire_type == 2) {
    if (!TakeVarint(rest, value) || value > rest.size()) return false;
    begin = bytes.size() - rest.size();
    end = begin + value;
    return true;
  }
  end = wire_type == 1 ? 8 : 4;
  return (wire_type == 1 || wire_type == 5) && end <= bytes.size();
}

// Which fields messages of a type have, by number: the library's own look-up costs more than the
// rest of what is done about a field. Made once for each type that is read, and kept.
class Shape {
 public:
  struct Field {
    bool known = false;
    const Shape* message = nullptr;  // of what is in it; null: a scalar
  };

  static const Shape& Of(const google::protobuf::Descriptor& type) {
    static sync::Mutex& mutex = *new sync::Mutex();
    static auto& shapes = *new std::map<const google::protobuf::Descriptor*, Shape>();
    const sync::MutexLock lock(mutex);
    return Make(type, shapes);
  }

  Field At(std::uint64_t number) const {
    return number < fields_.size() ? fields_[number] : Field();
  }

 private:
  using Shapes = std::map<const google::protobuf::Descriptor*, Shape>;

  static const Shape& Make(const google::protobuf::Descriptor& type, Shapes& shapes) {
    const auto [place, added] = shapes.try_emplace(&type);
    Shape& shape = place->second;
    for (int i = 0; added && i < type.field_count(); ++i) {
      const google::protobuf::FieldDescriptor& field = *type.field(i);
      const auto number = static_cast<std::size_t>(field.number());
      if (number >= shape.fields_.size()) shape.fields_.resize(number + 1);
      const auto* message = field.message_type();
      shape.fields_[number] = {true, message == nullptr ? nullptr : &Make(*message, shapes)};
    }
    return shape;
  }

  std::vector<Field> fields_;
};

// Appends to `kept` the fields of `raw` that messages of this type have: parsing the others only to
// throw them away costs ten times as much. False: `raw` is no message.
bool KeepKnown(std::string_view raw, const Shape& shape, std::string& kept) {
  while (!raw.empty()) {
    const std::string_view field = raw;
    std::uint64_t tag = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
    if (!TakeVarint(raw, tag) || tag >> 3U == 0 || tag >> 32U != 0) return false;
    const auto wire_type = static_cast<unsigned>(tag & 7U);
    if (!Measure(wire_type, raw, begin, end)) return false;
    const Shape::Field known = shape.At(tag >> 3U);
    if (known.message != nullptr && wire_type == 2) {
      std::string part;
      if (!KeepKnown(raw.substr(begin, end - begin), *known.message, part)) return false;
      PutVarint(tag, kept);
      PutVarint(part.size(), kept);
      kept += part;
    } else if (known.known) {
      kept += field.substr(0, field.size() - raw.size() + end);
    }
    raw.remove_prefix(end);
  }
  return true;
}

absl::StatusOr<MessagePtr> ReadObject(const ResourceKind& kind, std::string_view raw) {
  RETURN_IF_ERROR(RequireMessages(kind));
  std::unique_ptr<Message> object = NewMessage(kind);
  std::string kept;
  if (!KeepKnown(raw, Shape::Of(*object->GetDescriptor()), kept) || !Parse(kept, *object)) {
    return NotUnderstood(absl::StrCat("what is sent as a ", std::string(kind.kind), " is none"));
  }
  return MessagePtr(std::move(object));
}

absl::StatusOr<MessagePtr> ObjectOf(const ResourceKind& kind, const Body& body) {
  if (body.kind == kind.kind) return ReadObject(kind, body.raw);
  return NotUnderstood(absl::StrCat("a ", body.kind.empty() ? "nameless kind" : body.kind,
                                    " is sent where a ", std::string(kind.kind), " belongs"));
}

absl::StatusOr<kubernetes::Status> StatusIn(const Body& body) {
  kubernetes::Status status;
  if (!Parse(body.raw, status)) return NotUnderstood("what is sent as a Status is none");
  return status;
}

absl::Status ErrorOf(const kubernetes::Status& status) {
  ServerStatus told{.http = status.code(),
                    .reason = status.reason(),
                    .message = status.message(),
                    .about_the_uid = false};
  for (const kubernetes::StatusCause& cause : status.details().causes()) {
    told.about_the_uid = told.about_the_uid || cause.field() == "metadata.uid";
  }
  return StatusOfServer(told);
}

bool IsError(const kubernetes::Status& status) { return status.status() != "Success"; }

}  // namespace

std::string EncodeBody(std::string_view api_version, std::string_view kind,
                       const Message& message) {
  kubernetes::Unknown wrapped;
  wrapped.mutable_type_meta()->set_api_version(std::string(api_version));
  wrapped.mutable_type_meta()->set_kind(std::string(kind));
  message.SerializePartialToString(wrapped.mutable_raw());
  std::string bytes(kMagic);
  wrapped.AppendPartialToString(&bytes);
  return bytes;
}

std::string EncodeObject(const ResourceKind& kind, const Message& object) {
  return EncodeBody(kind.ApiVersion(), kind.kind, object);
}

absl::StatusOr<Body> OpenBody(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return NotUnderstood("an answer in protobuf does not begin with \"k8s\"; is it an API server?");
  }
  kubernetes::Unknown wrapped;
  if (!Parse(bytes.substr(kMagic.size()), wrapped)) {
    return NotUnderstood("an answer in protobuf was cut, or is none");
  }
  if (!wrapped.content_encoding().empty()) {
    return NotUnderstood(absl::StrCat("an answer is encoded as ", wrapped.content_encoding(),
                                      ", which was not asked for"));
  }
  return Body{wrapped.type_meta().kind(), std::move(*wrapped.mutable_raw())};
}

absl::StatusOr<MessagePtr> DecodeObject(const ResourceKind& kind, std::string_view bytes) {
  ASSIGN_OR_RETURN(const Body body, OpenBody(bytes));
  return ObjectOf(kind, body);
}

absl::StatusOr<MessageList> DecodeList(const ResourceKind& kind, std::string_view bytes) {
  ASSIGN_OR_RETURN(const Body body, OpenBody(bytes));
  const std::string wanted = absl::StrCat(std::string(kind.kind), "List");
  kubernetes::List list;
  if (body.kind != wanted || !Parse(body.raw, list) || list.metadata().resource_version().empty()) {
    return NotUnderstood(absl::StrCat("the list of ", std::string(kind.plural), " is none"));
  }
  MessageList messages;
  messages.resource_version = list.metadata().resource_version();
  messages.continue_token = list.metadata().continue_();
  messages.items.reserve(static_cast<std::size_t>(list.items_size()));
  for (const std::string& item : list.items()) {
    ASSIGN_OR_RETURN(MessagePtr object, ReadObject(kind, item));
    messages.items.push_back(std::move(object));
  }
  return messages;
}

absl::StatusOr<MessagePtr> DecodeDeleted(const ResourceKind& kind, const ObjectKey& key,
                                         std::string_view bytes) {
  ASSIGN_OR_RETURN(const Body body, OpenBody(bytes));
  if (body.kind != "Status") return ObjectOf(kind, body);
  ASSIGN_OR_RETURN(const kubernetes::Status status, StatusIn(body));
  if (IsError(status)) return ErrorOf(status);
  std::unique_ptr<Message> gone = NewMessage(kind);
  kubernetes::ObjectMeta& metadata = MutableMetadataOf(*gone);
  metadata.set_name(key.name);
  metadata.set_ns(key.ns);
  metadata.set_uid(status.details().uid());
  return MessagePtr(std::move(gone));
}

std::optional<absl::Status> DecodeStatus(std::string_view bytes) {
  const absl::StatusOr<Body> body = OpenBody(bytes);
  if (!body.ok() || body->kind != "Status") return std::nullopt;
  const absl::StatusOr<kubernetes::Status> status = StatusIn(*body);
  if (!status.ok() || !IsError(*status)) return std::nullopt;
  return ErrorOf(*status);
}

absl::StatusOr<std::optional<std::string>> FrameBuffer::Next() {
  const std::string_view rest = std::string_view(pending_).substr(begin_);
  std::size_t length = 0;
  if (rest.size() >= kLengthBytes) {
    for (std::size_t i = 0; i < kLengthBytes; ++i) {
      length = (length << 8U) | static_cast<unsigned char>(rest[i]);
    }
    if (length > longest_) {
      return absl::UnavailableError(
          absl::StrCat("watch: an event of ", length, " bytes, more than ", longest_));
    }
  }
  if (rest.size() < kLengthBytes || rest.size() - kLengthBytes < length) {
    pending_.erase(0, begin_);
    begin_ = 0;
    return std::optional<std::string>();
  }
  begin_ += kLengthBytes + length;
  return std::optional<std::string>(rest.substr(kLengthBytes, length));
}

absl::StatusOr<std::optional<MessageEvent>> DecodeEvent(const ResourceKind& kind,
                                                        std::string_view frame) {
  kubernetes::WatchEvent event;
  if (!Parse(frame, event)) {
    return absl::UnavailableError("watch: an event that cannot be understood");
  }
  ASSIGN_OR_RETURN(const Body body, OpenBody(event.object().raw()));
  if (event.type() == "ERROR") {
    ASSIGN_OR_RETURN(const kubernetes::Status status, StatusIn(body));
    return ErrorOf(status);
  }
  const std::optional<WatchEventType> type = EventTypeOf(event.type());
  if (!type.has_value()) return std::optional<MessageEvent>();
  ASSIGN_OR_RETURN(MessagePtr object, ObjectOf(kind, body));
  if (ResourceVersionOf(*object).empty()) {
    return absl::UnavailableError("watch: an object without a version");
  }
  return std::optional<MessageEvent>({*type, std::move(object)});
}

}  // namespace starling::kube
