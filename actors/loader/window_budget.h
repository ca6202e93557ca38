// WindowBudget: bounds the memory of all loads of one node: the windows of its clients, and the buffers of
// chunk exchanges. docs/how-to/load.md, "Memory".
//
// Requests wait in a line. The first one is granted everything that it asks for, if there is enough;
// otherwise what there is, if that is at least its minimum. If not, it waits, and all requests behind it
// wait. A request is granted as a whole: the ranks of an exchange wait for each other, so that none may have
// its window while another waits. A load that has its window never waits for more memory, so every request is
// granted at some time.
//
// The pages of a window stay after its load, because they make the client's next load faster. They count, and
// are released when another request needs memory.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "actors/loader/read_plan.h"
#include "base/digest/digest.h"

namespace shoal::actors {

inline constexpr uint64_t kLeastWindowBytes = base::kDigestBlockBytes;

struct WindowParts {
  uint32_t count = 0;
  uint64_t bytes = 0;  // of each part; whole digest blocks
};
// The parts of a window. Precondition: it has at least kLeastWindowBytes.
WindowParts window_parts(uint64_t window_bytes);

class WindowBudget {
 public:
  using WindowId = std::pair<ClientId, uint32_t>;  // client and slab
  using Ticket = uint64_t;
  struct Window {
    WindowId id;  // precondition: no load uses or awaits it
    uint64_t wanted = 0, least = 0;
  };
  struct Ask {
    std::vector<Window> windows;
    uint64_t buffer_wanted = 0, buffer_least = 0;
  };
  struct Grant {
    Ticket ticket = 0;
    // Bytes of each window: whole digest blocks, at least its minimum, more than wanted if it has more pages.
    std::vector<uint64_t> windows;
    uint64_t buffer = 0;
  };

  explicit WindowBudget(uint64_t bytes) : bytes_(bytes) {}

  uint64_t bytes() const { return bytes_; }
  // Upper bound of the memory of windows and buffers, if all keep to their grants.
  uint64_t promised() const;
  bool has_waiting() const { return !line_.empty(); }

  // Whether its minimum could be granted if it were the only request. Precondition of ask().
  bool fits(const Ask& ask) const;
  Ticket ask(Ask ask);
  void withdraw(Ticket ticket);  // precondition: it still waits
  // Grants the first request in line, if there is enough memory.
  std::optional<Grant> next();
  // Windows whose pages the caller must release now; each is returned once. No load uses them until
  // released().
  std::vector<WindowId> to_release();
  void released(const WindowId& id);

  // The load of this window has ended, and nothing is being written to it.
  void end_window(const WindowId& id);
  // A new slab with this id has no pages yet.
  void replace_window(const WindowId& id);
  void forget_client(ClientId client);
  // The exchange with this ticket needs at most `bytes` of its buffer any more; 0: it has ended.
  void shrink_buffer(Ticket ticket, uint64_t bytes);

 private:
  struct HeldWindow {
    uint64_t bytes = 0;  // bytes that may have pages
    bool is_used = false;
    bool is_releasing = false;
    uint64_t since = 0;  // number of the load that used it last
  };
  struct Waiting {
    Ticket ticket = 0;
    Ask ask;
  };
  uint64_t kept_of(const WindowId& id) const;
  // `spares_own`: does not release windows of the first request in line.
  void release_unused(uint64_t lacking, bool spares_own);

  const uint64_t bytes_;
  std::map<WindowId, HeldWindow> windows_;
  std::map<Ticket, uint64_t> buffers_;
  std::list<Waiting> line_;
  std::vector<WindowId> to_release_;
  Ticket last_ticket_ = 0;
  uint64_t ended_ = 0;  // number of loads that have ended
};

}  // namespace shoal::actors
