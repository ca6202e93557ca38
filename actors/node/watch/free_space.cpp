#include "actors/node/watch/free_space.h"

#include <exception>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace shoal::actors {

namespace {
constexpr int64_t kForgottenAfterNs = 60'000'000'000;
}  // namespace

struct FreeSpace::State {
  std::string root;
  std::mutex mutex;
  bool is_asking = false;
  std::optional<uint64_t> bytes;
  int64_t answered_at = 0;

  void ask() {
    std::error_code error;
    const auto space = std::filesystem::space(root, error);
    std::lock_guard lock(mutex);
    is_asking = false;
    answered_at = base::steady_now_ns();
    bytes = error ? std::nullopt : std::optional<uint64_t>(space.available);
  }
};

FreeSpace::FreeSpace(std::string root) : state_(std::make_shared<State>()) {
  state_->root = std::move(root);
}

std::optional<uint64_t> FreeSpace::newest() {
  std::lock_guard lock(state_->mutex);
  const int64_t now = base::steady_now_ns();
  const bool is_old = state_->answered_at == 0 || now - state_->answered_at > kFreeSpaceAgeNs;
  if (is_old && !state_->is_asking) {
    try {
      std::thread([state = state_] { state->ask(); }).detach();
      state_->is_asking = true;
    } catch (const std::exception&) {  // no thread can be created: the next call tries again
    }
  }
  const bool is_forgotten = now - state_->answered_at > kForgottenAfterNs;
  return is_forgotten ? std::nullopt : state_->bytes;
}

}  // namespace shoal::actors
