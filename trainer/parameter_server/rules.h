// SPDX-License-Identifier: Apache-2.0
// Every safety rule of a replicated shard as a switch (docs/design/parameter-server.md tells what
// each prevents): a test turns one off and must then see harm. Programs use the default, all on.
#pragma once

#include "trainer/consistency/rules.h"
#include "trainer/membership/rules.h"

namespace starling::parameter_server {

struct Rules {
  membership::Rules sync;            // S1: the sync round and its witnesses
  bool open = true;                  // S2: no reply before all servers of the view have synced
  bool in_order = true;              // S3: a push is taken only as the next of its client
  bool lease_dedupe = true;          // S3: a lease in the ledger is not applied again
  bool whole_pushes = true;          // S3: a push some of whose leases are in is refused
  bool tail_only = true;             // S4: the tail alone acknowledges and serves reads
  bool same_view_chain = true;       // S4: servers apply only what was sent in their view
  bool acknowledged_in_view = true;  // S5: clients believe replies of their own view only
  bool one_object = true;            // S6: the dedupe table and the ledger go with the parameters
  bool whole_aggregates = true;      // S12: an aggregate is taken as a whole, or none of it
  bool start_over = true;            // S7: a client whose joined view changed starts over
  bool cache_is_no_state = true;     // S10: what was fetched ahead only shortens a copy
  consistency::Rules clocks;         // S8, S9
};

}  // namespace starling::parameter_server
