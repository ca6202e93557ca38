#include "shoal/hash.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "shoal/bytes.h"

namespace shoal {

std::string Hash128::to_hex() const {
  return hex_encode(bytes);
}
std::string Hash128::short_hex() const {
  return to_hex().substr(0, 8);
}

Result<Hash128> Hash128::from_hex(std::string_view hex) {
  SHOAL_ASSIGN_OR_RETURN(std::string raw, hex_decode(hex));
  return from_bytes(std::as_bytes(std::span(raw)));
}

Result<Hash128> Hash128::from_bytes(std::span<const std::byte> data) {
  Hash128 h;
  if (data.size() != h.bytes.size()) {
    return Status(Code::corrupt, "an id has " + std::to_string(data.size()) + " bytes, 16 are expected");
  }
  std::memcpy(h.bytes.data(), data.data(), data.size());
  return h;
}

uint64_t Hash128::low64() const {
  return load_le64(bytes.data());
}

Hash128 xxh3_128(std::span<const std::byte> data) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data.data(), data.size()));
  Hash128 h;
  std::memcpy(h.bytes.data(), canonical.digest, h.bytes.size());
  return h;
}

uint64_t xxh3_64(std::span<const std::byte> data) {
  return XXH3_64bits(data.data(), data.size());
}
uint64_t xxh3_64(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

Hash128 random_128() {
  Hash128 h;
  ssize_t got;
  do {
    got = getrandom(h.bytes.data(), h.bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  SHOAL_CHECK(got == static_cast<ssize_t>(h.bytes.size()));
  return h;
}

}  // namespace shoal
