// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/cluster_config.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "api/yaml/yaml.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

constexpr std::size_t kLargestFile = 1U << 20U;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return absl::UnavailableError(absl::StrCat(path, ": reading it failed"));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kLargestFile) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is larger than 1 MiB"));
  }
  return text;
}

// One file with the folder that its relative paths begin at.
struct Source {
  std::string path;
  Json value;
};

// A named entry of one of the files' lists: the first file that has the name wins, as in kubectl.
struct Entry {
  const Source* source;
  const Json* value;
};

std::optional<Entry> Find(const std::vector<Source>& sources, const std::string& list,
                          const std::string& field, const std::string& name) {
  for (const Source& source : sources) {
    for (const Json& entry : At(source.value, "/" + list)) {
      if (StringAt(entry, "/name") == name) return Entry{&source, &At(entry, "/" + field)};
    }
  }
  return std::nullopt;
}

// "x-data" (base64, in the file) or "x" (a path, relative to the file).
absl::StatusOr<FileOrText> FileOrData(const Entry& entry, const std::string& field) {
  FileOrText result;
  const std::string data = StringAt(*entry.value, "/" + field + "-data");
  if (!data.empty()) {
    if (!absl::Base64Unescape(data, &result.text)) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.source->path, ": ", field, "-data: is not base64"));
    }
    return result;
  }
  const std::string path = StringAt(*entry.value, "/" + field);
  if (!path.empty()) {
    result.file =
        (std::filesystem::absolute(entry.source->path).parent_path() / path).lexically_normal();
  }
  return result;
}

struct Unsupported {
  const char* field;
  const char* remedy;
};

absl::Status RefuseUnsupported(const Entry& entry, std::string_view owner,
                               const std::vector<Unsupported>& fields) {
  for (const Unsupported& unsupported : fields) {
    if (At(*entry.value, absl::StrCat("/", unsupported.field)).is_null()) continue;
    return absl::InvalidArgumentError(absl::StrCat(entry.source->path, ": ", std::string(owner),
                                                   ": ", unsupported.field, " is not supported; ",
                                                   unsupported.remedy));
  }
  return absl::OkStatus();
}

absl::Status ReadCluster(const Entry& cluster, const std::string& name, ClusterConfig& config) {
  RETURN_IF_ERROR(
      RefuseUnsupported(cluster, absl::StrCat("cluster \"", name, "\""),
                        {{"proxy-url", "name a server that can be reached without one"}}));
  config.server = StringAt(*cluster.value, "/server");
  if (!absl::StartsWith(config.server, "https://") && !absl::StartsWith(config.server, "http://")) {
    return absl::InvalidArgumentError(absl::StrCat(cluster.source->path, ": cluster \"", name,
                                                   "\": server: \"", config.server,
                                                   "\" must begin with https:// or http://"));
  }
  ASSIGN_OR_RETURN(config.authority, FileOrData(cluster, "certificate-authority"));
  config.insecure = BoolAt(*cluster.value, "/insecure-skip-tls-verify");
  config.tls_server_name = StringAt(*cluster.value, "/tls-server-name");
  return absl::OkStatus();
}

