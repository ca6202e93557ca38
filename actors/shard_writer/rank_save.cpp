#include "actors/shard_writer/rank_save.h"

namespace shoal::actors {

void RankSave::stage(ClientId from, std::optional<uint32_t> slab,
                     std::shared_ptr<const local::LocalMessage> bytes, UserMetadataPtr metadata,
                     plan::ReplicaDigestsPtr digests) {
  client = listener = from;
  slab_id = listener_slab_id = slab.value_or(0);
  slab_in_use = slab.has_value();
  message = std::move(bytes);
  user = std::move(metadata);
  replicas = std::move(digests);
  offer.reset();
}

}  // namespace shoal::actors
