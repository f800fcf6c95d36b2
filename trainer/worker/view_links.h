// SPDX-License-Identifier: Apache-2.0
// The mesh of the present view, and the ways to end it from other threads.
//
// The training loop opens and closes meshes; a directive with a newer view must end whatever the
// loop is blocked in at once. A view of one member needs no mesh: there it is null.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/deadline.h"
#include "common/sync/mutex.h"
#include "trainer/control/options.h"
#include "trainer/membership/types.h"
#include "trainer/transport/transport.h"

namespace starling::worker {

using control::NameOf;

// Fence, Abort and Stop are thread-safe; the rest is confined to the training loop's thread.
class ViewLinks {
 public:
  // `transport` outlives this.
  explicit ViewLinks(transport::Transport& transport) : transport_(transport) {}
  ~ViewLinks() { Close(); }

  // Refuses views below `view` and ends the present one if it is lower.
  void Fence(membership::ViewNumber view);
  // Ends this view, if it is the present one.
  void Abort(membership::ViewNumber view);
  // Ends the present view and refuses all others: the process is about to end.
  void Stop();

  // Connects the members of `view`; closes what was open before. Null for a view of one.
  absl::StatusOr<transport::Mesh*> Open(const membership::View& view,
                                        const membership::MemberId& self, net::Deadline deadline);
  // Ends the present mesh in an orderly way, if it is not ended yet.
  void Close();

  // Of the present view: null when alone or closed.
  transport::Mesh* mesh() const { return mesh_.get(); }

  // How many other members of the present view share memory with this one.
  int MembersNear() const;
  // To how many of them what this one sends is encrypted on its way.
  int MembersEncrypted() const;

  // The members that `status`, of an Open or of the mesh, could not reach.
  std::vector<membership::MemberId> Unreachable(const absl::Status& status) const;

 private:
  void CancelBelow(membership::ViewNumber view, const absl::Status& reason);

  transport::Transport& transport_;
  membership::View view_;  // of the last Open
  std::shared_ptr<transport::Mesh> mesh_;

  sync::Mutex mutex_;
  membership::ViewNumber refused_below_ ABSL_GUARDED_BY(mutex_) = 0;
  membership::ViewNumber present_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<transport::Cancellation> opening_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<transport::Mesh> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::worker
