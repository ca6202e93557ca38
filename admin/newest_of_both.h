// A job that saves to a fast root, which is drained to another one, goes on from the newest checkpoint of
// both: the fast root may be lost, or a job on another machine may have gone on since.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "admin/root_reader.h"
#include "shoal/metadata.h"
#include "shoal/status.h"

namespace shoal::admin {

// Opens a folder or bucket that need not be a root yet: then `id` is zero, and it holds no checkpoint.
Result<OpenRoot> open_maybe_root(const std::string& path);

struct NewestOfBoth {
  std::optional<AttemptKey> newest;  // of `other`
  bool is_newer = false;             // than every checkpoint of the fast root: it is to be copied back
  // OK unless both roots have gone on without each other: the run of `newest` is not the one that has this
  // generation in the fast root. No order is right for these. Code::refused says what to do.
  Status is_one_line;
  // For claim_for_next_run. nullopt: the next run of the fast root gets a high enough number anyway.
  std::optional<uint32_t> generation_to_claim;
};
// A checkpoint whose decision cannot be read counts as one.
Result<NewestOfBoth> compare_newest(const OpenRoot& fast, const OpenRoot& other);

// Claims a generation as if a run had begun, so that every run of the fast root has ended, and the next one
// gets a higher number than any checkpoint, or unfinished copy, of both roots.
// REQUIRES: no job uses the fast root, which has an id.
Status claim_for_next_run(const OpenRoot& fast, uint32_t generation);

}  // namespace shoal::admin
