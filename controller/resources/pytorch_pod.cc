// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/pytorch_pod.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/macros.h"
#include "common/storage/place.h"
#include "controller/resources/objects.h"
#include "controller/resources/tools.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {
namespace {

constexpr char kPackage[] = "python";  // the folder of it, where the supervisor is installed too
constexpr char kLauncher[] = "starling.embed.launch";
constexpr char kNoImage[] =
    "spec.replicaSpecs.worker.template: needs a container called \"trainer\" with an image that "
    "has "
    "Python and PyTorch, for spec.workload.pytorch runs your program in it";

std::string PackageFolder(const Platform& platform) {
  return platform.local() ? platform.python : absl::StrCat(Text(kRunFolder), "/", kPackage);
}

void Add(Json& env, const char* name, const std::string& value) {
  env.push_back({{"name", name}, {"value", value}});
}

// A kubelet would take $(NAME) for a variable.
std::string Literal(const std::string& word) { return absl::StrReplaceAll(word, {{"$", "$$"}}); }

// The program in the place of starling-worker, and behind its flags the script.
Json CommandOf(const v1alpha1::PyTorch& pytorch, const Json& ours) {
  Json command = Json::array();
  for (const Json& word : ours) {
    if (word != Json(Text(RoleProgram(Role::kWorker)))) {
      command.push_back(word);
      continue;
    }
    for (const std::string& part :
         {Literal(pytorch.python()), std::string("-m"), Text(kLauncher)}) {
      command.push_back(part);
    }
  }
  command.push_back("--");
  // What is no place in a file system was refused when the job was read.
  const auto script = storage::ParsePlace(pytorch.script());
  command.push_back(Literal(script.ok() ? script->path : pytorch.script()));
  for (const std::string& word : pytorch.args()) command.push_back(Literal(word));
  return command;
}

// What our own image has and another may not, or may have otherwise: folders and files that can
// only be read, and a page that answers before the program does.
void DropOurs(Json& trainer) {
  for (const char* field : {"image", "imagePullPolicy", "workingDir", "startupProbe"}) {
    trainer.erase(field);
  }
  trainer["securityContext"].erase("readOnlyRootFilesystem");
}

}  // namespace

absl::StatusOr<Json> BuildPytorchPod(const JobIdentity& job,
                                     const v1alpha1::TrainingJobSpec& resolved,
                                     const PodRequest& request, const Platform& platform) {
  Json ours = DefaultPodSpec(job, resolved, request, platform);
  Json& trainer = ours["containers"][0];
  trainer["command"] = CommandOf(resolved.workload().pytorch(), trainer["command"]);
  Add(trainer["env"], "PYTHONPATH", PackageFolder(platform));
  Add(trainer["env"], "PYTHONUNBUFFERED",
      "1");  // else the last words of one that is killed are lost
  // Else the order of a set of texts is another one in each process.
  if (resolved.reproducible()) Add(trainer["env"], "PYTHONHASHSEED", "0");
  if (platform.local()) {
    // Workers of one machine share its cores: with a thread for each core in each of them,
    // arithmetic waits for its own threads. Whoever has cores to spare gives the template another
    // number.
    Add(trainer["env"], "OMP_NUM_THREADS", "1");
    return BuildPodOver(std::move(ours), job, resolved, request, platform);
  }

  DropOurs(trainer);
  trainer["command"][0] = InstalledSupervisor();
  Add(trainer["env"], "HOME", "/tmp");  // the user need not be one that the image knows
  ASSIGN_OR_RETURN(Json pod, BuildPodOver(std::move(ours), job, resolved, request, platform));
  if (!TrainerIn(pod)->contains("image")) return absl::InvalidArgumentError(kNoImage);
  AddTools(pod, {"--package", PackageFolder(platform)}, platform);
  return pod;
}

}  // namespace starling::resources
