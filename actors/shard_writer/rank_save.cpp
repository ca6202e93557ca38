#include "actors/shard_writer/rank_save.h"

namespace shoal::actors {

void RankSave::stage(ClientId from, std::optional<uint32_t> slab,
                     std::shared_ptr<const local::LocalMessage> bytes, UserMetadataPtr metadata,
                     plan::ReplicaDigestsPtr digests) {
  client = listener = from;
  listener_slab_id = slab;
  slab_in_use = slab.has_value();
  message = std::move(bytes);
  user = std::move(metadata);
  replicas = std::move(digests);
  offer.reset();
}

}  // namespace shoal::actors
