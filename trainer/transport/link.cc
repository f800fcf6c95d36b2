// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/link.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"

namespace starling::transport {
namespace {

constexpr int kFramesPerWrite = 16;

std::string TagText(const Tag& tag) {
  return absl::StrCat("step ", tag.step, ", channel ", tag.channel);
}

}  // namespace

Link::Link(std::unique_ptr<Stream> stream, std::uint64_t view, std::string name,
           std::optional<Wire> wire, LinkOwner& owner, TrafficCounter& counter,
           std::shared_ptr<TrafficCounter> total)
    : stream_(std::move(stream)),
      view_(view),
      name_(std::move(name)),
      wire_(wire),
      owner_(owner),
      counter_(counter),
      total_(std::move(total)) {}

absl::Status Link::Error(absl::StatusCode code, std::string_view what) const {
  return absl::Status(code, absl::StrCat(name_, " in view ", view_, ": ", std::string(what)));
}

absl::Status Link::Error(const absl::Status& status) const {
  return Error(status.code(), std::string(status.message()));
}

void Link::PostSend(Ticket ticket, Tag tag, std::span<const std::byte> data) {
  FrameHeader header;
  header.channel = tag.channel;
  header.view = view_;
  header.step = tag.step;
  header.length = data.size();
  header.departed = wire_ ? owner_.shaper.Depart(kHeaderBytes + data.size(), *wire_) : 0;
  outgoing_.push_back({ticket, Encode(header), data});
}

absl::Status Link::PostReceive(Ticket ticket, Tag tag, std::span<std::byte> data) {
  return Post({ticket, tag, data, nullptr, 0});
}

absl::Status Link::PostReceiveMessage(Ticket ticket, Tag tag, std::string* message,
                                      std::size_t limit) {
  return Post({ticket, tag, {}, message, limit});
}

absl::Status Link::Post(const Receive& receive) {
  const auto early = std::find_if(early_.begin(), early_.end(),
                                  [&](const Early& frame) { return frame.tag == receive.tag; });
  if (early == early_.end()) {
    receives_.push_back(receive);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Deliver(*early, receive));
  early_.erase(early);
  return absl::OkStatus();
}

absl::Status Link::Deliver(const Early& frame, const Receive& receive) {
  ASSIGN_OR_RETURN(std::byte* const target, Target(receive, frame.data.size()));
  if (!frame.data.empty()) std::memcpy(target, frame.data.data(), frame.data.size());
  owner_.early_allowance += frame.data.size();
  owner_.OnReceived(receive.ticket, frame.ready);
  return absl::OkStatus();
}

absl::StatusOr<bool> Link::Write() {
  if (outgoing_.empty() || left_) return false;
  std::array<iovec, 2 * kFramesPerWrite> pieces;
  std::size_t count = 0;
  for (const Outgoing& frame : outgoing_) {
    if (count + 2 > pieces.size()) break;
    const std::size_t head = std::min(frame.written, kHeaderBytes);
    const std::size_t body = frame.written - head;
    if (head < kHeaderBytes) {
      pieces[count++] = {const_cast<std::byte*>(frame.header.data()) + head, kHeaderBytes - head};
    }
    if (body < frame.data.size()) {
      pieces[count++] = {const_cast<std::byte*>(frame.data.data()) + body,
                         frame.data.size() - body};
    }
  }
  const auto written = stream_->Write(std::span(pieces).first(count));
  if (!written.ok()) {
    // The peer may have said why before it closed.
    RETURN_IF_ERROR(Drain());
    if (left_) return false;
    return Error(written.status());
  }
  CountOverhead();
  if (*written == 0) return false;
  std::size_t left = *written;
  while (!outgoing_.empty()) {
    Outgoing& frame = outgoing_.front();
    const std::size_t part = std::min(left, kHeaderBytes + frame.data.size() - frame.written);
    frame.written += part;
    left -= part;
    if (frame.written < kHeaderBytes + frame.data.size()) break;
    counter_.Sent(frame.data.size(), kHeaderBytes);
    total_->Sent(frame.data.size(), kHeaderBytes);
    owner_.OnSent(frame.ticket);
    outgoing_.pop_front();
  }
  return true;
}

absl::StatusOr<bool> Link::Read() {
  // Bytes that came along with others, whose receive may be posted by now.
  ASSIGN_OR_RETURN(const bool advanced, Advance(/*keep_early=*/false));
  if (advanced || !WantsInput()) return advanced;
  ASSIGN_OR_RETURN(const bool read, ReadFromStream());
  if (!read) return false;
  RETURN_IF_ERROR(Advance(/*keep_early=*/false).status());
  return true;
}

absl::Status Link::Drain() {
  hung_up_ = true;
  stream_->OnHangup();
  while (!left_) {
    RETURN_IF_ERROR(Advance(/*keep_early=*/true).status());
    if (left_ || Stuck()) break;
    ASSIGN_OR_RETURN(const bool read, ReadFromStream());
    if (!read) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Link::ReadFromStream() {
  std::array<iovec, 2> pieces;
  std::size_t count = 0;
  std::size_t direct = 0;
  if (staged_begin_ == staged_end_) {
    staged_begin_ = staged_end_ = 0;
    if (incoming_.has_value() && incoming_->target != nullptr) {
      direct = incoming_->header.length - incoming_->filled;
      pieces[count++] = {incoming_->target + incoming_->filled, direct};
    }
  } else if (staged_begin_ > 0) {
    std::memmove(staged_.data(), staged_.data() + staged_begin_, staged_end_ - staged_begin_);
    staged_end_ -= std::exchange(staged_begin_, 0);
  }
  pieces[count++] = {staged_.data() + staged_end_, staged_.size() - staged_end_};
  const auto read = stream_->Read(std::span(pieces).first(count));
  if (!read.ok()) return Error(read.status());
  CountOverhead();
  const std::size_t taken = std::min(*read, direct);
  if (direct > 0) incoming_->filled += taken;
  staged_end_ += *read - taken;
  return *read > 0;
}

void Link::CountOverhead() {
  const Overhead added = stream_->TakeOverhead();
  counter_.Sent(0, added.sent);
  counter_.Received(0, added.received);
  total_->Sent(0, added.sent);
  total_->Received(0, added.received);
}

absl::StatusOr<bool> Link::Advance(bool keep_early) {
  bool moved = false;
  while (!left_) {
    if (!incoming_.has_value()) {
      if (staged_end_ - staged_begin_ < kHeaderBytes) break;
      const FrameHeader header = DecodeHeader(staged_.data() + staged_begin_);
      staged_begin_ += kHeaderBytes;
      moved = true;
      RETURN_IF_ERROR(Begin(header));
      continue;
    }
    if (Stuck()) RETURN_IF_ERROR(Match(keep_early));
    if (Stuck()) break;
    const std::size_t part = std::min<std::size_t>(staged_end_ - staged_begin_,
                                                   incoming_->header.length - incoming_->filled);
    if (part > 0) {
      std::memcpy(incoming_->target + incoming_->filled, staged_.data() + staged_begin_, part);
      incoming_->filled += part;
      staged_begin_ += part;
      moved = true;
    }
    if (incoming_->filled < incoming_->header.length) break;
    RETURN_IF_ERROR(Complete());
    moved = true;
  }
  return moved;
}

absl::Status Link::Begin(const FrameHeader& header) {
  if (header.magic != FrameHeader::kMagic || header.length > kMaxPayloadBytes) {
    return Error(absl::StatusCode::kInternal, "sent bytes that are no frame");
  }
  if (header.view != view_) {
    return Error(absl::StatusCode::kInternal,
                 absl::StrCat("sent a frame of view ", header.view, " on this view's link"));
  }
  if (header.channel == kFarewellChannel) return OnFarewell(header.step);
  incoming_ = Incoming{};
  incoming_->header = header;
  return absl::OkStatus();
}

absl::Status Link::OnFarewell(std::uint64_t reason) {
  if (reason == kOrderly) {
    left_ = true;
    return absl::OkStatus();
  }
  gave_up_ = true;
  if (reason >= kBlaming) blamed_ = static_cast<int>(reason - kBlaming);
  return Error(absl::StatusCode::kUnavailable,
               blamed_.has_value() ? absl::StrCat("gave up, for it lost rank ", *blamed_)
                                   : std::string("gave up"));
}

absl::Status Link::Match(bool keep_early) {
  const Tag tag{incoming_->header.step, incoming_->header.channel};
  const std::uint64_t length = incoming_->header.length;
  const auto receive = std::find_if(receives_.begin(), receives_.end(),
                                    [&](const Receive& posted) { return posted.tag == tag; });
  if (receive != receives_.end()) {
    ASSIGN_OR_RETURN(incoming_->target, Target(*receive, length));
    // An empty span's pointer may be null, which here means "unmatched".
    if (incoming_->target == nullptr) incoming_->target = staged_.data();
    incoming_->ticket = receive->ticket;
    return absl::OkStatus();
  }
  const bool in_the_way = keep_early || !receives_.empty();
  if (!in_the_way || length > owner_.early_allowance) return absl::OkStatus();
  owner_.early_allowance -= length;
  incoming_->early.resize(length);
  incoming_->target = reinterpret_cast<std::byte*>(incoming_->early.data());
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> Link::Target(const Receive& receive, std::uint64_t length) const {
  if (receive.message == nullptr) {
    if (length == receive.data.size()) return receive.data.data();
    return Error(
        absl::StatusCode::kInternal,
        absl::StrCat("sent ", length, " bytes for ", TagText(receive.tag), ", but ",
                     receive.data.size(), " were expected: the ranks disagree about this step"));
  }
  if (length > receive.limit) {
    return Error(absl::StatusCode::kInternal,
                 absl::StrCat("sent a message of ", length, " bytes for ", TagText(receive.tag),
                              ", at most ", receive.limit, " are allowed"));
  }
  receive.message->resize(length);
  return reinterpret_cast<std::byte*>(receive.message->data());
}

absl::Status Link::Complete() {
  Incoming frame = *std::move(incoming_);
  incoming_.reset();
  counter_.Received(frame.header.length, kHeaderBytes);
  total_->Received(frame.header.length, kHeaderBytes);
  // A link keeps the order of its frames.
  const std::int64_t ready =
      wire_ ? owner_.shaper.Arrive(frame.header.departed, kHeaderBytes + frame.header.length,
                                   arrived_)
            : 0;
  arrived_ = ready;
  const Tag tag{frame.header.step, frame.header.channel};
  const auto receive = std::find_if(receives_.begin(), receives_.end(), [&](const Receive& posted) {
    return frame.ticket.has_value() ? posted.ticket == *frame.ticket : posted.tag == tag;
  });
  STARLING_CHECK(!frame.ticket.has_value() || receive != receives_.end(),
                 "a receive stays posted until it is complete");
  if (receive == receives_.end()) {
    early_.push_back({tag, std::move(frame.early), ready});
    return absl::OkStatus();
  }
  if (frame.ticket.has_value()) {
    owner_.OnReceived(*frame.ticket, ready);
  } else {  // posted while the frame was kept as an early one
    RETURN_IF_ERROR(Deliver({tag, std::move(frame.early), ready}, *receive));
  }
  receives_.erase(receive);
  return absl::OkStatus();
}

void Link::Count(std::size_t sent, std::size_t received) {
  counter_.Sent(sent, 0);
  counter_.Received(received, 0);
  total_->Sent(sent, 0);
  total_->Received(received, 0);
}

void Link::Close(std::uint64_t farewell) {
  const bool at_boundary = outgoing_.empty() || outgoing_.front().written == 0;
  FrameHeader header;
  header.channel = kFarewellChannel;
  header.view = view_;
  header.step = farewell;
  const auto bytes = Encode(header);
  const bool says = at_boundary && !left_ && farewell != kSilent;
  if (stream_ != nullptr) {
    stream_->Finish(says ? std::span<const std::byte>(bytes) : std::span<const std::byte>(),
                    farewell == kOrderly);
    stream_.reset();
  }
  outgoing_.clear();
  receives_.clear();
  early_.clear();
  incoming_.reset();
}

}  // namespace starling::transport
