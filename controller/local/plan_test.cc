// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/net/ports.h"
#include "common/storage/test_folder.h"
#include "controller/local/address_pool.h"
#include "controller/local/container_plan.h"
#include "controller/local/folders.h"
#include "controller/local/volumes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::local {
namespace {

using kube::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

absl::StatusOr<Json> ReadNothing(const kube::ResourceKind&, const std::string& name) {
  return absl::NotFoundError(name + " is not there");
}

Json SecretOf(const Json& data) { return {{"kind", "Secret"}, {"data", data}}; }

// The Secret "keys" with token=sesame and user=ada, the ConfigMap "settings" with mode=fast; the
// ConfigMap "busy" cannot be read now.
absl::StatusOr<Json> ReadKeys(const kube::ResourceKind& kind, const std::string& name) {
  if (kind.kind == "Secret" && name == "keys") {
    return SecretOf({{"token", "c2VzYW1l"}, {"user", "YWRh"}});
  }
  if (kind.kind == "ConfigMap" && name == "settings") {
    return Json{{"kind", "ConfigMap"}, {"data", {{"mode", "fast"}}}};
  }
  if (name == "busy") return absl::UnavailableError("the store is busy");
  return ReadNothing(kind, name);
}

struct Folder : storage::TestFolder {
  std::string operator/(const std::string& name) const { return path() + "/" + name; }
};

TEST(ExpandVariables, FollowsKubernetes) {
  const std::vector<std::string> variables = {"A=1", "LONG=x=y"};
  EXPECT_EQ(ExpandVariables("$(A)", variables), "1");
  EXPECT_EQ(ExpandVariables("a$(A)b$(LONG)c", variables), "a1bx=yc");
  EXPECT_EQ(ExpandVariables("$(UNKNOWN)", variables), "$(UNKNOWN)");
  EXPECT_EQ(ExpandVariables("$$(A)", variables), "$(A)");
  EXPECT_EQ(ExpandVariables("$A $", variables), "$A $");
  EXPECT_EQ(ExpandVariables("$(A", variables), "$(A");
  EXPECT_EQ(ExpandVariables("$xA)", variables), "$xA)");
  EXPECT_EQ(ExpandVariables("5$$", variables), "5$");
  EXPECT_EQ(ExpandVariables("$()$(LON)", variables), "$()$(LON)") << "no name, and half of one";
}

TEST(SetVariable, ReplacesTheWholeNameInItsPlaceOrAddsIt) {
  std::vector<std::string> variables = {"AB=1", "A=2", "C=3"};
  SetVariable(variables, "A", "x=y");
  SetVariable(variables, "D", "4");
  EXPECT_THAT(variables, ElementsAre("AB=1", "A=x=y", "C=3", "D=4"));
}

TEST(RewritePath, TakesTheLongestMountAndWholeNamesOnly) {
  const std::vector<Mount> mounts = {{"/etc", "/real/a"}, {"/etc/starling", "/real/b"}};
  EXPECT_EQ(RewritePath("/etc/starling/spec.json", mounts), "/real/b/spec.json");
  EXPECT_EQ(RewritePath("/etc/starlings", mounts), "/real/a/starlings");
  EXPECT_EQ(RewritePath("/etc", mounts), "/real/a");
  EXPECT_EQ(RewritePath("/etcetera", mounts), "/etcetera");
  EXPECT_EQ(RewritePath("--spec=/etc/starling/x", mounts), "--spec=/real/b/x");
  EXPECT_EQ(RewritePath("say /etc", mounts), "say /etc");
  EXPECT_EQ(RewritePath("", mounts), "");
  EXPECT_EQ(RewritePath("/etc/starling", {mounts[1], mounts[0]}), "/real/b") << "in any order";
  EXPECT_EQ(RewritePath("/other", {{"", "/real/c"}}), "/other");
  EXPECT_EQ(RewritePath("data/x", {{"data", "/real/c"}}), "data/x") << "no path from the root";
  EXPECT_EQ(RewritePath("/etc", {mounts[0], {"/etc", "/real/c"}}), "/real/a") << "the first of two";
}

TEST(PlanContainer, MissingSecretKeyIsWorthWaitingFor) {
  const Json container = {
      {"command", {"/bin/true"}},
      {"env", Json::array({{{"name", "KEY"},
                            {"valueFrom", {{"secretKeyRef", {{"name", "s"}, {"key", "k"}}}}}}})}};
  const Json pod = Json::object();
  const PodFacts facts{.pod = pod, .ip = ""};

  EXPECT_EQ(PlanContainer(facts, container, {}, {}, "/bin", ReadNothing).status().code(),
            absl::StatusCode::kNotFound);
}

// A container whose variable KEY comes from `source`, such as {"secretKeyRef", {...}}.
Json ContainerWith(const Json& source) {
  return {{"command", {"/bin/true"}},
          {"env", Json::array({{{"name", "KEY"}, {"valueFrom", source}}})}};
}

absl::StatusOr<std::vector<std::string>> VariablesOf(const Json& container,
                                                     const std::vector<std::string>& base = {}) {
  const Json pod = {{"metadata", {{"name", "worker-0"}}}};
  const std::vector<Mount> mounts = {{"/data", "/real/data"}};
  const auto plan =
      PlanContainer({.pod = pod, .ip = ""}, container, mounts, base, "/bin", ReadKeys);
  if (!plan.ok()) return plan.status();
  return plan->environment;
}

TEST(PlanContainer, VariablesComeFromKeysOfSecretsAndConfigMapsAndFromFields) {
  const auto key = [](const char* name, const char* entry) -> Json {
    return {{"name", name}, {"key", entry}};
  };
  EXPECT_THAT(*VariablesOf(ContainerWith({{"secretKeyRef", key("keys", "user")}})),
              ElementsAre("KEY=ada"));
  EXPECT_THAT(*VariablesOf(ContainerWith({{"configMapKeyRef", key("settings", "mode")}})),
              ElementsAre("KEY=fast"));
  EXPECT_THAT(*VariablesOf(ContainerWith({{"fieldRef", {{"fieldPath", "metadata.name"}}}})),
              ElementsAre("KEY=worker-0"));
  const auto lacking = VariablesOf(ContainerWith({{"secretKeyRef", key("keys", "none")}}));
  EXPECT_TRUE(absl::IsNotFound(lacking.status()));
  EXPECT_THAT(std::string(lacking.status().message()),
              HasSubstr("Secret keys has no key \"none\""));
  const auto strange = VariablesOf(ContainerWith({{"resourceFieldRef", Json::object()}}));
  EXPECT_TRUE(absl::IsInvalidArgument(strange.status()));
  EXPECT_THAT(std::string(strange.status().message()), HasSubstr("env KEY"));
}

TEST(PlanContainer, WhatIsOptionalMayBeMissingButNotUnreadable) {
  for (const auto& [name, key] : {std::pair("none", "user"), std::pair("keys", "none")}) {
    const Json reference = {{"name", name}, {"key", key}, {"optional", true}};
    const auto variables = VariablesOf(ContainerWith({{"secretKeyRef", reference}}));
    ASSERT_TRUE(variables.ok()) << variables.status();
    EXPECT_THAT(*variables, IsEmpty()) << name;
  }
  const Json busy = {{"name", "busy"}, {"key", "user"}, {"optional", true}};
  EXPECT_TRUE(
      absl::IsUnavailable(VariablesOf(ContainerWith({{"configMapKeyRef", busy}})).status()));
  Json container = {{"command", {"/bin/true"}}};
  for (const auto& [reference, code] :
       {std::pair(Json{{"name", "none"}, {"optional", true}}, absl::StatusCode::kOk),
        std::pair(Json{{"name", "none"}}, absl::StatusCode::kNotFound),
        std::pair(Json{{"name", "busy"}, {"optional", true}}, absl::StatusCode::kUnavailable)}) {
    container["envFrom"] = Json::array({{{"configMapRef", reference}}});
    EXPECT_EQ(VariablesOf(container).status().code(), code) << reference;
  }
}

TEST(PlanContainer, LaterVariablesReplaceEarlierOnesAndPathsInThemAreReal) {
  const Json container = {
      {"command", {"/bin/true"}},
      {"envFrom", Json::array({{{"secretRef", {{"name", "keys"}}}, {"prefix", "S_"}},
                               {{"configMapRef", {{"name", "settings"}}}}})},
      {"env", Json::array({{{"name", "S_user"}, {"value", "not $(S_user)"}},
                           {{"name", "INPUT"}, {"value", "/data/digits"}}})}};
  EXPECT_THAT(*VariablesOf(container, {"PATH=/bin", "mode=slow"}),
              ElementsAre("PATH=/bin", "mode=fast", "S_token=sesame", "S_user=not ada",
                          "INPUT=/real/data/digits"));
}

TEST(PlanContainer, ContainerWithoutACommandSaysWhatToDo) {
  const Json pod = Json::object();
  const PodFacts facts{.pod = pod, .ip = ""};
  for (const Json& container :
       {Json{{"image", "x"}}, Json{{"args", {"/bin/true"}}}, Json{{"command", Json::array()}}}) {
    const auto plan = PlanContainer(facts, container, {}, {}, "/bin", ReadNothing);
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr("give it one")) << container;
  }
}

