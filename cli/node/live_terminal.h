// LiveTerminal: a picture on a terminal that is drawn again and again until the user presses q or Ctrl-C.
#pragma once

#include <termios.h>

#include <chrono>
#include <optional>
#include <string>

namespace shoal::cli {

// Whether stdin and stdout are terminals is decided once. If one of them is not, pictures follow each other,
// and only a signal ends the process. The destructor restores the terminal. At most one at a time.
class LiveTerminal {
 public:
  LiveTerminal();
  ~LiveTerminal();
  LiveTerminal(const LiveTerminal&) = delete;

  bool is_live() const { return before_.has_value(); }
  void draw(const std::string& picture);  // replaces the picture before
  // Returns false as soon as the user wants to end: q, Q, Ctrl-C, Ctrl-D, or SIGINT, SIGTERM, SIGHUP.
  bool wait(std::chrono::milliseconds time);

 private:
  std::optional<termios> before_;  // the settings of the terminal; nullopt: it is none
};

}  // namespace shoal::cli
