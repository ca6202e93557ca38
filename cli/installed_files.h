// Where the program finds the files that are installed with it, and that lie beside it in the build tree.
#pragma once

#include <string>

namespace shoal::cli {

std::string own_program();    // path; "" if it is not known
std::string shared_folder();  // share/shoal: profiles of the simulator, the program of shoal chaos
std::string helper_folder();  // libexec/shoal: programs that users do not start themselves

}  // namespace shoal::cli
