// SPDX-License-Identifier: Apache-2.0
// The C face of Process and Handover: what comes in is checked, what goes out is a code and a text.
#include "trainer/embed/starling_embed.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/buffer/buffer.h"
#include "trainer/embed/process.h"

using starling::buffer::DType;
using starling::embed::Fate;
using starling::embed::Handover;
using starling::embed::Process;
using starling::embed::Ticket;

struct starling_run {
  std::unique_ptr<Process> process;
  Ticket ticket;  // whose ids the caller reads
};

namespace {

thread_local std::string last_error;

int Told(int code, const absl::Status& status) {
  if (status.ok()) return STARLING_OK;
  last_error = std::string(status.message());
  return code;
}

// Of opening, declaring and starting.
int CodeOf(const absl::Status& status) {
  const bool here = absl::IsUnavailable(status);
  return Told(here ? STARLING_FAILED : STARLING_BAD_INPUT, status);
}

// No exception may cross into a caller of another language.
template <typename Body>
int Guarded(const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return Told(STARLING_FAILED, absl::InternalError(error.what()));
  }
}

absl::Status Misused(std::string_view what) {
  return absl::FailedPreconditionError(absl::string_view(what.data(), what.size()));
}

// `body` before the start, with the process.
template <typename Body>
int Declare(starling_run* run, const Body& body) {
  return Guarded([&] {
    if (run == nullptr) return Told(STARLING_MISUSE, Misused("the run is null"));
    if (run->process->started()) {
      return Told(STARLING_MISUSE, Misused("what a program has is said before it starts"));
    }
    return CodeOf(body(*run->process));
  });
}

// `body` after the start, with the process; it returns a status that speaks of the caller.
template <typename Body>
int Use(starling_run* run, const Body& body) {
  return Guarded([&] {
    if (run == nullptr || !run->process->started()) {
      return Told(STARLING_MISUSE, Misused("the run has not been started"));
    }
    return Told(STARLING_MISUSE, body(*run->process));
  });
}

absl::StatusOr<DType> TypeOf(const char* type) {
  const auto found = starling::buffer::ParseDType(type == nullptr ? "" : type);
  if (found) return *found;
  return absl::InvalidArgumentError(absl::StrCat("type ", type == nullptr ? "null" : type,
                                                 ": must be one of safetensors', such as F32"));
}

absl::StatusOr<starling::checkpoint::StatePart> PartOf(const char* name, const char* type,
                                                       size_t dimensions, const int64_t* shape,
                                                       void* data) {
  if (name == nullptr || *name == '\0') {
    return absl::InvalidArgumentError("a part of the state has no name");
  }
  const std::string text = name;
  constexpr size_t kLongest = 480;
  const auto fits = [](char c) { return c > ' ' && c <= '~'; };
  if (text.size() > kLongest || !std::ranges::all_of(text, fits)) {
    return absl::InvalidArgumentError(absl::StrCat("part ", text, ": a name has at most ", kLongest,
                                                   " printable ASCII characters, no space"));
  }
  ASSIGN_OR_RETURN(const DType dtype, TypeOf(type));
  if (dimensions > 0 && shape == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("part ", text, ": its shape is null"));
  }
  starling::checkpoint::StatePart part{.name = text, .type = dtype, .shape = {}, .data = {}};
  size_t bytes = starling::buffer::SizeOf(dtype);
  for (size_t i = 0; i < dimensions; ++i) {
    if (shape[i] < 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(shape[i]), &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("part ", text, ": dimension ", i, " is ", shape[i]));
    }
    part.shape.push_back(shape[i]);
  }
  if (data == nullptr && bytes > 0) {
    return absl::InvalidArgumentError(absl::StrCat("part ", text, ": its memory is null"));
  }
  part.data = {static_cast<std::byte*>(data), bytes};
  return part;
}

// The stretch of the gradients that is bucket `bucket`, of so many elements.
absl::StatusOr<std::span<float>> BucketOf(Handover& handover, int64_t bucket, int64_t elements) {
  const auto& buckets = handover.declaration().buckets;
  if (bucket < 0 || bucket >= static_cast<int64_t>(buckets.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket ", bucket, ": there are ", buckets.size()));
  }
  const auto& found = buckets[static_cast<size_t>(bucket)];
  if (found.end - found.begin != elements) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bucket ", bucket, " has ", found.end - found.begin, " elements, not ", elements));
  }
  return handover.gradients().subspan(static_cast<size_t>(found.begin),
                                      static_cast<size_t>(elements));
}