absl::Status ReadUser(const Entry& user, const std::string& name, ClusterConfig& config) {
  constexpr const char* kUseToken =
      "give it a token instead: kubectl create token ACCOUNT --duration=24h";
  RETURN_IF_ERROR(RefuseUnsupported(user, absl::StrCat("user \"", name, "\""),
                                    {{"exec", kUseToken},
                                     {"auth-provider", kUseToken},
                                     {"username", "API servers take no passwords any more"},
                                     {"password", "API servers take no passwords any more"},
                                     {"as", "use that user's own credentials"},
                                     {"as-uid", "use that user's own credentials"},
                                     {"as-groups", "use that user's own credentials"},
                                     {"as-user-extra", "use that user's own credentials"}}));
  ASSIGN_OR_RETURN(config.certificate, FileOrData(user, "client-certificate"));
  ASSIGN_OR_RETURN(config.key, FileOrData(user, "client-key"));
  if (config.certificate.empty() != config.key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(user.source->path, ": user \"", name,
                     "\": client-certificate and client-key must be given together"));
  }
  const Entry file{user.source, user.value};
  const std::string path = StringAt(*user.value, "/tokenFile");
  if (!path.empty()) {
    config.token.file =
        (std::filesystem::absolute(file.source->path).parent_path() / path).lexically_normal();
  } else {
    config.token.text = StringAt(*user.value, "/token");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Source>> ReadSources(const KubeconfigChoice& choice,
                                                const EnvironmentReader& environment) {
  std::vector<std::string> paths;
  if (!choice.path.empty()) {
    paths.push_back(choice.path);
  } else if (const std::string list = environment("KUBECONFIG"); !list.empty()) {
    paths = absl::StrSplit(list, ':', absl::SkipEmpty());
  } else if (const std::string home = environment("HOME"); !home.empty()) {
    paths.push_back(home + "/.kube/config");
  }
  std::vector<Source> sources;
  for (const std::string& path : paths) {
    auto text = ReadFile(path);
    if (absl::IsNotFound(text.status()) && paths.size() > 1) continue;  // as kubectl does
    RETURN_IF_ERROR(text.status());
    auto value = yaml::Parse(*text);
    if (!value.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", std::string(value.status().message())));
    }
    sources.push_back({path, *std::move(value)});
  }
  if (!sources.empty()) return sources;
  return absl::NotFoundError(
      "there is no kubeconfig; name one with --kubeconfig or in the environment variable "
      "KUBECONFIG");
}

}  // namespace

absl::StatusOr<std::string> FileOrText::Read() const {
  if (file.empty()) return text;
  return ReadFile(file);
}

absl::StatusOr<ClusterConfig> LoadKubeconfig(const KubeconfigChoice& choice,
                                             const EnvironmentReader& environment) {
  ASSIGN_OR_RETURN(const std::vector<Source> sources, ReadSources(choice, environment));
  std::string name = choice.context;
  for (const Source& source : sources) {
    if (name.empty()) name = StringAt(source.value, "/current-context");
  }
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(sources.front().path, ": has no current-context; name one with --context"));
  }
  const auto context = Find(sources, "contexts", "context", name);
  if (!context) {
    return absl::NotFoundError(
        absl::StrCat(sources.front().path, ": there is no context \"", name, "\""));
  }
  ClusterConfig config;
  config.origin = absl::StrCat("context \"", name, "\" of ", context->source->path);
  const std::string ns = StringAt(*context->value, "/namespace");
  if (!ns.empty()) config.ns = ns;
  const std::string cluster_name = StringAt(*context->value, "/cluster");
  const auto cluster = Find(sources, "clusters", "cluster", cluster_name);
  if (!cluster) {
    return absl::InvalidArgumentError(absl::StrCat(context->source->path, ": context \"", name,
                                                   "\": there is no cluster \"", cluster_name,
                                                   "\""));
  }
  RETURN_IF_ERROR(ReadCluster(*cluster, cluster_name, config));
  const std::string user_name = StringAt(*context->value, "/user");
  if (user_name.empty()) return config;
  const auto user = Find(sources, "users", "user", user_name);
  if (!user) {
    return absl::InvalidArgumentError(absl::StrCat(context->source->path, ": context \"", name,
                                                   "\": there is no user \"", user_name, "\""));
  }
  RETURN_IF_ERROR(ReadUser(*user, user_name, config));
  return config;
}

absl::StatusOr<ClusterConfig> InClusterConfig(const EnvironmentReader& environment,
                                              std::string_view folder) {
  const std::string host = environment("KUBERNETES_SERVICE_HOST");
  const std::string port = environment("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return absl::FailedPreconditionError(
        "this is no pod of a cluster (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not "
        "set); name a cluster with --kubeconfig, or a folder with --home");
  }
  const std::string place(folder);
  ClusterConfig config;
  const bool is_v6 = host.find(':') != std::string::npos;
  config.server = absl::StrCat("https://", is_v6 ? "[" : "", host, is_v6 ? "]" : "", ":", port);
  config.authority.file = place + "/ca.crt";
  config.token.file = place + "/token";
  config.origin = "the pod's service account";
  const auto ns = ReadFile(place + "/namespace");
  if (ns.ok()) config.ns = std::string(absl::StripAsciiWhitespace(*ns));
  for (const std::string& needed : {config.authority.file, config.token.file}) {
    RETURN_IF_ERROR(ReadFile(needed).status());
  }
  return config;
}

}  // namespace starling::kube
