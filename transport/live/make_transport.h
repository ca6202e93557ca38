// The Transport that runs live: TCP with TLS, or UCX for RDMA (network_options.h).
//
// UCX is told what it needs through its own configuration, and the environment's UCX_* variables win: UCX_TLS
// chooses the transports, UCX_NET_DEVICES the networks, UCX_LOG_LEVEL brings back UCX's own messages.
// docs/reference/transport.md says what is set and why. One thread of ours a transport; where UCX is used,
// its own for asynchronous events as well.
#pragma once

#include <memory>
#include <string>

#include "shoal/bytes.h"
#include "transport/limits.h"
#include "transport/live/network_options.h"
#include "transport/transport.h"

namespace shoal::transport {

struct TransportOptions {
  std::string listen;  // HOST:PORT, port 0 for any free one; empty: connect only
  Identity identity;
  Bytes token;  // the job's secret, 1 to kMaxTokenBytes bytes
  TransportLimits limits;
  NetworkOptions network;
};

// Nothing is opened before start(), which answers Code::invalid_argument for options that make no sense,
// Code::unavailable where the address cannot be listened on, and Code::io where UCX finds no transport.
std::unique_ptr<Transport> make_transport(TransportOptions options);

}  // namespace shoal::transport
