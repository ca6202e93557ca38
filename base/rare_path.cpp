#include "base/rare_path.h"

namespace shoal::base {

namespace {

std::vector<std::string_view>& known_rare_paths() {
  static std::vector<std::string_view> names;
  return names;
}

}  // namespace

size_t rare_path_internal::add(const char* name) {
  known_rare_paths().emplace_back(name);
  return known_rare_paths().size() - 1;
}

RarePathCounts::RarePathCounts() : counts_(known_rare_paths().size()), before_(rare_path_internal::counts) {
  rare_path_internal::counts = counts_.data();
}

RarePathCounts::~RarePathCounts() {
  rare_path_internal::counts = before_;
}

std::vector<std::pair<std::string_view, uint64_t>> RarePathCounts::list() const {
  std::vector<std::pair<std::string_view, uint64_t>> all;
  for (size_t place = 0; place < counts_.size(); ++place) {
    all.emplace_back(known_rare_paths()[place], counts_[place]);
  }
  std::ranges::sort(all);
  return all;
}

}  // namespace shoal::base
