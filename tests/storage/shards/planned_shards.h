// The shards of a rank, as its node writes them by the plan of a roster.
#pragma once

#include <string>
#include <vector>

#include "shoal/roster.h"
#include "shoal/save_plan.h"
#include "storage/root/run_root.h"
#include "tests/storage/shards/shard_samples.h"

namespace shoal::storage {

// Returns the node's report about them, and adds their payload to *payload_bytes. `nonce`: of the first file.
inline std::vector<FileEntry> write_planned(Storage& storage, const AttemptKey& key, const World& world,
                                            Rank rank, const SaveOptions& options, uint64_t nonce,
                                            uint64_t* payload_bytes, const UserMetadataPtr& user = nullptr) {
  constexpr uint64_t kObjectBytes = 11;
  const SavePlan plan = plan_save(world, rank, options).value();
  const Layout& layout = world.layout_of(rank);
  const std::vector<std::string> keys = item_keys(layout, plan);
  std::vector<FileEntry> files;
  for (uint32_t file = 0; file < plan.files; ++file) {
    SampleShard shard;
    for (size_t i = 0; i < plan.items.size(); ++i) {
      if (plan.items[i].file != file) continue;
      const LayoutEntry& entry = layout.entries()[plan.items[i].entry];
      const bool is_object = entry.kind == LayoutEntry::Kind::object;
      const uint64_t bytes = is_object ? kObjectBytes : plan.items[i].bytes;
      shard.pieces.push_back(
          {keys[i], value_fqn(entry, rank), entry.dtype, is_object, entry.shape, plan.items[i].box, bytes});
      shard.data.push_back(random_bytes(bytes, rank));
    }
    auto written = write_shard(storage, shard_path(key, rank, file), nonce_of(nonce + file), shard.pieces,
                               shard.views(), user);
    SHOAL_CHECK(written.ok());
    files.push_back({shard_file_name(rank, file), written->size, written->header_digest, rank, file});
    *payload_bytes += written->payload_bytes;
  }
  return files;
}

}  // namespace shoal::storage
