// SPDX-License-Identifier: Apache-2.0
// Every request that the REST service answers: the one table.
//
// The router, the OpenAPI document, the reference page, the `route` label of metrics and the check
// of rights all read it, so that none of them can know a route that another does not. To add a
// route: a value of Operation, a row in routes.cc, a function in controller/rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace starling::rest {

enum class Operation {
  kCreateJob,
  kListJobs,
  kListAllJobs,
  kGetJob,
  kReplaceJob,
  kPatchJob,
  kDeleteJob,
  kGetScale,
  kSetScale,
  kSuspendJob,
  kResumeJob,
  kCheckpointJob,
  kTraceJob,
  kListPods,
  kListEvents,
  kListIncidents,
  kGetMetrics,
  kGetLogs,
  kGetModel,
  kGetTrace,
  kValidateJob,
  kPlanJob,
  kGetUsage,
  kGetAllUsage,
  kListTemplates,
  kWhoAmI,
  kGetVersion,
  kGetOpenApi
};

// kChoices: several of them, separated by commas, each once.
enum class ValueKind { kText, kInteger, kBoolean, kChoice, kChoices };

// Of the query, or a header.
struct Parameter {
  std::string_view name;
  ValueKind kind;
  std::string_view meaning;
  std::int64_t minimum = 0;  // of integers
  std::int64_t maximum = 0;
  std::string_view choices = {};    // separated by commas
  std::string_view otherwise = {};  // the default, as text
};

// What a caller must be allowed to do. In a cluster it is a verb on a resource of the API server;
// on one machine the token allows everything.
struct Right {
  std::string_view verb;  // empty, with no resource: nobody is asked who they are
  std::string_view resource = {};

  bool everybody() const { return verb.empty(); }
};
inline constexpr Right kEverybody{""};
inline constexpr Right kSignedIn{"signed in"};

struct Route {
  Operation operation;
  std::string_view id;      // operationId
  std::string_view method;  // GET, POST, ...; HEAD goes where GET goes
  std::string_view path;    // with {namespace} and {name}
  Right right;
  std::string_view summary;
  std::vector<Parameter> query;
  std::vector<Parameter> headers;
  std::string_view request;      // schema of the body; empty: none is read
  int success;                   // its status
  std::string_view response;     // schema of the body; empty: text or bytes
  std::string_view codes;        // of problems, separated by commas, beside those of every route
  std::string_view stream = {};  // what it tells as server-sent events, if it does

  bool writes() const { return method != "GET"; }
};

const std::vector<Route>& Routes();
const Route& RouteOf(Operation operation);

// Problems that any route may give.
inline constexpr std::string_view kCommonCodes =
    "MalformedRequest,Unauthorized,Forbidden,ForeignHost,TooManyRequests,HeadersTooLarge,Internal,"
    "Unavailable";

// Fails at the first row that breaks a rule of the table (a code that is not one, two rows for one
// request); empty: none does.
std::string CheckRoutes();

}  // namespace starling::rest
