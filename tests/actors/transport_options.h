// How nodes of one test's job speak to each other.
#pragma once

#include <string>

#include "transport/live/make_transport.h"

namespace shoal::testing {

inline TransportOptions transport_options(const std::string& name, const std::string& token = "secret") {
  TransportOptions out;
  out.identity.job_id = "job-1";
  out.identity.generation = 3;
  out.identity.name = name;
  out.identity.incarnation = random_128();
  const ByteView view = as_view(token);
  out.token.assign(view.begin(), view.end());
  return out;
}

}  // namespace shoal::testing
