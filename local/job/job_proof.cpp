#include "local/job/job_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>

#include "shoal/check.h"
#include "shoal/hash.h"

namespace shoal::local {

namespace {

void append_sized(Bytes& out, ByteView part) {
  std::array<std::byte, 4> size;
  store_le32(size.data(), static_cast<uint32_t>(part.size()));
  out.insert(out.end(), size.begin(), size.end());
  out.insert(out.end(), part.begin(), part.end());
}

}  // namespace

JobNonce random_job_nonce() {
  static_assert(kJobNonceBytes == 2 * sizeof(Hash128::bytes));
  JobNonce nonce;
  for (size_t half = 0; half < 2; ++half) {
    const Hash128 random = random_128();
    std::memcpy(nonce.data() + half * random.bytes.size(), random.bytes.data(), random.bytes.size());
  }
  return nonce;
}

JobProof job_proof(ByteView key, std::string_view label, std::initializer_list<ByteView> parts) {
  SHOAL_CHECK(!key.empty());
  Bytes text;
  append_sized(text, as_view(label));
  for (ByteView part : parts) append_sized(text, part);
  JobProof out{};
  unsigned size = 0;
  const unsigned char* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(out.data()), &size);
  SHOAL_CHECK(done != nullptr && size == out.size());
  return out;
}

bool is_same_proof(const JobProof& a, const JobProof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace shoal::local
