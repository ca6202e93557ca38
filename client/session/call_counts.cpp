#include "client/session/call_counts.h"

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "base/root_name.h"
#include "client/session/node_process.h"

namespace shoal::client {

std::shared_ptr<CallCounts> call_counts(const CheckpointerOptions& options, uint32_t generation) {
  static std::mutex mutex;
  // The key is root, rank, and whether the job only reads: a process may do both.
  static std::map<std::tuple<std::string, Rank, bool>, std::shared_ptr<CallCounts>> last;
  std::error_code error;
  std::string root = std::filesystem::weakly_canonical(options.root, error).string();
  if (base::is_in_object_store(options.root)) {
    auto normal = base::normal_root(options.root);
    root = normal.ok() ? std::move(*normal) : options.root;
  }
  std::lock_guard lock(mutex);
  std::shared_ptr<CallCounts>& counts = last[{std::move(root), options.rank, options.read_only}];
  if (!counts || counts->generation != generation || counts->process != process_nonce()) {
    counts = std::make_shared<CallCounts>(CallCounts{process_nonce(), generation, {}, {}, 0, 0});
  }
  return counts;
}

}  // namespace shoal::client
