// SPDX-License-Identifier: Apache-2.0
// gRPC between programs that prove to each other who they are: TLS with certificates on both sides.
//
// A program belongs to a group (a job, by its UID) and plays a role in it; its certificate says
// both in one DNS name (tls::PeerName). A program outside the group fails in the handshake, because
// every group has an authority of its own. A program of the group that plays another role is
// refused by name, with a message. To add a service: ServerCredentials where it listens,
// RequirePeer first in each of its calls.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/tls/tls.h"

namespace grpc {
class AuthContext;
class ChannelArguments;
class ChannelCredentials;
class ServerCredentials;
class Status;
}  // namespace grpc

namespace starling::rpc {

// For a port that only takes clients with a certificate of the same authority.
std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const tls::Identity& identity);

// For channels to such a port.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(const tls::Identity& identity);

// The server that is dialled must be called `name`, whatever address it has.
void ExpectPeer(grpc::ChannelArguments& arguments, std::string_view name);

// For a server: OK if the caller's certificate says `name`. UNAUTHENTICATED: the call shows none;
// PERMISSION_DENIED: it is another's.
grpc::Status RequirePeer(const grpc::AuthContext& caller, std::string_view name);

}  // namespace starling::rpc
