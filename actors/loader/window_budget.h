// WindowBudget: the memory that the loads of one node may take together: the windows of its clients, and the
// buffers of the exchanges by which they read together. docs/how-to/load.md, "Memory".
//
// Who asks stands in line; the first is given all that it asks for where that is there, else what there is,
// its least at any rate, else it waits, and all behind it. What one ask names is given together or not at
// all: the ranks of an exchange wait for each other, so that none of them may have its window while another
// waits for one. Nobody who has been given its part waits for more, so that everybody's turn comes.
//
// The pages of a window stay when its load has ended, for the client's next one is then faster. They count,
// and are released where somebody lacks them.
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
  uint64_t bytes = 0;  // of each; whole digest blocks
};
// Of a window of at least kLeastWindowBytes.
WindowParts window_parts(uint64_t window_bytes);

class WindowBudget {
 public:
  using WindowId = std::pair<ClientId, uint32_t>;  // the slab
  using Ticket = uint64_t;
  struct Window {
    WindowId id;  // of which no load is under way, nor stands in line
    uint64_t wanted = 0, least = 0;
  };
  struct Ask {
    std::vector<Window> windows;
    uint64_t buffer_wanted = 0, buffer_least = 0;
  };
  struct Grant {
    Ticket ticket = 0;
    std::vector<uint64_t> windows;  // bytes of each, whole digest blocks, between least and wanted or more
    uint64_t buffer = 0;
  };

  explicit WindowBudget(uint64_t bytes) : bytes_(bytes) {}

  uint64_t bytes() const { return bytes_; }
  // What windows and buffers take at most, as long as all keep to what they were given.
  uint64_t promised() const;
  bool has_waiting() const { return !line_.empty(); }

  // Whether it would be given its least if it were alone; else it is not to be asked for.
  bool fits(const Ask& ask) const;
  Ticket ask(Ask ask);
  void withdraw(Ticket ticket);  // one that still waits
  // The first in line, if its turn has come.
  std::optional<Grant> next();
  // Windows whose pages are to be released now: each is said once. Until released() no load fills it.
  std::vector<WindowId> to_release();
  void released(const WindowId& id);

  // Its load has ended, and nothing is written to it any more.
  void end_window(const WindowId& id);
  // There is another slab of that id, of which no page was touched yet.
  void replace_window(const WindowId& id);
  void forget_client(ClientId client);
  // An exchange that was given a buffer needs no more than that of it; 0: it has ended.
  void shrink_buffer(Ticket ticket, uint64_t bytes);

 private:
  struct Held {
    uint64_t bytes = 0;  // whose pages may be there
    bool is_used = false;
    bool is_releasing = false;
    uint64_t since = 0;  // when its last load ended, in loads
  };
  struct Waiting {
    Ticket ticket = 0;
    Ask ask;
  };
  uint64_t kept_of(const WindowId& id) const;
  // `spares_own`: not the windows of the first in line.
  void release_unused(uint64_t lacking, bool spares_own);

  const uint64_t bytes_;
  std::map<WindowId, Held> windows_;
  std::map<Ticket, uint64_t> buffers_;
  std::list<Waiting> line_;
  std::vector<WindowId> to_release_;
  Ticket last_ticket_ = 0;
  uint64_t ended_ = 0;  // loads
};

}  // namespace shoal::actors
