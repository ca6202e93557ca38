// Plain values of a pickle as the JSON text that the Python package stores for them
// (python/shoal/_values.py).
#pragma once

#include <optional>
#include <string>

#include "admin/dcp/pickle.h"

namespace shoal::admin {

// nullopt: the value is not plain, or its text would be much larger than the pickle.
std::optional<std::string> encode_plain(const Pickle& pickle, PickleId id, uint64_t bytes_max);

}  // namespace shoal::admin
