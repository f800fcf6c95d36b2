// SPDX-License-Identifier: Apache-2.0
// Every reason that a job's conditions, incidents and events may carry: what it means, what to do.
//
// One table, from which the messages take their remedies and the documentation its list. To add a
// reason: a constant here, a row in reasons.cc; a test holds every reason that is ever decided
// against the table.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace starling::trainingjob {

// Problems of pods and nodes: reasons of the condition Degraded.
inline constexpr std::string_view kImagePullFailed = "ImagePullFailed";
inline constexpr std::string_view kContainerNotCreated = "ContainerNotCreated";
inline constexpr std::string_view kUnschedulable = "Unschedulable";
inline constexpr std::string_view kSchedulingGated = "SchedulingGated";
inline constexpr std::string_view kQuotaExceeded = "QuotaExceeded";
inline constexpr std::string_view kPodForbidden = "PodForbidden";
inline constexpr std::string_view kNameTaken = "NameTaken";
inline constexpr std::string_view kNamesUnpublished = "NamesUnpublished";
inline constexpr std::string_view kOutOfMemory = "OutOfMemory";
inline constexpr std::string_view kPodStuckTerminating = "PodStuckTerminating";
inline constexpr std::string_view kNodeLost = "NodeLost";
inline constexpr std::string_view kWorkerRefused = "WorkerRefused";
inline constexpr std::string_view kServerRefused = "ParameterServerRefused";
inline constexpr std::string_view kUnderReplicated = "UnderReplicated";
inline constexpr std::string_view kSchedulingIgnored = "SchedulingIgnored";
inline constexpr std::string_view kSingleCopy = "SingleCopy";
inline constexpr std::string_view kExportFailing = "ExportFailing";
inline constexpr std::string_view kNoProblem = "NoProblem";

// Ends.
inline constexpr std::string_view kInvalidSpec = "InvalidSpec";
inline constexpr std::string_view kCheckpointNotDurable = "CheckpointNotDurable";
inline constexpr std::string_view kCheckpointNotWritten = "CheckpointNotWritten";

struct ReasonRow {
  std::string_view where;  // "Running", "Degraded", ...: the condition; or "incident", "event"
  std::string_view reason;
  std::string_view meaning;
  std::string_view remedy;  // empty: there is nothing to be done
};

std::span<const ReasonRow> Reasons();

// Of the first row with this reason; empty: there is no such row.
std::string_view MeaningOf(std::string_view reason);
std::string_view RemedyOf(std::string_view reason);

// The table as Markdown, for docs/reference.
std::string ReasonsAsMarkdown();

}  // namespace starling::trainingjob
