// SPDX-License-Identifier: Apache-2.0
// Where the program's words go: data to stdout, everything else to stderr.
//
// On a terminal the last line of stderr may be live: it is redrawn in place and makes way for every
// other line. Colours only on a terminal, and never with NO_COLOR.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

namespace starling::cli {

enum class Style { kPlain, kBold, kDim, kGreen, kRed, kYellow };

struct TerminalTraits {
  bool live = false;         // stderr can redraw a line
  bool color_error = false;  // stderr shows colours
  bool color_out = false;    // stdout does
  bool person = false;       // stdout is read by a person, and is no file or pipe
  int width = 80;
};

// Confined to the main thread.
class Terminal {
 public:
  Terminal(std::ostream& out, std::ostream& error, TerminalTraits traits)
      : out_(out), error_(error), traits_(traits) {}
  ~Terminal() { ClearLive(); }
  Terminal(const Terminal&) = delete;

  // Text to stdout, as it stands.
  void Print(std::string_view text);
  // A line to stderr.
  void Say(std::string_view line);
  // Draws the live line anew; without a live terminal, nothing.
  void Live(std::string_view line);
  void ClearLive();

  bool live() const { return traits_.live; }
  bool person() const { return traits_.person; }
  std::string PaintOut(Style style, std::string_view text) const;
  std::string PaintError(Style style, std::string_view text) const;

 private:
  std::ostream& out_;
  std::ostream& error_;
  const TerminalTraits traits_;
  bool drawn_ = false;
};

// What the process's own stdout and stderr are, by isatty, NO_COLOR and TERM.
TerminalTraits TraitsOfThisProcess();

// Text of a stranger (log lines, names) without control characters.
std::string Printable(std::string_view text);

}  // namespace starling::cli
