// Transport options for the nodes of one test's job.
#pragma once

#include <string>

#include "transport/live/make_transport.h"

namespace shoal::testing {

inline transport::TransportOptions transport_options(const std::string& name,
                                                     const std::string& token = "secret") {
  transport::TransportOptions out;
  out.identity.job_id = "job-1";
  out.identity.generation = 3;
  out.identity.name = name;
  out.identity.incarnation = random_128();
  const ByteView view = as_view(token);
  out.token.assign(view.begin(), view.end());
  return out;
}

// A range of ports that are mostly free. The system does not choose ports from this range on its own.
inline transport::PortRange free_ports() {
  constexpr uint16_t kFirst = 20'000, kCount = 500, kRanges = 20;
  const auto range = static_cast<uint16_t>(random_128().bytes[0]) % kRanges;
  const auto first = static_cast<uint16_t>(kFirst + range * kCount);
  return {first, static_cast<uint16_t>(first + kCount - 1)};
}

}  // namespace shoal::testing
