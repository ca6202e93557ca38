// NodeStatus to and from its Cap'n Proto struct. Used by the codec of local messages.
#pragma once

#include "local/status/node_status.h"
#include "schema/local.capnp.h"
#include "shoal/status.h"

namespace shoal::local {

// Lists and texts beyond their bounds are cut.
void write_node_status(schema::NodeStatus::Builder out, const NodeStatus& status);
Result<NodeStatus> read_node_status(schema::NodeStatus::Reader in);  // untrusted

}  // namespace shoal::local