// `values` as what they are, given to `body` as a pointer of that type.
template <typename Body>
absl::Status AsFloats(const char* type, const void* values, const Body& body) {
  ASSIGN_OR_RETURN(const DType dtype, TypeOf(type));
  if (values == nullptr) return absl::InvalidArgumentError("the values are null");
  if (dtype == DType::kF32) {
    body(static_cast<const float*>(values));
  } else if (dtype == DType::kF64) {
    body(static_cast<const double*>(values));
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("gradients are F32 or F64, not ", std::string(type)));
  }
  return absl::OkStatus();
}

void Describe(const Ticket& ticket, const starling::data::Batches& batches, starling_step* step) {
  *step = {};
  step->number = ticket.step;
  step->view = ticket.view;
  step->rank = static_cast<int32_t>(ticket.rank);
  step->members = static_cast<int32_t>(ticket.members);
  step->steps_per_epoch = batches.StepsPerEpoch();
  if (ticket.step < 1) return;
  step->epoch = batches.At(ticket.step).epoch;
  step->step_of_epoch = (ticket.step - 1) % batches.StepsPerEpoch();
  step->batch = batches.BatchSize(ticket.step);
  step->position = ticket.position;
  step->count = static_cast<int64_t>(ticket.ids.size());
  step->ids = ticket.ids.data();
  if (ticket.replaced) step->flags |= STARLING_STATE_REPLACED;
  if (ticket.repeated) step->flags |= STARLING_REPEATED;
  if (ticket.interrupted) step->flags |= STARLING_INTERRUPTED;
  if (ticket.last) step->flags |= STARLING_LAST;
}

using Portions = std::vector<starling::data::Range>;

absl::StatusOr<Portions> PortionsOf(Process& process, int64_t step, int64_t rank, int64_t members) {
  if (step < 1 || members < 1 || rank < 0 || rank >= members) {
    return absl::InvalidArgumentError(
        absl::StrCat("no share of step ", step, ": rank ", rank, " of ", members));
  }
  return process.handover().Portions(step, rank, members);
}

// How many there are.
int64_t CopyOut(const std::vector<int64_t>& found, int64_t* into, int64_t capacity) {
  const auto count = static_cast<int64_t>(found.size());
  if (into != nullptr) std::copy_n(found.begin(), std::clamp<int64_t>(capacity, 0, count), into);
  return count;
}

int HowItEnded(Process& process) {
  const absl::Status status = process.ended().value_or(absl::OkStatus());
  if (!status.ok()) return Told(STARLING_FAILED, status);
  (void)Told(STARLING_LEFT, absl::CancelledError("the job needs this process no more"));
  return STARLING_LEFT;
}

}  // namespace

int starling_abi(void) { return STARLING_ABI; }
const char* starling_last_error(void) { return last_error.c_str(); }

int starling_open(const char* const* arguments, size_t count, starling_run** run) {
  return Guarded([&] {
    if (run == nullptr || (arguments == nullptr && count > 0)) {
      return Told(STARLING_MISUSE, Misused("starling_open: a pointer is null"));
    }
    *run = nullptr;
    auto process = Process::Open(std::vector<std::string>(arguments, arguments + count));
    if (!process.ok()) return CodeOf(process.status());
    *run = new starling_run{*std::move(process), {}};
    return static_cast<int>(STARLING_OK);
  });
}

void starling_free(starling_run* run) { delete run; }

const char* starling_spec(starling_run* run) {
  return run == nullptr ? "" : run->process->spec_text().c_str();
}

int starling_set_samples(starling_run* run, int64_t samples, int64_t batch, const char* digest) {
  return Declare(run, [&](Process& process) -> absl::Status {
    if (samples < 1 || batch < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(samples, " samples in batches of ", batch, ": both must be 1 or more"));
    }
    process.description.samples = samples;
    process.description.data_digest = digest == nullptr ? "" : digest;
    process.batch = batch;
    return absl::OkStatus();
  });
}

