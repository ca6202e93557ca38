// Which roles of a node hear what a client says, wherever they run.
#pragma once

#include "actors/role.h"

namespace shoal::actors {

// That a client is gone, and all else that is no message of one, every role of the node hears.
bool hears(RoleKind role, const local::LocalMessage& message);

}  // namespace shoal::actors
