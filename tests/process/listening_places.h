// The TCP addresses on which a process listens.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace shoal::testing {

inline constexpr const char* kLoopbackPlace = "0100007F:";  // prefix of an address on 127.0.0.1

// "ADDRESS:PORT" in hexadecimal digits for every TCP port on which a process listens.
std::set<std::string> listening_places(pid_t pid);
unsigned long port_of_place(const std::string& place);

}  // namespace shoal::testing