TEST(PlanContainer, ProgramsArgumentsAndWorkingDirectoryAreThoseOfTheContainer) {
  const Json pod = Json::object();
  const Json container = {{"command", {"/data/run", "--input=/data/x", 7}},
                          {"args", {"$(A)"}},
                          {"workingDir", "/data/work"}};
  const auto plan = PlanContainer({.pod = pod, .ip = ""}, container, {{"/data", "/real"}}, {"A=1"},
                                  "/bin", ReadNothing);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->program, "/real/run");
  EXPECT_THAT(plan->arguments, ElementsAre("--input=/real/x", "1"));
  EXPECT_EQ(plan->working_directory, "/real/work");
}

TEST(PlanContainer, ProgramsAreLookedForBesideUsAndThenInThePath) {
  const Folder folder;
  for (const char* name : {"ours", "first", "second"}) {
    std::filesystem::create_directories(folder / name);
  }
  const auto place = [&](const std::string& path, mode_t mode) {
    std::ofstream(folder / path) << "#!/bin/sh\n";
    ASSERT_EQ(chmod((folder / path).c_str(), mode), 0);
  };
  place("ours/both", 0755);
  place("first/both", 0755);
  place("ours/text", 0644);  // which nobody may execute
  std::filesystem::create_directories(folder / "first/text");
  place("second/text", 0755);
  place("first/other", 0755);
  const std::vector<std::string> base = {"PATH=" + folder / "first" + ":" + folder / "second"};
  const Json pod = Json::object();
  const auto program = [&](const std::string& name, const std::vector<std::string>& environment) {
    return PlanContainer({.pod = pod, .ip = ""}, {{"command", {name}}}, {}, environment,
                         folder / "ours", ReadNothing)
        ->program;
  };
  EXPECT_EQ(program("both", base), folder / "ours/both");
  EXPECT_EQ(program("other", base), folder / "first/other");
  EXPECT_EQ(program("text", base), folder / "second/text");
  EXPECT_EQ(program("none", base), folder / "ours/none") << "where it should be";
  EXPECT_EQ(program("other", {}), folder / "ours/other");
  EXPECT_EQ(program("./other", base), "./other");
}

