// Jobs that only read a root: each has a number of its own under readers/, by which its ranks find what they
// load as `latest`. docs/reference/format.md, "Readers".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/root/run_root.h"

namespace shoal::storage {

struct ReaderRecord {
  uint32_t number = 0;  // from 1; drawn at random, so that none is used twice
  std::string job_id;
  Nonce nonce;
  int64_t unix_time_ns = 0;  // when it was claimed
};
// A number for a job that starts to read. `nonce` is drawn for this start. Neither generations nor epochs are
// touched: the job that trains notices nothing.
Result<ReaderRecord> claim_reader(Storage& storage, const std::string& job_id, const Nonce& nonce,
                                  int64_t unix_time_ns);
// The number with which a job goes on whose node was started again; claimed again where it was removed.
// kGenerationOfJob: the one that follows from the job id, which then must never have been used before.
// Code::refused where it is another job's.
Result<ReaderRecord> rejoin_reader(Storage& storage, uint32_t number, const std::string& job_id,
                                   const Nonce& nonce, int64_t unix_time_ns);
// The claim and the choices of that number. OK if they are not there.
Status remove_reader(Storage& storage, uint32_t number);
// Numbers whose claims are from before that time, cannot be read, or are gone while choices remain.
Result<std::vector<uint32_t>> list_old_readers(Storage& storage, int64_t before_unix_time_ns);

}  // namespace shoal::storage
