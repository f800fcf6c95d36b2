// SPDX-License-Identifier: Apache-2.0
#include "controller/web/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

namespace starling::web {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

http::Response Get(std::string target, http::Headers headers = {}, std::string method = "GET") {
  auto response = Answer({.method = std::move(method),
                          .target = std::move(target),
                          .body = "",
                          .headers = std::move(headers)});
  return std::move(response).value_or(http::Response{.status = 0, .body = "", .headers = {}});
}

TEST(Page, IsItsOwnFilesAndNothingElse) {
  for (const Asset& asset : Assets()) {
    const http::Response response = Get(std::string(asset.path));
    EXPECT_EQ(response.status, 200) << asset.path;
    EXPECT_EQ(response.body, asset.bytes);
  }
  for (const char* target : {"/v1/jobs", "/index.html", "/page.js.gz", "//", "/../page.js", ""}) {
    EXPECT_EQ(Get(target).status, 0) << target;
  }
  EXPECT_EQ(Get("/?job=default/digits").status, 200)
      << "where in the page one is, is its own matter";
}

TEST(Page, LetsABrowserLoadNothingFromElsewhere) {
  const std::string policy(Get("/").Header("Content-Security-Policy"));
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_THAT(policy, Not(HasSubstr("http")));
  EXPECT_EQ(Get("/").Header("Referrer-Policy"), "no-referrer");
  const std::string index(Get("/").body);
  EXPECT_FALSE(std::regex_search(index, std::regex("(src|href)=.?(https?:)?//")));
  EXPECT_FALSE(std::regex_search(index, std::regex("<script>|<style>| style=| on[a-z]+=")))
      << "its own policy would refuse it";
}

TEST(Page, IsSentAgainOnlyWhenItHasChanged) {
  const std::string tag(Get("/page.js").Header("ETag"));
  ASSERT_THAT(tag, Not(IsEmpty()));
  const http::Response again = Get("/page.js", {{"If-None-Match", tag}});
  EXPECT_EQ(again.status, 304);
  EXPECT_THAT(again.body, IsEmpty());
  EXPECT_EQ(Get("/page.js", {{"If-None-Match", "\"other\""}}).status, 200);
}

TEST(Page, IsCompressedForThoseWhoTakeIt) {
  const std::vector<std::pair<std::string, bool>> table = {{"", false},
                                                           {"gzip", true},
                                                           {"gzip, deflate, br", true},
                                                           {"br, GZIP", true},
                                                           {"gzip;q=0.5", true},
                                                           {"gzip;q=0", false},
                                                           {"br;q=1, gzip;q=0", false},
                                                           {"gzipped", false},
                                                           {"identity", false},
                                                           {"gzip;q", false},
                                                           {";;;", false},
                                                           {"gzip;q=x", false}};
  for (const auto& [accepted, expected] : table) {
    const http::Response response = Get("/page.css", {{"Accept-Encoding", accepted}});
    EXPECT_EQ(response.Header("Content-Encoding") == "gzip", expected) << accepted;
    EXPECT_EQ(response.body.starts_with("\x1f\x8b"), expected) << accepted;
  }
  EXPECT_NE(Get("/page.css", {{"Accept-Encoding", "gzip"}}).Header("ETag"),
            Get("/page.css").Header("ETag"));
}

TEST(Page, IsReadAndNotWritten) {
  const http::Response response = Get("/", {}, "POST");
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(response.Header("Allow"), "GET, HEAD");
}

}  // namespace
}  // namespace starling::web
