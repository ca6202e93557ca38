// What every table of states must hold (docs/reference/states.md).
#pragma once

#include <algorithm>
#include <vector>

namespace shoal::base {

// Whether the rows of the table lead from one of `first` to every state that the table names.
template <class Table, class State>
bool reaches_all(const Table& table, std::vector<State> first) {
  std::vector<State>& reached = first;
  const auto has = [&](State state) {
    return std::find(reached.begin(), reached.end(), state) != reached.end();
  };
  for (size_t next = 0; next < reached.size(); ++next) {
    for (const auto& row : table) {
      if (row.from == reached[next] && !has(row.to)) reached.push_back(row.to);
    }
  }
  return std::all_of(table.begin(), table.end(),
                     [&](const auto& row) { return has(row.from) && has(row.to); });
}

}  // namespace shoal::base
