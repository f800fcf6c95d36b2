// SPDX-License-Identifier: Apache-2.0
#include "common/log/words.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace starling::log {
namespace {

constexpr char kEntry[] =
    R"({"ts":"2026-01-01T00:00:00Z","level":"error","msg":"it cannot go on","why":"spec.x: unknown field"})";

TEST(Words, AProgramsLastWordsStandWithoutTheEntriesAroundThem) {
  EXPECT_EQ(WordsOf(absl::StrCat(kEntry, "\nstarling-worker: spec.x: unknown field\n")),
            "starling-worker: spec.x: unknown field");
  EXPECT_EQ(WordsOf(absl::StrCat("Traceback:\n  line 3\n", kEntry, "\nValueError: no\n")),
            "Traceback:\n  line 3\nValueError: no");
}

TEST(Words, WhereThereAreOnlyEntriesTheNewestSpeaks) {
  EXPECT_EQ(WordsOf(absl::StrCat(R"({"msg":"first"})", "\n", kEntry)),
            "it cannot go on: spec.x: unknown field");
  EXPECT_EQ(WordsOf(R"({"msg":"no","error":"disk full"})"), "no: disk full");
}

TEST(Words, WhatIsNoEntryIsKept) {
  for (const char* line : {"{", R"({"msg":3})", R"(["msg"])", R"({"loss":1})", "{\xff}"}) {
    EXPECT_EQ(WordsOf(line), line);
  }
  EXPECT_EQ(WordsOf("\n\n"), "");
}

}  // namespace
}  // namespace starling::log
