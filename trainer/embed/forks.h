// SPDX-License-Identifier: Apache-2.0
// Processes that the program forks (loaders of its data, most of all) inherit every open socket. A
// member that dies while such a child lives would look alive: its peers see the end of a connection
// only when the last copy of it is closed. So the child closes them first of all.
#pragma once

#include <string>

namespace starling::embed {

// From now on whoever is forked from this process closes the member's sockets, which are known by
// our fixed ports (net/ports.h), those of `address` and the data port of whoever was dialled, and
// by the names of the transport's that introduce shared memory. It forgets the handler of SIGTERM
// too. The newest call holds; empty: nothing is closed.
void CloseInForks(const std::string& address);

// What the child does. Returns how many sockets were closed.
int CloseMemberSockets(const std::string& address);

}  // namespace starling::embed
