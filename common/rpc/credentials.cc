// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/credentials.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/status.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace starling::rpc {
namespace {

std::string Text(std::string_view view) { return std::string(view); }

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const tls::Identity& identity) {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = identity.authority;
  options.pem_key_cert_pairs.push_back({identity.key, identity.certificate});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(const tls::Identity& identity) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = identity.authority;
  options.pem_private_key = identity.key;
  options.pem_cert_chain = identity.certificate;
  return grpc::SslCredentials(options);
}

void ExpectPeer(grpc::ChannelArguments& arguments, std::string_view name) {
  arguments.SetSslTargetNameOverride(Text(name));
}

grpc::Status RequirePeer(const grpc::AuthContext& caller, std::string_view name) {
  std::vector<std::string> names;
  for (const grpc::string_ref& value : caller.FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME)) {
    names.emplace_back(value.data(), value.size());
    if (names.back() == name) return grpc::Status::OK;
  }
  if (!caller.IsPeerAuthenticated() || names.empty()) {
    return {grpc::StatusCode::UNAUTHENTICATED,
            absl::StrCat("the call shows no certificate; only ", Text(name), " may call")};
  }
  return {grpc::StatusCode::PERMISSION_DENIED,
          absl::StrCat("only ", Text(name), " may call, not ", absl::StrJoin(names, ", "))};
}

}  // namespace starling::rpc
