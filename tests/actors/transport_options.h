// How nodes of one test's job speak to each other.
#pragma once

#include <string>

#include "transport/ucx/ucx_transport.h"

namespace shoal::testing {

inline UcxTransportOptions transport_options(const std::string& name, const std::string& token = "secret") {
  UcxTransportOptions out;
  out.identity.job_id = "job-1";
  out.identity.generation = 3;
  out.identity.name = name;
  out.identity.incarnation = random_128();
  const ByteView view = as_view(token);
  out.token.assign(view.begin(), view.end());
  return out;
}

}  // namespace shoal::testing
