// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/standby.h"

#include <utility>

namespace starling::membership {
// What the primary said meanwhile is still unread.
void Standby::NoticeGap(absl::Time now) {
  const absl::Duration gap = now - std::exchange(last_event_, now);
  if (gap > kOwnGap) heard_ += gap;
}

void Standby::OnGrant(std::uint64_t incarnation, std::uint64_t primary) {
  if (incarnation <= incarnation_ || leads_) return;
  incarnation_ = incarnation;
  primary_ = primary;
  if (!options_.rules.standby_armed) return;
  shadow_.reset();  // B3
}

ShadowReply Standby::OnShadow(const Shadow& shadow, absl::Time now) {
  NoticeGap(now);
  ShadowReply reply;
  reply.standby = incarnation_;
  reply.incarnation = shadow.incarnation;
  reply.leads = leads_ && options_.rules.standby_ceases;
  const bool for_this =
      incarnation_ != 0 && shadow.standby == incarnation_ && shadow.incarnation == primary_;
  if (!for_this || reply.leads) return reply;  // B3, B2
  const bool older = shadow_ && shadow_->incarnation == shadow.incarnation &&
                     shadow.newest_view < shadow_->newest_view;
  if (!older) shadow_ = shadow;
  heard_ = now;
  reply.view = shadow_->view ? shadow_->view->number : 0;
  return reply;
}

std::optional<Standby::Succession> Standby::TakeOver(absl::Time now) {
  NoticeGap(now);
  const bool may = shadow_ && !leads_ && !shadow_->desired.finished;
  if (!may || now - heard_ < options_.silence) return std::nullopt;
  leads_ = true;
  Succession succession;
  Grant& grant = succession.grant;
  grant.incarnation = incarnation_;
  grant.boot_id = options_.boot_id;
  grant.newest_view = shadow_->newest_view;
  grant.settled_step = shadow_->settled_step;
  grant.knows_all = true;
  grant.view = shadow_->view;
  for (const Pod& pod : shadow_->desired.pods) {
    if (pod.state != PodState::kTerminated) grant.roster.push_back(pod);
  }
  succession.desired = shadow_->desired;
  return succession;
}

}  // namespace starling::membership