TEST(OnlyContainer, PodsOfSeveralContainersAreRefused) {
  const auto pod = [](const Json& containers, const Json& init) -> Json {
    return {{"spec", {{"containers", containers}, {"initContainers", init}}}};
  };
  const Json one = {{"name", "trainer"}};
  const Json alone = pod(Json::array({one}), Json());
  ASSERT_TRUE(OnlyContainer(alone).ok());
  EXPECT_EQ(**OnlyContainer(alone), one);
  EXPECT_TRUE(OnlyContainer(pod(Json::array({one}), Json::array())).ok());
  EXPECT_FALSE(OnlyContainer(pod(Json::array({one}), Json::array({one}))).ok());
  EXPECT_FALSE(OnlyContainer(pod(Json::array({one, one}), Json())).ok());
  EXPECT_FALSE(OnlyContainer(pod(Json::array(), Json())).ok());
  EXPECT_FALSE(OnlyContainer(pod(Json::array({7}), Json())).ok());
  EXPECT_FALSE(OnlyContainer(pod({{"trainer", one}}, Json())).ok());
  EXPECT_FALSE(OnlyContainer(pod(Json::array({one}), {{"first", one}})).ok());
}

TEST(Volumes, PathsThatLeadOutAreRefused) {
  const std::string folder = ::testing::TempDir() + "volumes" + std::to_string(getpid());
  for (const char* path : {"../x", "/etc/passwd", "a/../../x"}) {
    const Json pod = {
        {"spec",
         {{"volumes",
           Json::array({{{"name", "v"},
                         {"downwardAPI",
                          {{"items", Json::array({{{"path", path},
                                                   {"fieldRef",
                                                    {{"fieldPath", "metadata.name"}}}}})}}}}})}}}};
    const auto mounts = ProjectVolumes({.pod = pod, .ip = ""}, Json::object(), folder, ReadNothing);
    EXPECT_EQ(mounts.status().code(), absl::StatusCode::kInvalidArgument) << path;
  }
  const Json named = {{"spec", {{"volumes", Json::array({{{"name", ".."}, {"emptyDir", {}}}})}}}};
  EXPECT_FALSE(ProjectVolumes({.pod = named, .ip = ""}, Json::object(), folder, ReadNothing).ok());
  std::filesystem::remove_all(folder);
}

