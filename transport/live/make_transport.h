// Creates the production Transport: TCP with TLS, or UCX for RDMA (network_options.h).
//
// Shoal configures UCX through UCX's own configuration, and the environment's UCX_* variables override it.
// UCX_TLS selects the transports, UCX_NET_DEVICES the networks, and UCX_LOG_LEVEL enables UCX's own messages.
// docs/reference/transport.md lists the settings and the reasons. Each transport has one thread; UCX adds its
// own for asynchronous events.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "shoal/bytes.h"
#include "transport/limits.h"
#include "transport/live/network_options.h"
#include "transport/transport.h"

namespace shoal::transport {

struct TransportOptions {
  std::string listen;  // HOST:PORT; port 0: any free port; empty: connect only
  Identity identity;
  Bytes token;  // the job's secret, 1 to kMaxTokenBytes bytes
  TransportLimits limits;
  NetworkOptions network;
  // Finds the numeric address of a host name; may block. Called on a thread of its own. Not set: the system's
  // resolver. Tests set it.
  std::function<Result<std::string>(const std::string& name)> find_host;
};

// Opens nothing before start(). start() returns Code::invalid_argument for invalid options, Code::unavailable
// if it cannot listen on the address, and Code::io if UCX finds no transport.
std::unique_ptr<Transport> make_transport(TransportOptions options);

}  // namespace shoal::transport
