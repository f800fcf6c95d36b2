// SPDX-License-Identifier: Apache-2.0
// starling-schema-gen ROOT: writes crds/, docs/reference/ and Python's types of the contract under
// ROOT.
#include <cstdio>

#include "api/schema/documents.h"

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    std::fprintf(stderr, "usage: starling-schema-gen ROOT\n");
    return 2;
  }
  const absl::Status status = starling::schema::WriteGeneratedFiles(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "starling-schema-gen: %s\n", status.ToString().c_str());
  return 1;
}