// The volume "v" of this source as a container sees it at /v, and where that is.
absl::StatusOr<std::vector<Mount>> Project(const Folder& folder, Json volume,
                                           Json mount = Json::object()) {
  volume["name"] = "v";
  mount["name"] = "v";
  if (!mount.contains("mountPath")) mount["mountPath"] = "/v";
  const Json pod = {{"metadata", {{"name", "worker-0"}, {"labels", {{"r", "chief"}}}}},
                    {"spec", {{"volumes", Json::array({volume})}}}};
  return ProjectVolumes({.pod = pod, .ip = "127.1.2.3"}, {{"volumeMounts", Json::array({mount})}},
                        folder / "volumes", ReadKeys);
}

// The files below a folder by their names in it.
std::map<std::string, std::string> FilesOf(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const auto name = entry.path().lexically_relative(folder).string();
    files[name] = ReadFile(entry.path().string()).value_or("cannot be read");
  }
  return files;
}

TEST(Volumes, HoldTheKeysThatTheirItemsChooseOrAll) {
  const auto item = [](const char* key, const char* path) -> Json {
    return {{"key", key}, {"path", path}};
  };
  {
    const Folder folder;
    const auto mounts = Project(folder, {{"secret", {{"secretName", "keys"}}}});
    ASSERT_TRUE(mounts.ok()) << mounts.status();
    EXPECT_EQ((*mounts)[0].mount_path, "/v");
    EXPECT_THAT(FilesOf((*mounts)[0].real_path),
                UnorderedElementsAre(Pair("token", "sesame"), Pair("user", "ada")));
  }
  {
    const Folder folder;
    const Json items = Json::array({item("user", "who/is/it")});
    const auto mounts = Project(folder, {{"secret", {{"secretName", "keys"}, {"items", items}}}});
    ASSERT_TRUE(mounts.ok()) << mounts.status();
    EXPECT_THAT(FilesOf((*mounts)[0].real_path), ElementsAre(Pair("who/is/it", "ada")));
  }
  {
    const Folder folder;
    const auto mounts = Project(folder, {{"secret", {{"secretName", "keys"}, {"items", "user"}}}});
    ASSERT_TRUE(mounts.ok()) << mounts.status();
    EXPECT_EQ(FilesOf((*mounts)[0].real_path).size(), 2U) << "which is no list";
  }
  const Folder folder;
  Json map = {{"name", "settings"}, {"items", Json::array({item("none", "x")})}};
  const auto lacking = Project(folder, {{"configMap", map}});
  EXPECT_TRUE(absl::IsNotFound(lacking.status()));
  EXPECT_THAT(std::string(lacking.status().message()),
              HasSubstr("ConfigMap settings has no key \"none\""));
  map["optional"] = true;
  const auto without = Project(folder, {{"configMap", map}});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_THAT(FilesOf((*without)[0].real_path), IsEmpty());
}

