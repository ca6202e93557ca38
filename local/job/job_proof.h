// Proofs that a process knows the job token, without sending the token. Connections other than the nodes'
// sessions use them. A proof is HMAC-SHA256 (RFC 2104) over a label and parts, each part preceded by its
// length. The label separates proofs of different purposes.
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
// `key` must not be empty.
JobProof job_proof(ByteView key, std::string_view label, std::initializer_list<ByteView> parts);
// Compares in constant time.
bool is_same_proof(const JobProof& a, const JobProof& b);

}  // namespace shoal::local