int starling_set_end(starling_run* run, int64_t epochs, int64_t steps) {
  return Declare(run, [&](Process& process) -> absl::Status {
    if (epochs < 0 || steps < 0) return absl::InvalidArgumentError("epochs and steps are from 0");
    process.end = {epochs, steps};
    return absl::OkStatus();
  });
}

int starling_set_identity(starling_run* run, const char* identity) {
  return Declare(run, [&](Process& process) {
    process.description.numeric_identity = identity == nullptr ? "" : identity;
    return absl::OkStatus();
  });
}

int starling_add_metric(starling_run* run, const char* name) {
  return Declare(run, [&](Process& process) -> absl::Status {
    std::vector<std::string>& metrics = process.description.metrics;
    const std::string text = name == nullptr ? "" : name;
    if (text.empty() || std::ranges::find(metrics, text) != metrics.end()) {
      return absl::InvalidArgumentError(absl::StrCat("metric '", text, "': it has a name, once"));
    }
    if (metrics.size() >= starling::workload::kMostMetrics) {
      return absl::InvalidArgumentError(
          absl::StrCat("metric ", text, ": there are at most ", starling::workload::kMostMetrics));
    }
    metrics.push_back(text);
    return absl::OkStatus();
  });
}

int starling_add_state(starling_run* run, const char* name, const char* type, size_t dimensions,
                       const int64_t* shape, void* data, uint32_t flags) {
  return Declare(run, [&](Process& process) -> absl::Status {
    ASSIGN_OR_RETURN(auto part, PartOf(name, type, dimensions, shape, data));
    for (const auto& other : process.description.state) {
      if (other.part.name != part.name) continue;
      return absl::InvalidArgumentError(absl::StrCat("part ", part.name, " is added twice"));
    }
    process.description.state.push_back({.part = std::move(part),
                                         .model = (flags & STARLING_MODEL) != 0,
                                         .copied = (flags & STARLING_COPIED) != 0});
    return absl::OkStatus();
  });
}

int starling_add_bucket(starling_run* run, int64_t elements) {
  return Declare(run, [&](Process& process) -> absl::Status {
    if (elements < 1) return absl::InvalidArgumentError("a bucket has 1 element or more");
    process.description.buckets.push_back(elements);
    return absl::OkStatus();
  });
}

int starling_start(starling_run* run) {
  return Declare(run, [](Process& process) { return process.Start(); });
}

int starling_next(starling_run* run, starling_step* step) {
  int code = STARLING_OK;
  const int used = Use(run, [&](Process& process) -> absl::Status {
    if (step == nullptr) return absl::InvalidArgumentError("starling_next: the step is null");
    ASSIGN_OR_RETURN(const Handover::Given given, process.handover().Next(run->ticket));
    process.over = given == Handover::Given::kOver;
    if (given == Handover::Given::kStep) Describe(run->ticket, process.batches(), step);
    if (given == Handover::Given::kOver) {
      *step = {};
      if (run->ticket.replaced) step->flags = STARLING_STATE_REPLACED;
      code = STARLING_OVER;
    }
    if (given == Handover::Given::kStateWanted) code = STARLING_STATE_WANTED;
    if (given == Handover::Given::kEnded) code = HowItEnded(process);
    return absl::OkStatus();
  });
  return used == STARLING_OK ? code : used;
}

int starling_gradients(starling_run* run, float** data, int64_t* elements) {
  return Use(run, [&](Process& process) -> absl::Status {
    if (data == nullptr || elements == nullptr) return Misused("starling_gradients: null");
    const std::span<float> gradients = process.handover().gradients();
    *data = gradients.data();
    *elements = static_cast<int64_t>(gradients.size());
    return absl::OkStatus();
  });
}

int starling_ready(starling_run* run, int64_t bucket) {
  return Use(run, [&](Process& process) { return process.handover().Ready(bucket); });
}