TEST(Volumes, OptionalObjectsMayBeMissingButNotUnreadable) {
  const Folder folder;
  EXPECT_TRUE(absl::IsNotFound(Project(folder, {{"configMap", {{"name", "none"}}}}).status()));
  EXPECT_TRUE(Project(folder, {{"configMap", {{"name", "none"}, {"optional", true}}}}).ok());
  EXPECT_TRUE(absl::IsUnavailable(
      Project(folder, {{"configMap", {{"name", "busy"}, {"optional", true}}}}).status()));
}

TEST(Volumes, ProjectedOnesMixTheirSources) {
  const Folder folder;
  const Json field = {{"path", "me"}, {"fieldRef", {{"fieldPath", "metadata.name"}}}};
  Json sources = Json::array({{{"secret", {{"name", "keys"}}}},
                              {{"configMap", {{"name", "settings"}}}},
                              {{"downwardAPI", {{"items", Json::array({field})}}}}});
  const auto mounts = Project(folder, {{"projected", {{"sources", sources}}}});
  ASSERT_TRUE(mounts.ok()) << mounts.status();
  EXPECT_THAT(FilesOf((*mounts)[0].real_path),
              UnorderedElementsAre(Pair("token", "sesame"), Pair("user", "ada"),
                                   Pair("mode", "fast"), Pair("me", "worker-0")));
  sources.push_back({{"serviceAccountToken", Json::object()}});
  const auto strange = Project(folder, {{"projected", {{"sources", sources}}}});
  EXPECT_TRUE(absl::IsInvalidArgument(strange.status()));
  EXPECT_THAT(std::string(strange.status().message()), HasSubstr("volume v is of a kind"));
}

TEST(Volumes, HostPathsAreThemselvesAndMustBeThereWhereTheirTypeSaysSo) {
  const Folder folder;
  const auto path = [&](const std::string& name, const char* type) {
    return Project(folder, {{"hostPath", {{"path", folder / name}, {"type", type}}}});
  };
  EXPECT_EQ((*path("new", ""))[0].real_path, folder / "new");
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  EXPECT_TRUE(absl::IsNotFound(path("new", "Directory").status()));
  EXPECT_TRUE(path("new", "FileOrCreate").ok());
  EXPECT_TRUE(path("new", "DirectoryOrCreate").ok());
  EXPECT_TRUE(std::filesystem::is_directory(folder / "new"));
  EXPECT_TRUE(path("new", "Directory").ok());
  std::ofstream(folder / "file") << "x";
  EXPECT_FALSE(path("file", "DirectoryOrCreate").ok()) << "a file is no folder";
  for (const char* relative : {"", "data"}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(Project(folder, {{"hostPath", {{"path", relative}}}}).status()));
  }
}

TEST(Volumes, MountsNameAVolumeOfThePodAndMayShowAPartOfIt) {
  const Folder folder;
  const Json empty = {{"emptyDir", Json::object()}};
  EXPECT_EQ((*Project(folder, empty))[0].real_path, folder / "volumes/v");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "volumes/v"));
  EXPECT_EQ((*Project(folder, empty, {{"subPath", "a/b"}}))[0].real_path, folder / "volumes/v/a/b");
  for (const char* out : {"../x", "/etc"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Project(folder, empty, {{"subPath", out}}).status()));
  }
  EXPECT_EQ((*Project(folder, empty, {{"mountPath", "/v//"}}))[0].mount_path, "/v");
  for (const char* root : {"/", "//"}) {
    EXPECT_EQ((*Project(folder, empty, {{"mountPath", root}}))[0].mount_path, "/") << root;
  }
  const Json pod = Json::object();
  const auto other =
      ProjectVolumes({.pod = pod, .ip = ""}, {{"volumeMounts", Json::array({{{"name", "w"}}})}},
                     folder / "volumes", ReadNothing);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("no volume named \"w\""));
  for (const char* name : {"", "..", "a/b", "/a"}) {
    const Json named = {{"spec", {{"volumes", Json::array({{{"name", name}, {"emptyDir", {}}}})}}}};
    EXPECT_TRUE(absl::IsInvalidArgument(
        ProjectVolumes({.pod = named, .ip = ""}, {}, folder / "volumes", ReadNothing).status()))
        << name;
  }
}

