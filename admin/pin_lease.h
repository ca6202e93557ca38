// PinLease: keeps a checkpoint from being deleted while a command reads it, as the node does for a load.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "shoal/status.h"
#include "storage/retention/marks.h"

namespace shoal::admin {

inline constexpr std::chrono::milliseconds kPinRenewal{5'000};  // as a load: actors::Timeouts

class PinLease {
 public:
  // Creates the pin. `holder` says who reads. A thread of the object renews the pin every `renewal`.
  // `storage` must outlive the object. Read the decision after this call: the checkpoint may have been
  // deleted before.
  static Result<std::unique_ptr<PinLease>> take(storage::Storage& storage, const AttemptKey& key,
                                                std::string holder,
                                                std::chrono::milliseconds renewal = kPinRenewal);
  ~PinLease();  // removes the pin
  PinLease(const PinLease&) = delete;

 private:
  PinLease(storage::Storage& storage, storage::Mark mark, std::chrono::milliseconds renewal);
  void renew();

  storage::Storage& storage_;
  storage::Mark mark_;  // of the thread, while it runs
  const std::chrono::milliseconds renewal_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace shoal::admin
