// SPDX-License-Identifier: Apache-2.0
// The commands, one function each; verbs.cc binds them to their names. Each returns the exit code.
#pragma once

#include "cli/arguments.h"
#include "cli/session.h"

namespace starling::cli {

int RunCommand(Session& session, const Arguments& arguments);
int SubmitCommand(Session& session, const Arguments& arguments);
int WatchCommand(Session& session, const Arguments& arguments);
int UpCommand(Session& session, const Arguments& arguments);
int DownCommand(Session& session, const Arguments& arguments);
int GetCommand(Session& session, const Arguments& arguments);
int DescribeCommand(Session& session, const Arguments& arguments);
int LogsCommand(Session& session, const Arguments& arguments);
int ScaleCommand(Session& session, const Arguments& arguments);
int SuspendCommand(Session& session, const Arguments& arguments);
int ResumeCommand(Session& session, const Arguments& arguments);
int CheckpointCommand(Session& session, const Arguments& arguments);
int TraceCommand(Session& session, const Arguments& arguments);
int DeleteCommand(Session& session, const Arguments& arguments);
int ValidateCommand(Session& session, const Arguments& arguments);
int PlanCommand(Session& session, const Arguments& arguments);
int UsageCommand(Session& session, const Arguments& arguments);
int PredictCommand(Session& session, const Arguments& arguments);
int EvaluateCommand(Session& session, const Arguments& arguments);
int ExportCommand(Session& session, const Arguments& arguments);
int ExplainCommand(Session& session, const Arguments& arguments);
int VersionCommand(Session& session, const Arguments& arguments);
int CompletionCommand(Session& session, const Arguments& arguments);

}  // namespace starling::cli
