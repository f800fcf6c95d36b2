// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/course_store.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/bytes/encoding.h"
#include "common/status/macros.h"

namespace starling::worker {
namespace {

constexpr std::uint64_t kRecordKey = 1;
constexpr std::size_t kPieceFloats = 256 * 1024;

std::uint64_t PieceKey(std::int64_t set, std::size_t piece) {
  return static_cast<std::uint64_t>(set) << 32 | piece;
}

// The one value of a reply: its length, then its text.
std::string_view ValueOf(const parameter_server::ReadDone& done) {
  if (!done.status.ok() || done.values == nullptr) return {};  // an empty body is none
  if (done.values->size() < sizeof(std::uint64_t)) return {};
  return std::string_view(*done.values).substr(sizeof(std::uint64_t));
}

}  // namespace

std::string EncodeRecord(const CourseRecord& record) {
  bytes::Writer out;
  out.Put(record.turn);
  out.Put(static_cast<std::uint8_t>(record.ends_training));
  out.Put(record.set);
  const Course& course = record.course;
  out.Put(course.step);
  out.Put(course.validated_step);
  out.Put(course.best_step);
  out.Put(course.without_gain);
  for (const Values* values : {&course.training, &course.validation, &course.best}) {
    for (const double value : *values) out.Put(value);
  }
  return out.Take();
}

absl::StatusOr<CourseRecord> DecodeRecord(std::string_view text) {
  if (text.empty()) return CourseRecord();  // nobody has written one
  bytes::Reader in(text);
  CourseRecord record;
  record.turn = in.Get<std::int64_t>();
  record.ends_training = in.Get<std::uint8_t>() != 0;
  record.set = in.Get<std::int64_t>();
  Course& course = record.course;
  course.step = in.Get<std::int64_t>();
  course.validated_step = in.Get<std::int64_t>();
  course.best_step = in.Get<std::int64_t>();
  course.without_gain = in.Get<std::int64_t>();
  for (Values* values : {&course.training, &course.validation, &course.best}) {
    for (double& value : *values) value = in.Get<double>();
  }
  if (in.done()) return record;
  return absl::DataLossError(
      "the record of training's course on the servers is damaged; restore the job from an older "
      "checkpoint");
}

absl::Status CourseStore::Await(const std::function<bool()>& done) {
  const absl::Status status = pipe_.Await(done, net::Deadline::After(timeout_));
  if (!absl::IsDeadlineExceeded(status)) return status;
  return absl::UnavailableError(absl::StrCat(
      "the servers of training's course have not answered for ", absl::FormatDuration(timeout_)));
}

absl::StatusOr<std::string> CourseStore::ReadKey(std::uint64_t key) {
  std::optional<absl::StatusOr<std::string>> answer;
  parameter_server::Read read;
  read.keys = {key};
  pipe_.Read(shard_, std::move(read), [&](const parameter_server::ReadDone& done) {
    if (done.status.ok()) {
      answer.emplace(std::string(ValueOf(done)));
    } else {
      answer.emplace(done.status);
    }
  });
  const absl::Status status = Await([&] { return answer.has_value(); });
  if (status.ok()) return *std::move(answer);
  pipe_.ForgetReads();  // the callback points into this call
  return status;
}

void CourseStore::Ask(std::function<void(const CourseRecord&)> on_record) {
  parameter_server::Read read;
  read.keys = {kRecordKey};
  pipe_.Read(shard_, std::move(read),
             [on_record = std::move(on_record)](const parameter_server::ReadDone& done) {
               if (!done.status.ok()) return;
               const absl::StatusOr<CourseRecord> record = DecodeRecord(ValueOf(done));
               if (record.ok()) on_record(*record);
             });
}

absl::StatusOr<CourseRecord> CourseStore::Read() {
  ASSIGN_OR_RETURN(const std::string text, ReadKey(kRecordKey));
  return DecodeRecord(text);
}

absl::Status CourseStore::ReadKept(const CourseRecord& record, std::span<float> parameters) {
  for (std::size_t begin = 0; begin < parameters.size(); begin += kPieceFloats) {
    const auto into = parameters.subspan(begin, std::min(kPieceFloats, parameters.size() - begin));
    ASSIGN_OR_RETURN(const std::string piece, ReadKey(PieceKey(record.set, begin / kPieceFloats)));
    if (piece.size() != into.size_bytes()) {
      return absl::DataLossError("the kept parameters on the servers are of another size");
    }
    std::memcpy(into.data(), piece.data(), piece.size());
  }
  return absl::OkStatus();
}

void CourseStore::Put(std::uint64_t key, std::string_view text) {
  const std::uint64_t pair[2] = {key, text.size()};
  parameter_server::Update update;
  update.kind = parameter_server::UpdateKind::kPairs;
  update.keys = pair;
  update.text = text;
  parameter_server::Entry entry;
  entry.update = parameter_server::Encode(update);
  pipe_.Push(shard_, std::move(entry));
}

absl::Status CourseStore::AwaitAcknowledged() {
  return Await([this] { return pipe_.unacknowledged(shard_) == 0; });
}

absl::StatusOr<CourseRecord> CourseStore::Write(CourseRecord record, std::span<const float> keep) {
  if (!keep.empty()) record.set = record.set == 1 ? 2 : 1;
  for (std::size_t begin = 0; begin < keep.size(); begin += kPieceFloats) {
    const auto piece = keep.subspan(begin, std::min(kPieceFloats, keep.size() - begin));
    Put(PieceKey(record.set, begin / kPieceFloats),
        {reinterpret_cast<const char*>(piece.data()), piece.size_bytes()});
    RETURN_IF_ERROR(AwaitAcknowledged());
  }
  Put(kRecordKey, EncodeRecord(record));
  RETURN_IF_ERROR(AwaitAcknowledged());
  return record;
}

}  // namespace starling::worker
