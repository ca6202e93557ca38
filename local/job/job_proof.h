// Proofs that a process knows a key that it does not tell: the job's token, for what passes beside the nodes'
// sessions. HMAC-SHA256 (RFC 2104) over a label, which keeps proofs of different purposes apart, and over
// parts, each with its length before it.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include "shoal/bytes.h"

namespace shoal::local {

inline constexpr size_t kJobNonceBytes = 32;
inline constexpr size_t kJobProofBytes = 32;
using JobNonce = std::array<std::byte, kJobNonceBytes>;
using JobProof = std::array<std::byte, kJobProofBytes>;

JobNonce random_job_nonce();
// The key is not empty.
JobProof job_proof(ByteView key, std::string_view label, std::initializer_list<ByteView> parts);
// Takes the same time whatever the bytes are.
bool is_same_proof(const JobProof& a, const JobProof& b);

}  // namespace shoal::local