int starling_add(starling_run* run, int64_t bucket, const char* type, const void* values,
                 int64_t elements, double scale) {
  return Use(run, [&](Process& process) -> absl::Status {
    ASSIGN_OR_RETURN(const std::span<float> into, BucketOf(process.handover(), bucket, elements));
    RETURN_IF_ERROR(AsFloats(type, values, [&](const auto* from) {
      std::transform(from, from + elements, into.begin(),
                     [&](auto value) { return static_cast<float>(value * scale); });
    }));
    return process.handover().Ready(bucket);
  });
}

int starling_log(starling_run* run, int64_t metric, double value) {
  return Use(run, [&](Process& process) { return process.handover().Log(metric, value); });
}

int starling_log_sum(starling_run* run, int64_t metric, double sum, double count) {
  return Use(run, [&](Process& process) {
    return process.handover().LogSum(metric, {.sum = sum, .count = count});
  });
}

int starling_mean(starling_run* run, int64_t metric, double* value) {
  return Use(run, [&](Process& process) -> absl::Status {
    if (value == nullptr) return Misused("starling_mean: the value is null");
    *value = process.handover().Mean(metric);
    return absl::OkStatus();
  });
}

int starling_reduce(starling_run* run, double weight, int32_t* outcome) {
  return Use(run, [&](Process& process) -> absl::Status {
    if (outcome == nullptr) return Misused("starling_reduce: the outcome is null");
    ASSIGN_OR_RETURN(const Fate fate, process.handover().Reduce(weight));
    *outcome = fate == Fate::kCommitted ? STARLING_COMMITTED
               : fate == Fate::kPartial ? STARLING_PARTIAL
                                        : STARLING_DROPPED;
    return absl::OkStatus();
  });
}

int starling_take(starling_run* run, int64_t bucket, const char* type, void* into,
                  int64_t elements) {
  return Use(run, [&](Process& process) -> absl::Status {
    ASSIGN_OR_RETURN(const std::span<float> from, BucketOf(process.handover(), bucket, elements));
    return AsFloats(type, into, [&](const auto* typed) {
      using Float = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
      std::ranges::copy(from, static_cast<Float*>(into));
    });
  });
}

int starling_order(starling_run* run, int64_t step, int64_t rank, int64_t members, int64_t* ids,
                   int64_t capacity, int64_t* count) {
  return Use(run, [&](Process& process) -> absl::Status {
    ASSIGN_OR_RETURN(const Portions portions, PortionsOf(process, step, rank, members));
    if (count == nullptr) return Misused("starling_order: the count is null");
    std::vector<int64_t> found;
    if (!portions.empty()) {
      found = process.batches().SampleIds(step, {portions.front().begin, portions.back().end});
    }
    *count = CopyOut(found, ids, capacity);
    return absl::OkStatus();
  });
}

int starling_portions(starling_run* run, int64_t step, int64_t rank, int64_t members,
                      int64_t* samples, int64_t capacity, int64_t* count) {
  return Use(run, [&](Process& process) -> absl::Status {
    ASSIGN_OR_RETURN(const Portions portions, PortionsOf(process, step, rank, members));
    if (count == nullptr) return Misused("starling_portions: the count is null");
    std::vector<int64_t> sizes;
    for (const auto& portion : portions) sizes.push_back(portion.size());
    *count = CopyOut(sizes, samples, capacity);
    return absl::OkStatus();
  });
}

int starling_view(starling_run* run, starling_step* step) {
  return Use(run, [&](Process& process) -> absl::Status {
    if (step == nullptr) return absl::InvalidArgumentError("starling_view: the step is null");
    Describe(process.handover().view(), process.batches(), step);
    step->ids = nullptr;
    return absl::OkStatus();
  });
}

int starling_leave(starling_run* run) {
  return Use(run, [](Process& process) {
    process.Leave();
    return absl::OkStatus();
  });
}

int starling_close(starling_run* run) {
  return Guarded([&] {
    if (run == nullptr) return static_cast<int>(STARLING_OK);
    if (run->process->WantsState()) return static_cast<int>(STARLING_STATE_WANTED);
    const bool left = !run->process->over && !run->process->ended();
    return Told(left ? STARLING_MISUSE : STARLING_FAILED, run->process->Close());
  });
}

void starling_abandon(starling_run* run) {
  if (run != nullptr) run->process->Abandon();
}