TEST(Volumes, DataIsDecodedAsItsObjectsKindSaysAndWhatIsDamagedIsLeftOut) {
  EXPECT_THAT(DataOf({{"kind", "Secret"},
                      {"data", {{"a", "c2VzYW1l"}, {"b", "!"}, {"c", 7}}},
                      {"stringData", {{"d", "c2VzYW1l"}}}}),
              ElementsAre(Pair("a", "sesame"), Pair("d", "c2VzYW1l")));
  EXPECT_THAT(DataOf({{"kind", "ConfigMap"},
                      {"data", {{"a", "c2VzYW1l"}}},
                      {"binaryData", {{"b", "c2VzYW1l"}, {"c", "!"}}}}),
              ElementsAre(Pair("a", "c2VzYW1l"), Pair("b", "sesame")));
}

TEST(ResolveField, KnowsWhatAPodIsToldOfItself) {
  const Json pod = {{"metadata",
                     {{"name", "worker-0"},
                      {"namespace", "team"},
                      {"uid", "u-1"},
                      {"labels", {{"r", "chief"}, {"a]b", "x"}, {"n", 7}}},
                      {"annotations", {{"why", "say \"so\""}}}}}};
  const auto field = [&](const char* path) {
    return ResolveField({.pod = pod, .ip = "127.1.2.3"}, path);
  };
  const std::pair<const char*, const char*> cases[] = {
      {"metadata.name", "worker-0"},
      {"metadata.namespace", "team"},
      {"metadata.uid", "u-1"},
      {"metadata.labels['r']", "chief"},
      {"metadata.labels['a]b']", "x"},
      {"metadata.labels['other']", ""},
      {"metadata.annotations['why']", "say \"so\""},
      {"metadata.labels", "a]b=\"x\"\nn=\"\"\nr=\"chief\"\n"},
      {"metadata.annotations", "why=\"say \\\"so\\\"\"\n"},
      {"status.podIP", "127.1.2.3"},
      {"status.podIPs", "127.1.2.3"},
      {"status.hostIP", "127.0.0.1"},
      {"status.hostIPs", "127.0.0.1"},
      {"spec.nodeName", "local"},
      {"spec.serviceAccountName", "default"}};
  for (const auto& [path, value] : cases)
    EXPECT_EQ(field(path).value_or("an error"), value) << path;
  for (const char* path :
       {"metadata.finalizers", "metadata.labels[r]", "metadata.labels['r", "metadata.labels['role",
        "metadata.labels[']", "metadata.labels['']", "metadata.annotations[why]"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(field(path).status())) << path;
  }
}

TEST(AddressPool, SkipsWhatIsTakenAndGoesRound) {
  std::string taken;
  AddressPool pool("/home/a", [&taken](const std::string& address) { return address == taken; });
  const std::string first = *pool.Take();
  const std::string second = *pool.Take();
  EXPECT_NE(first, second);
  pool.Release(first);
  const std::string third = *pool.Take();
  EXPECT_NE(third, first) << "an address just released is not the next one";
  pool.Release(second);
  pool.Release(third);
  taken = second;
  for (int i = 0; i < 3000; ++i) {
    const auto next = pool.Take();
    ASSERT_TRUE(next.ok());
    EXPECT_NE(*next, second);
    EXPECT_FALSE(next->starts_with("127.0."));
    pool.Release(*next);
  }
}

TEST(AddressPool, FullPoolSaysSo) {
  AddressPool pool("/home/a", [](const std::string&) { return true; });
  EXPECT_EQ(pool.Take().status().code(), absl::StatusCode::kResourceExhausted);
}

bool NobodyHasIt(const std::string&) { return false; }

TEST(AddressPool, HomeHasFourNetworksOfItsOwnWhichNoVersionChanges) {
  AddressPool pool("/home/a", NobodyHasIt);
  std::vector<std::string> all;
  for (int i = 0; i < 4 * 254; ++i) {
    const auto address = pool.Take();
    ASSERT_TRUE(address.ok()) << address.status();
    all.push_back(*address);
  }
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
  EXPECT_EQ(all[0], "127.231.129.1");
  EXPECT_EQ(all[1], "127.231.129.2");
  EXPECT_EQ(all[253], "127.231.129.254");
  EXPECT_EQ(all[254], "127.231.130.1");
  EXPECT_EQ(all.back(), "127.231.132.254");
  pool.Release(all.back());
  const auto last = pool.Take();
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(*last, all.back()) << "the only one that is free, and the last to be tried";
  const auto full = pool.Take();
  EXPECT_TRUE(absl::IsResourceExhausted(full.status()));
  EXPECT_THAT(std::string(full.status().message()),
              HasSubstr("from 127.231.129.1 to 127.231.132.254"));
}

