// Jobs that only read a root. Each has a number under readers/, which its ranks use to find the load choice
// of `latest`. docs/reference/format.md, "Readers".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/root/run_root.h"

namespace shoal::storage {

struct ReaderRecord {
  uint32_t number = 0;  // from 1; drawn at random, so that no number is used twice
  std::string job_id;
  Nonce nonce;
  int64_t unix_time_ns = 0;  // when it was claimed
};
// Claims a number for a job that starts to read. `nonce` is drawn for this start. The call changes neither
// generations nor epochs, so it does not affect a training job on the same root.
Result<ReaderRecord> claim_reader(Storage& storage, const std::string& job_id, const Nonce& nonce,
                                  int64_t unix_time_ns);
// Returns the number of a job whose node was restarted, and claims it again if it was removed. With
// kGenerationOfJob the number is a hash of the job id, which then must be new. Code::refused if another job
// has the number.
Result<ReaderRecord> rejoin_reader(Storage& storage, uint32_t number, const std::string& job_id,
                                   const Nonce& nonce, int64_t unix_time_ns);
// Removes the claim and the load choices of that number. OK if they do not exist.
Status remove_reader(Storage& storage, uint32_t number);
// Numbers whose claim is older than that time, is damaged, or is gone while load choices remain.
Result<std::vector<uint32_t>> list_old_readers(Storage& storage, int64_t before_unix_time_ns);

}  // namespace shoal::storage
