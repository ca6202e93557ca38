#include "tests/transport/live/recording_handler.h"

namespace shoal::testing {

Bytes make_message(size_t bytes, uint64_t seed) {
  SHOAL_CHECK(bytes % 8 == 0 && bytes >= 8);
  Bytes message(bytes);
  store_le32(&message[4], static_cast<uint32_t>(bytes / 8 - 1));
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t at = 8; at < bytes; at += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    store_le64(&message[at], state);
  }
  return message;
}

transport::TransportOptions make_options(bool listens, const std::string& name) {
  transport::TransportOptions options;
  if (listens) {
    options.listen = "127.0.0.1:0";
    options.network.transport = transport_of_listeners;
  }
  options.identity.root_id = xxh3_128(as_view("a root"));
  options.identity.job_id = "job-1";
  options.identity.generation = 3;
  options.identity.epoch = 7;
  options.identity.incarnation = xxh3_128(as_view(name));
  options.identity.name = name;
  std::string token = "a token that only this job knows";
  options.token.assign(as_view(token).begin(), as_view(token).end());
  return options;
}

}  // namespace shoal::testing
