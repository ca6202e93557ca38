#include "base/stream_copy.h"
#include "gpu/stager.h"
#include "shoal/check.h"

namespace shoal::gpu {

namespace {

class HostStager final : public Stager {
 public:
  Ticket submit(std::span<const CopyTask> tasks) override {
    for (const CopyTask& task : tasks) copy(task);
    return ++last_ticket_;
  }
  Status wait(Ticket ticket) override {
    SHOAL_CHECK(ticket <= last_ticket_);
    return ok_status();
  }

 private:
  static void copy(const CopyTask& task) {
    if (task.row_bytes == 0) return;
    const std::byte* source = task.source;
    std::byte* target = task.target;
    for (uint64_t row = 0; row < task.rows; ++row) {
      base::stream_copy(target, source, task.row_bytes);
      source += task.source_stride;
      target += task.row_bytes;
    }
  }

  Ticket last_ticket_ = 0;
};

}  // namespace

std::unique_ptr<Stager> make_host_stager() {
  return std::make_unique<HostStager>();
}

}  // namespace shoal::gpu
