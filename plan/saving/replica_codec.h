// Encodes and decodes ReplicaDigests in any message that contains them (schema/layout.capnp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "plan/saving/replica_blocks.h"

namespace shoal::plan {

// `out`: schema::ReplicaDigests::Builder.
template <class Builder>
void write_replicas(Builder out, const ReplicaDigests& replicas) {
  out.setPolicy(static_cast<uint8_t>(replicas.policy));
  out.setWindow(static_cast<uint8_t>(replicas.window));
  auto blocks = out.initBlocks(sizeof(Hash128));
  for (unsigned i = 0; i < blocks.size(); ++i) blocks[i] = std::to_integer<uint8_t>(replicas.blocks.bytes[i]);
  auto digests = out.initDigests(static_cast<unsigned>(replicas.digests.size()));
  for (unsigned i = 0; i < digests.size(); ++i) digests.set(i, replicas.digests[i]);
}

// `in`: schema::ReplicaDigests::Reader. Code::corrupt: no program sends such digests.
template <class Reader>
Result<ReplicaDigestsPtr> read_replicas(Reader in) {
  const auto malformed = [](const char* what) {
    return Status(Code::corrupt, std::string("digests of replicas: malformed ") + what);
  };
  auto replicas = std::make_shared<ReplicaDigests>();
  const auto policy = static_cast<ReplicaCheck>(in.getPolicy());
  if (policy != ReplicaCheck::warn && policy != ReplicaCheck::abort) return malformed("policy");
  replicas->policy = policy;
  replicas->window = in.getWindow();
  if (replicas->window >= kReplicaWindows) return malformed("window");
  const auto blocks = in.getBlocks();
  SHOAL_ASSIGN_OR_RETURN(replicas->blocks,
                         Hash128::from_bytes(std::as_bytes(std::span(blocks.begin(), blocks.size()))));
  const auto digests = in.getDigests();
  if (digests.size() == 0 || digests.size() > kMaxReplicaBlocks) return malformed("number of blocks");
  replicas->digests.reserve(digests.size());
  for (const uint64_t digest : digests) replicas->digests.push_back(digest);
  return ReplicaDigestsPtr(std::move(replicas));
}

}  // namespace shoal::plan
