// Which roles of a node receive a message of a client. All role hosts use this.
#pragma once

#include "actors/role.h"

namespace shoal::actors {

// Every role receives ClientLost and all other events that are not messages of a client.
bool hears(RoleKind role, const local::LocalMessage& message);

}  // namespace shoal::actors
