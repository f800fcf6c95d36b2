// SPDX-License-Identifier: Apache-2.0
// Every safety rule of the protocol as a switch, so that a test can turn one off and must then see
// an invariant break: a check that cannot fail proves nothing. Programs use the default, all on.
// To add a rule: a switch here, the place that obeys it, and a negative control in
// trainer/simulation.
#pragma once

namespace starling::membership {

struct Rules {
  // Members.
  bool view_in_state_id = true;          // states compare by (view, step), not by step
  bool halt_first = true;                // stop applying before the new view is reported or synced
  bool min_equals_max = true;            // act on a control word only if all contributed the same
  bool refuse_lower_incarnation = true;  // who has seen a coordinator refuses every older one
  bool witness = true;                   // every later published view needs a witness or a waiver
  bool checkpoint_is_no_witness = true;  // a checkpoint is a state, never a witness
  bool refuse_higher_checkpoint = true;  // a checkpoint of a higher incarnation is never loaded
  bool view_check_on_data = true;        // contributions count in their own view only
  bool staging = true;                   // a copy replaces the state when it is whole
  bool leave_half_copied = true;         // who holds half a copy ends; it starts no training
  bool checkpoint_only_settled = true;   // a snapshot is committed once its step is settled
  // Coordinators.
  bool incarnation_in_view_number = true;  // two coordinators never publish one number
  bool roster_wait = true;                 // a successor hears everyone before it publishes
  bool prune_synced = true;  // a view is forgotten only once a later one is synced by all of it
  bool waive_ended = true;   // a view is waived only if all its members have ended
  // Who was given up and knows a view is taken back once others have synced a newer one.
  bool return_when_synced = true;
  bool restart_clients = true;  // where servers restore something all clients start over
  // A coordinator and its standby.
  bool standby_acknowledges = true;  // nobody is told of a view that the standby does not know
  bool standby_ceases = true;        // once it leads, it acknowledges nothing of the one before
  bool standby_armed = true;         // under a new grant it leads only if it was asked anew
};

}  // namespace starling::membership
