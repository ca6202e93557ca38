#include "cli/node/live_terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <thread>

namespace shoal::cli {

namespace {

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t end_requested = 0;

void request_end(int) {
  end_requested = 1;
}

bool ends(char key) {
  constexpr char kCtrlC = 3, kCtrlD = 4;
  return key == 'q' || key == 'Q' || key == kCtrlC || key == kCtrlD;
}

}  // namespace

LiveTerminal::LiveTerminal() {
  termios now{};
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0 || tcgetattr(STDIN_FILENO, &now) != 0) return;
  before_ = now;
  struct sigaction action {};
  action.sa_handler = request_end;  // without SA_RESTART, so that poll returns
  for (int signal : kEndingSignals) sigaction(signal, &action, nullptr);
  now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  tcsetattr(STDIN_FILENO, TCSANOW, &now);
  fmt::print("\x1b[?1049h\x1b[?25l");  // the other screen, without a cursor
}

LiveTerminal::~LiveTerminal() {
  if (!before_) return;
  fmt::print("\x1b[?25h\x1b[?1049l");
  std::fflush(stdout);
  tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
  for (int signal : kEndingSignals) std::signal(signal, SIG_DFL);
}

// Writes over the picture before instead of clearing the screen, so that nothing flickers.
void LiveTerminal::draw(const std::string& picture) {
  std::string out = "\x1b[H";
  for (char c : picture) {
    if (c == '\n') out += "\x1b[K";
    out += c;
  }
  fmt::print("{}\x1b[J", out);
  std::fflush(stdout);
}

bool LiveTerminal::wait(std::chrono::milliseconds time) {
  if (!before_) {
    std::this_thread::sleep_for(time);
    return true;
  }
  const auto until = std::chrono::steady_clock::now() + time;
  while (end_requested == 0) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0) return true;
    pollfd key{STDIN_FILENO, POLLIN, 0};
    if (poll(&key, 1, static_cast<int>(std::min<int64_t>(left, 60'000))) <= 0) continue;
    char pressed = 0;
    const ssize_t got = read(STDIN_FILENO, &pressed, 1);
    if (got == 0 || (got < 0 && errno != EINTR) || (got > 0 && ends(pressed))) return false;
  }
  return false;
}

}  // namespace shoal::cli
