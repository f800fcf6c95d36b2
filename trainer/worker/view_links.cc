// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/view_links.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::worker {
namespace {

constexpr char kNewer[] = "a newer view was published";

}  // namespace

void ViewLinks::CancelBelow(membership::ViewNumber view, const absl::Status& reason) {
  std::shared_ptr<transport::Cancellation> opening;
  std::shared_ptr<transport::Mesh> open;
  {
    sync::MutexLock lock(mutex_);
    refused_below_ = std::max(refused_below_, view);
    if (present_ >= view) return;
    opening = opening_;
    open = open_;
  }
  if (opening) opening->Cancel(reason);
  if (open) open->Cancel(reason);
}

void ViewLinks::Fence(membership::ViewNumber view) {
  transport_.Fence(view);
  CancelBelow(view, absl::CancelledError(kNewer));
}

void ViewLinks::Abort(membership::ViewNumber view) {
  CancelBelow(view + 1, absl::CancelledError("the view was aborted"));
}

void ViewLinks::Stop() {
  CancelBelow(std::numeric_limits<membership::ViewNumber>::max(),
              absl::CancelledError("the worker ends"));
}

absl::StatusOr<transport::Mesh*> ViewLinks::Open(const membership::View& view,
                                                 const membership::MemberId& self,
                                                 net::Deadline deadline) {
  Close();
  view_ = view;
  auto cancellation = std::make_shared<transport::Cancellation>();
  {
    sync::MutexLock lock(mutex_);
    if (view.number < refused_below_) return absl::CancelledError(kNewer);
    present_ = view.number;
    opening_ = cancellation;
  }
  if (view.members.size() == 1) return nullptr;
  std::vector<transport::Peer> peers;
  peers.reserve(view.members.size());
  for (const membership::ViewMember& member : view.members) {
    peers.push_back({NameOf(member.id), member.address, member.pod});
  }
  absl::StatusOr<std::unique_ptr<transport::Mesh>> mesh =
      transport_.Open(view.number, peers, view.RankOf(self), deadline, cancellation.get());
  if (!mesh.ok()) return mesh.status();
  mesh_ = *std::move(mesh);
  sync::MutexLock lock(mutex_);
  if (view.number < refused_below_) mesh_->Cancel(absl::CancelledError(kNewer));
  open_ = mesh_;
  return mesh_.get();
}

void ViewLinks::Close() {
  {
    sync::MutexLock lock(mutex_);
    open_.reset();
    opening_.reset();
    present_ = 0;
  }
  // Another thread may still hold it for a Cancel; then that thread's release ends it.
  mesh_.reset();
}

int ViewLinks::MembersNear() const {
  int near = 0;
  for (int rank = 0; mesh_ != nullptr && rank < mesh_->size(); ++rank) {
    if (mesh_->SharesMemory(rank)) ++near;
  }
  return near;
}

int ViewLinks::MembersEncrypted() const {
  int encrypted = 0;
  for (int rank = 0; mesh_ != nullptr && rank < mesh_->size(); ++rank) {
    if (mesh_->Encrypts(rank)) ++encrypted;
  }
  return encrypted;
}

std::vector<membership::MemberId> ViewLinks::Unreachable(const absl::Status& status) const {
  std::vector<membership::MemberId> members;
  for (int rank : transport::UnreachableRanks(status)) {
    if (rank >= 0 && rank < static_cast<int>(view_.members.size())) {
      members.push_back(view_.members[static_cast<size_t>(rank)].id);
    }
  }
  return members;
}

}  // namespace starling::worker
