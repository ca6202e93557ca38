// Converts NodeStatus to and from its Cap'n Proto struct. The codec of local messages uses it.
#pragma once

#include "local/status/node_status.h"
#include "schema/local.capnp.h"
#include "shoal/status.h"

namespace shoal::local {

// Cuts lists and texts at their bounds.
void write_node_status(schema::NodeStatus::Builder out, const NodeStatus& status);
Result<NodeStatus> read_node_status(schema::NodeStatus::Reader in);  // untrusted

}  // namespace shoal::local
