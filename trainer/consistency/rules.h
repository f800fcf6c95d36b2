// SPDX-License-Identifier: Apache-2.0
// The rules that make clocks safe while clients come and go (S8 and S9 of
// docs/design/parameter-server.md), each a switch: a test turns one off and must see harm done.
// Programs use the default, all on.
#pragma once

namespace starling::consistency {

struct Rules {
  bool drop_departed = true;     // S8: who left the view holds nobody up
  bool admit_at_minimum = true;  // S8: a joiner starts at the minimum of the rest, not at zero
  bool bound = true;             // S9: a read waits for everyone's clock
};

}  // namespace starling::consistency
