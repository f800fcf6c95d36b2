// SPDX-License-Identifier: Apache-2.0
// The documents that are generated from the contract, as text. To add one, write its function and
// name its file in GeneratedFiles.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"

namespace starling::schema {

std::string CrdYaml();  // the CustomResourceDefinition of TrainingJob
std::string TemplateCrdYaml();
std::string ClusterTemplateCrdYaml();
std::string OpenApiJson();    // OpenAPI 3.1: the messages, and the routes of REST
std::string ReferencePage();  // Markdown, a table for each message
std::string TemplateReferencePage();
std::string PythonTypes();  // the messages of REST as Python's TypedDicts

// By path under the repository's root.
std::map<std::string, std::string> GeneratedFiles();

// Writes them all under `root`, with the folders that they need.
absl::Status WriteGeneratedFiles(const std::string& root);

}  // namespace starling::schema
