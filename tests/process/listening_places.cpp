#include "tests/process/listening_places.h"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace shoal::testing {

std::set<std::string> listening_places(pid_t pid) {
  std::set<std::string> own_inodes;
  const std::string folder = "/proc/" + std::to_string(pid);
  for (const auto& each : std::filesystem::directory_iterator(folder + "/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(each, ignored);
    if (target.starts_with("socket:[")) own_inodes.insert(target.substr(8, target.size() - 9));
  }
  std::set<std::string> places;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream lines(folder + table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >>
          inode;
      constexpr const char* kListens = "0A";
      if (state == kListens && own_inodes.contains(inode)) places.insert(local);
    }
  }
  return places;
}

unsigned long port_of_place(const std::string& place) {
  return std::stoul(place.substr(place.find(':') + 1), nullptr, 16);
}

}  // namespace shoal::testing
