// SPDX-License-Identifier: Apache-2.0
// The bundle's files, as the assembler puts them into the program.
#include <string_view>
#include <vector>

#include "controller/web/page.h"

// Bytes of a file, from NAME_begin to NAME_end.
#define STARLING_EMBED(name, file)              \
  asm(".pushsection .rodata\n"                  \
      ".global starling_web_" #name             \
      "_begin\n"                                \
      "starling_web_" #name                     \
      "_begin:\n"                               \
      ".incbin \"" STARLING_WEB_FOLDER "/" file \
      "\"\n"                                    \
      ".global starling_web_" #name             \
      "_end\n"                                  \
      "starling_web_" #name                     \
      "_end:\n"                                 \
      ".byte 0\n"                               \
      ".popsection\n");                         \
  extern "C" const char starling_web_##name##_begin[], starling_web_##name##_end[]

STARLING_EMBED(index, "index.html");
STARLING_EMBED(index_gz, "index.html.gz");
STARLING_EMBED(script, "page.js");
STARLING_EMBED(script_gz, "page.js.gz");
STARLING_EMBED(style, "page.css");
STARLING_EMBED(style_gz, "page.css.gz");
STARLING_EMBED(icon, "icon.svg");
STARLING_EMBED(icon_gz, "icon.svg.gz");

namespace starling::web {

#define STARLING_BYTES(name)       \
  std::string_view(                \
      starling_web_##name##_begin, \
      static_cast<std::size_t>(starling_web_##name##_end - starling_web_##name##_begin))

const std::vector<Asset>& Assets() {
  static const auto& assets = *new std::vector<Asset>{
      {"/", "text/html; charset=utf-8", STARLING_BYTES(index), STARLING_BYTES(index_gz)},
      {"/page.js", "text/javascript; charset=utf-8", STARLING_BYTES(script),
       STARLING_BYTES(script_gz)},
      {"/page.css", "text/css; charset=utf-8", STARLING_BYTES(style), STARLING_BYTES(style_gz)},
      {"/icon.svg", "image/svg+xml", STARLING_BYTES(icon), STARLING_BYTES(icon_gz)}};
  return assets;
}

}  // namespace starling::web
