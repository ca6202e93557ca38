#include "cli/interrupt.h"

#include <csignal>

namespace shoal::cli {

namespace {

std::atomic<int> noted{0};
static_assert(std::atomic<int>::is_always_lock_free);

constexpr int kNoted[] = {SIGINT, SIGTERM};

void set_handlers(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = handler == SIG_DFL ? 0 : SA_RESETHAND | SA_RESTART;
  for (int number : kNoted) sigaction(number, &action, nullptr);
}

}  // namespace

Interrupts::Interrupts() {
  noted = 0;
  set_handlers([](int number) { noted = number; });
}

Interrupts::~Interrupts() {
  set_handlers(SIG_DFL);
}

int Interrupts::signal_number() {
  return noted;
}

}  // namespace shoal::cli
