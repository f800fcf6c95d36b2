// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <ostream>

namespace starling::cli {
namespace {

std::string Paint(bool color, Style style, std::string_view text) {
  if (!color || style == Style::kPlain) return std::string(text);
  const char* code = "";
  switch (style) {
    case Style::kPlain:
      break;
    case Style::kBold:
      code = "1";
      break;
    case Style::kDim:
      code = "2";
      break;
    case Style::kGreen:
      code = "32";
      break;
    case Style::kRed:
      code = "31";
      break;
    case Style::kYellow:
      code = "33";
      break;
  }
  return std::string("\033[") + code + "m" + std::string(text) + "\033[0m";
}

// At most `width` columns, counting a character of UTF-8 as one.
std::string_view Fit(std::string_view text, int width) {
  int columns = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80U;
    if (begins && ++columns > width) return text.substr(0, i);
  }
  return text;
}

}  // namespace

void Terminal::Print(std::string_view text) {
  ClearLive();
  out_ << text << std::flush;
}

void Terminal::Say(std::string_view line) {
  ClearLive();
  error_ << line << '\n' << std::flush;
}

void Terminal::Live(std::string_view line) {
  if (!traits_.live) return;
  error_ << "\r\033[K" << Fit(line, traits_.width - 1) << std::flush;
  drawn_ = true;
}

void Terminal::ClearLive() {
  if (!drawn_) return;
  error_ << "\r\033[K" << std::flush;
  drawn_ = false;
}

std::string Terminal::PaintOut(Style style, std::string_view text) const {
  return Paint(traits_.color_out, style, text);
}

std::string Terminal::PaintError(Style style, std::string_view text) const {
  return Paint(traits_.color_error, style, text);
}

TerminalTraits TraitsOfThisProcess() {
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  const char* no_color = std::getenv("NO_COLOR");
  const bool color = !dumb && (no_color == nullptr || *no_color == '\0');
  TerminalTraits traits;
  traits.live = ::isatty(STDERR_FILENO) == 1 && !dumb;
  traits.color_error = ::isatty(STDERR_FILENO) == 1 && color;
  traits.person = ::isatty(STDOUT_FILENO) == 1;
  traits.color_out = traits.person && color;
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) traits.width = size.ws_col;
  return traits;
}

std::string Printable(std::string_view text) {
  std::string clean;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    clean += (byte < 0x20 && c != '\t') || byte == 0x7f ? ' ' : c;
  }
  return clean;
}

}  // namespace starling::cli
