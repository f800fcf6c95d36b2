// SPDX-License-Identifier: Apache-2.0
// The table of commands: what parsing, help and completion know.
#include "cli/arguments.h"
#include "cli/commands.h"

namespace starling::cli {
namespace {

constexpr Flag kOutput{.name = "output", .letter = 'o', .value = "FORMAT", .help = "json"};
constexpr Flag kSet{.name = "set",
                    .value = "PATH=VALUE",
                    .help = "set a field, under the checks of the file; repeatable",
                    .repeatable = true};
constexpr Flag kTemplates{.name = "templates",
                          .value = "PATH",
                          .help =
                              "file or folder of the template that the job names, instead of "
                              "templates/ in the home"};
constexpr Flag kReplace{.name = "replace",
                        .help = "stop an unfinished job of that name and start anew"};

Flag Timeout(std::string_view help) {
  return {.name = "timeout", .value = "DURATION", .help = help};
}

Verb Run() {
  return {.name = "run",
          .usage = "FILE [flags]",
          .summary = "Train what a job file describes, and watch it",
          .examples =
              "  starling run examples/digits.yaml\n"
              "  starling run job.yaml --set spec.stop.epochs=5 -o json\n"
              "  starling run job.yaml --replace     # the file has changed since\n",
          .details =
              "Looks at the file and its data first; what is wrong is listed, and nothing is "
              "started.\nCtrl-C saves a checkpoint and leaves; the same command goes on from "
              "there.\nWith -o json the last line on stdout is the finished job.\n",
          .flags = {kSet, kReplace, kTemplates, kOutput},
          .min_names = 1,
          .max_names = 1,
          .run = RunCommand};
}

Verb Submit() {
  return {
      .name = "submit",
      .usage = "FILE [flags]",
      .summary = "Hand a job file to the control plane and return",
      .examples = "  starling up\n  starling submit job.yaml\n  starling get jobs\n",
      .details =
          "On this machine the control plane that `starling up` started trains it. In a cluster "
          "this is\nserver-side apply: fields that the file no longer has are taken back.\n",
      .flags = {kSet, kReplace, kTemplates, kOutput},
      .min_names = 1,
      .max_names = 1,
      .run = SubmitCommand};
}

Verb Watch() {
  return {.name = "watch",
          .usage = "NAME [flags]",
          .summary = "Tell a job's story as it unfolds, to its end",
          .examples = "  starling watch digits\n  starling watch digits --context prod -n vision\n",
          .details = "Ctrl-C leaves; the job goes on.\n",
          .flags = {kOutput},
          .min_names = 1,
          .max_names = 1,
          .run = WatchCommand};
}

Verb Up() {
  return {.name = "up",
          .usage = "[flags]",
          .summary = "Start the control plane in the background",
          .examples = "  starling up\n",
          .details = "",
          .flags = {Timeout("how long to wait until it is ready (30s)")},
          .run = UpCommand};
}

Verb Down() {
  return {.name = "down",
          .usage = "[flags]",
          .summary = "Stop the control plane; training is saved",
          .examples = "  starling down\n  starling up      # and all goes on\n",
          .details = "Every pod saves a checkpoint and ends; unfinished jobs go on after `up`.\n",
          .flags = {Timeout("how long to wait for the pods (60s)")},
          .run = DownCommand};
}

Verb Get() {
  return {.name = "get",
          .usage = "jobs|pods|events|job [NAME] [flags]",
          .summary = "List jobs, pods or events",
          .examples =
              "  starling get jobs\n"
              "  starling get job digits -o yaml\n"
              "  starling get pods -l starling.dev/job=digits -o wide\n"
              "  starling get jobs --history      # those that are no more\n",
          .details = "",
          .flags = {{.name = "output",
                     .letter = 'o',
                     .value = "FORMAT",
                     .help = "wide, json, yaml or name"},
                    {.name = "selector",
                     .letter = 'l',
                     .value = "LABELS",
                     .help = "only those with these labels, such as starling.dev/role=worker"},
                    {.name = "all-namespaces", .letter = 'A', .help = "of every namespace"},
                    {.name = "history", .help = "jobs that were deleted or replaced"}},
          .min_names = 1,
          .max_names = 2,
          .run = GetCommand};
}

Verb Describe() {
  return {.name = "describe",
          .usage = "[job] NAME",
          .summary = "Everything about a job: conditions, progress, incidents, pods, events",
          .examples = "  starling describe digits\n  starling describe job tj/digits\n",
          .details =
              "Not in a cluster, but by --server: also a job that was deleted, the newest of its "
              "name.\n",
          .flags = {{.name = "uid",
                     .value = "UID",
                     .help = "the job with this UID, though another one took its name"}},
          .min_names = 1,
          .max_names = 2,
          .run = DescribeCommand};
}

Verb Logs() {
  return {
      .name = "logs",
      .usage = "POD-or-JOB [flags]",
      .summary = "Print what a pod, or all pods of a job, have written",
      .examples = "  starling logs digits-worker-0\n  starling logs -f digits\n",
      .details = "",
      .flags = {{.name = "follow", .letter = 'f', .help = "go on as more is written"},
                {.name = "tail", .value = "LINES", .help = "only the last so many lines of each"}},
      .min_names = 1,
      .max_names = 1,
      .run = LogsCommand};
}

Verb Scale() {
  return {.name = "scale",
          .usage = "NAME --replicas N [--role ROLE]",
          .summary = "Change the number of workers, or of parameter servers, while it trains",
          .examples =
              "  starling scale digits --replicas 4\n"
              "  starling scale digits-ps --role parameter-server --replicas 3\n",
          .details = "",
          .flags = {{.name = "replicas", .value = "N", .help = "how many are wanted"},
                    {.name = "role",
                     .value = "ROLE",
                     .help = "of what: worker (the default) or parameter-server"}},
          .min_names = 1,
          .max_names = 1,
          .run = ScaleCommand};
}

Verb Suspend() {
  return {.name = "suspend",
          .usage = "NAME [flags]",
          .summary = "Save a checkpoint, release the pods, and wait",
          .examples = "  starling suspend digits\n  starling suspend digits --wait\n",
          .details = "",
          .flags = {{.name = "wait", .help = "until no pod is left"},
                    Timeout("how long to wait (60s)")},
          .min_names = 1,
          .max_names = 1,
          .run = SuspendCommand};
}

Verb Resume() {
  return {.name = "resume",
          .usage = "NAME",
          .summary = "Go on with a suspended job",
          .examples = "  starling resume digits\n",
          .details = "",
          .flags = {},
          .min_names = 1,
          .max_names = 1,
          .run = ResumeCommand};
}

Verb Checkpoint() {
  return {.name = "checkpoint",
          .usage = "NAME [flags]",
          .summary = "Have a running job write a checkpoint at its next step",
          .examples = "  starling checkpoint digits\n  starling checkpoint digits --timeout 5m\n",
          .details = "Prints which step it holds once it is written; training goes on meanwhile.\n",
          .flags = {{.name = "no-wait", .help = "ask for it and return"},
                    Timeout("how long to wait until it is written (60s)")},
          .min_names = 1,
          .max_names = 1,
          .run = CheckpointCommand};
}

Verb Trace() {
  return {
      .name = "trace",
      .usage = "NAME [flags]",
      .summary = "Record what a running job's time goes by with, for a trace viewer",
      .examples =
          "  starling trace digits\n"
          "  starling trace digits --steps 200 -o digits.json.gz\n",
      .details =
          "Writes a Chrome trace, which https://ui.perfetto.dev and chrome://tracing open: of each "
          "process\nwhat it does when, its steps, and each bucket's way through the exchange, with "
          "views and\nincidents. Of a job that has ended: what was recorded last.\n",
      .flags = {{.name = "steps", .value = "N", .help = "of each worker (50)"},
                {.name = "time", .value = "DURATION", .help = "at most so long (30s)"},
                {.name = "output",
                 .letter = 'o',
                 .value = "FILE",
                 .help = "where to (NAME-trace.json); .gz: packed; -: stdout"}},
      .min_names = 1,
      .max_names = 1,
      .run = TraceCommand};
}

Verb Delete() {
  return {.name = "delete",
          .usage = "[job] NAME [flags]",
          .summary = "Stop a job and forget it, its model and its checkpoints",
          .examples = "  starling delete digits\n  starling delete job tj/digits --no-wait\n",
          .details = "",
          .flags = {{.name = "no-wait", .help = "do not wait until its pods are gone"},
                    Timeout("how long to wait (60s)")},
          .min_names = 1,
          .max_names = 2,
          .run = DeleteCommand};
}

Verb Validate() {
  return {.name = "validate",
          .usage = "FILE [flags]",
          .summary = "Say what is wrong with a job file, or show it with all defaults filled in",
          .examples = "  starling validate job.yaml\n  starling validate job.yaml --data\n",
          .details = "",
          .flags = {kSet,
                    kTemplates,
                    {.name = "data", .help = "look at the data that it names too"},
                    {.name = "output", .letter = 'o', .value = "FORMAT", .help = "yaml or json"}},
          .min_names = 1,
          .max_names = 1,
          .run = ValidateCommand};
}

Verb Plan() {
  return {
      .name = "plan",
      .usage = "FILE [flags]",
      .summary = "Say what a job would take, whether there is room, and how long it would run",
      .examples = "  starling plan job.yaml\n  starling plan job.yaml --set spec.stop.epochs=5\n",
      .details =
          "Asks the control plane that `starling up` started, or --server. How long comes "
          "from finished jobs that\ncomputed the same; where there is none it is unknown.\n",
      .flags = {kSet, kOutput},
      .min_names = 1,
      .max_names = 1,
      .run = PlanCommand};
}

constexpr Flag kModel{.name = "model", .value = "URI", .help = "the model file of a job"};
constexpr Flag kLabelColumn{.name = "label-column",
                            .value = "NAME",
                            .help =
                                "the column that is the class or is predicted, by name or "
                                "number; of several NAME,NAME"};

Verb Predict() {
  return {
      .name = "predict",
      .usage = "--model URI (--data URI | --prompt TEXT) [flags]",
      .summary =
          "Say what a trained model thinks of a table's rows or of images, or write on with it",
      .examples =
          "  starling predict --model digits.safetensors --data new.csv\n"
          "  starling predict --model photos.safetensors --data holidays/\n"
          "  starling predict --model shakespeare.safetensors --prompt 'ROMEO:' --symbols 500\n",
      .details =
          "A classification prints a row for each row of the table: the class and how likely it"
          " is; a regression\nthe numbers that it predicts, an autoencoder how far what it "
          "gives back is from the sample. All columns\nare features, but for those that "
          "--label-column names. Of images, which are made as large as those that\nthe model "
          "learnt from, a row begins with the file's name: --data is one (.jpg, .jpeg, .png), a"
          " folder, a\ntar archive, or a file in MNIST's format (-ubyte, .idx). A language "
          "model prints what comes after the\nprompt; the same --seed draws the same.\n",
      .flags = {kModel,
                {.name = "data", .value = "URI", .help = "a table (CSV), or images"},
                kLabelColumn,
                {.name = "prompt", .value = "TEXT", .help = "what a text begins with"},
                {.name = "symbols", .value = "N", .help = "how many to write (200)"},
                {.name = "temperature",
                 .value = "T",
                 .help = "below 1: more likely ones (1); 0: always the likeliest"},
                {.name = "seed", .value = "N", .help = "of what is drawn (1)"}},
      .run = PredictCommand};
}

Verb Evaluate() {
  return {
      .name = "evaluate",
      .usage = "--model URI --data URI [flags]",
      .summary = "Measure a trained model on other data",
      .examples =
          "  starling evaluate --model digits.safetensors --data examples/data/digits-test.csv\n"
          "  starling evaluate --model shakespeare.safetensors --data other.txt -o json\n",
      .details =
          "The data are a table (CSV) with the class or the numbers to be predicted in each "
          "row, images (a folder\nthat has one for each class, a tar archive, or a file in "
          "MNIST's format with --labels), or for a\nlanguage model a text. The metrics are "
          "those of the job's validation; of each class recall is the share\nof its samples "
          "that are found, precision the share of what is taken for it that is of it.\n",
      .flags = {kModel,
                {.name = "data", .value = "URI", .help = "a table (CSV), images, or a text"},
                kLabelColumn,
                {.name = "labels",
                 .value = "URI",
                 .help = "the classes of images in MNIST's format"},
                kOutput},
      .run = EvaluateCommand};
}

Verb Export() {
  return {
      .name = "export",
      .usage = "--model URI --output URI [flags]",
      .summary = "Write a trained model as an ONNX file",
      .examples =
          "  starling export --model digits.safetensors --output digits.onnx\n"
          "  starling export --model s3://models/digits.safetensors -o s3://models/digits.onnx\n",
      .details =
          "onnxruntime and other programs compute such a file (opset 17). Its input is called "
          "input: samples as\ntheir table or image has them, of any number at a time; the file "
          "scales them itself. It gives the\nprobabilities of the classes, a regression's "
          "predictions, an autoencoder's reconstruction and its error,\nor a language model's "
          "scores of the next symbol at each place. A file of that name is replaced.\n",
      .flags = {kModel,
                {.name = "output",
                 .letter = 'o',
                 .value = "URI",
                 .help = "the file to be written; it ends in .onnx"},
                {.name = "weights",
                 .value = "TYPE",
                 .help = "float32 (the default), or int8: a quarter of the size"}},
      .run = ExportCommand};
}

Verb Usage() {
  return {.name = "usage",
          .usage = "[flags]",
          .summary = "Say who has used how many core-seconds, past jobs included",
          .examples = "  starling usage\n  starling usage --from 2026-01-01T00:00:00Z -A -o json\n",
          .details = "Asks the control plane that `starling up` started, or --server.\n",
          .flags = {{.name = "from", .value = "TIME", .help = "from then on (RFC 3339)"},
                    {.name = "to", .value = "TIME", .help = "before then; by default now"},
                    {.name = "all-namespaces", .letter = 'A', .help = "of every namespace"},
                    kOutput},
          .run = UsageCommand};
}

Verb Explain() {
  return {.name = "explain",
          .usage = "[PATH]",
          .summary = "Print the documentation of a field",
          .examples =
              "  starling explain spec.optimizer\n"
              "  starling explain spec.replicaSpecs.worker.maxReplicas\n",
          .details = "",
          .flags = {},
          .max_names = 1,
          .run = ExplainCommand};
}

Verb Version() {
  return {.name = "version",
          .usage = "",
          .summary = "Print the version",
          .examples = "  starling version\n  starling version -o json\n",
          .details = "",
          .flags = {kOutput},
          .run = VersionCommand};
}

Verb Completion() {
  return {.name = "completion",
          .usage = "bash|zsh|fish",
          .summary = "Print a completion script for a shell",
          .examples =
              "  source <(starling completion bash)\n"
              "  starling completion fish | source\n",
          .details = "",
          .flags = {},
          .min_names = 1,
          .max_names = 1,
          .run = CompletionCommand};
}

}  // namespace

const std::vector<Flag>& CommonFlags() {
  static const auto& flags = *new std::vector<Flag>{
      {.name = "namespace", .letter = 'n', .value = "NAME", .help = "the namespace (default)"},
      {.name = "home", .value = "FOLDER", .help = "where state lies, instead of $STARLING_HOME"},
      {.name = "cluster", .help = "use the cluster that kubectl uses, instead of this machine"},
      {.name = "context", .value = "NAME", .help = "use this context of the kubeconfig"},
      {.name = "kubeconfig", .value = "FILE", .help = "use the cluster that this file names"},
      {.name = "server", .value = "URL", .help = "use the REST service there"},
      {.name = "token-file", .value = "FILE", .help = "its token, instead of $STARLING_TOKEN"},
      {.name = "ca-file", .value = "FILE", .help = "the authority of its certificate (PEM)"},
      {.name = "help", .letter = 'h', .help = "show help"}};
  return flags;
}

const std::vector<Verb>& Verbs() {
  static const auto& verbs = *new std::vector<Verb>{
      Run(),     Submit(),   Watch(),  Up(),         Down(),    Get(),     Describe(),  Logs(),
      Scale(),   Suspend(),  Resume(), Checkpoint(), Trace(),   Delete(),  Validate(),  Plan(),
      Predict(), Evaluate(), Export(), Usage(),      Explain(), Version(), Completion()};
  return verbs;
}

}  // namespace starling::cli