TEST(AddressPool, SuccessorGoesOnAfterTheAddressesInUse) {
  AddressPool before("/home/a", [](const std::string&) { return false; });
  const std::string first = *before.Take();
  const std::string second = *before.Take();
  AddressPool after("/home/a", [](const std::string&) { return false; });
  after.Use(first);
  EXPECT_EQ(*after.Take(), second);
  after.Release(first);
  after.Release(second);
  EXPECT_EQ(*after.Take(), *before.Take()) << "not one that somebody may still dial";
}

TEST(AddressPool, SuccessorGoesOnAfterTheLastOfThemAndKnowsItsOwnFromOthers) {
  AddressPool before("/home/a", NobodyHasIt);
  std::vector<std::string> all(1016);
  for (std::string& address : all) address = *before.Take();
  const auto next_after = [&](const std::vector<std::string>& used) {
    AddressPool pool("/home/a", NobodyHasIt);
    for (const std::string& address : used) pool.Use(address);
    for (const std::string& address : used) pool.Release(address);
    return *pool.Take();
  };
  EXPECT_EQ(next_after({all[0]}), all[1]);
  EXPECT_EQ(next_after({all[7], all[3]}), all[8]);
  EXPECT_EQ(next_after({all.back()}), all[0]);
  EXPECT_EQ(next_after({"127.231.133.1"}), all[0]) << "the next home's";
  AddressPool pool("/home/a", NobodyHasIt);
  pool.Use(all[1]);
  for (int i = 0; i < 1015; ++i) EXPECT_NE(*pool.Take(), all[1]) << "it is in use";
  EXPECT_FALSE(pool.Take().ok());
}

// A listener at a pod's port of an address that no pool has.
class Listener {
 public:
  Listener(const std::string& address, int port) : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    name_.sin_family = AF_INET;
    name_.sin_port = htons(static_cast<std::uint16_t>(port));
    EXPECT_EQ(inet_pton(AF_INET, address.c_str(), &name_.sin_addr), 1);
    const int yes = 1;
    setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    EXPECT_EQ(bind(descriptor_, Name(), sizeof(name_)), 0);
    EXPECT_EQ(listen(descriptor_, 1), 0);
  }
  ~Listener() { close(descriptor_); }
  // Somebody connects and is closed by this end, which remembers that for a minute.
  void ServeOne() const {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(client, Name(), sizeof(name_)), 0);
    close(accept(descriptor_, nullptr, nullptr));
    char end = 0;
    EXPECT_EQ(read(client, &end, 1), 0);
    close(client);
  }

 private:
  const sockaddr* Name() const { return reinterpret_cast<const sockaddr*>(&name_); }
  const int descriptor_;
  sockaddr_in name_ = {};
};

std::ptrdiff_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST(SomebodyListens, AtAnyOfThePodsPortsOfThatAddressAlone) {
  const std::string address =
      "127.255." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(1 + getpid() % 250);
  const std::ptrdiff_t descriptors = OpenDescriptors();
  for (int port = net::kFirstPodPort; port <= net::kLastPodPort; ++port) {
    const Listener listener(address, port);
    EXPECT_TRUE(SomebodyListens(address)) << port;
    EXPECT_FALSE(SomebodyListens("127.255.255.254")) << port;
    listener.ServeOne();
  }
  EXPECT_FALSE(SomebodyListens(address))
      << "what listened is gone; its last connections do not count";
  for (const int port : {net::kFirstPodPort - 1, net::kLastPodPort + 1}) {
    const Listener listener(address, port);
    EXPECT_FALSE(SomebodyListens(address)) << port;
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST(SomebodyListens, NobodyDoesAsFarAsAProcessWithoutDescriptorsCanSee) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_FALSE(SomebodyListens("127.255.255.254"));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace starling::local
