// Whether a simulated job's bytes are counted or true ones (sim/cluster/stored_payload.h), and whether those
// can be held.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "shoal/save_plan.h"
#include "shoal/status.h"
#include "sim/jobs/model_table.h"

namespace shoal::sim {

enum class Payload : uint8_t { counted, full };
std::string_view payload_name(Payload payload);
std::optional<Payload> payload_of_name(std::string_view name);

inline constexpr uint32_t kMaxFullRanks = 4096;
inline constexpr uint64_t kMaxFullBytes = uint64_t{12} << 30;  // of tensors, in the files of all saves

// Bytes of tensors in the files of one save: each element once, or once a rank that holds it where every rank
// writes all that it holds.
Result<uint64_t> bytes_of_save(const Model& model, const MeshShape& mesh, SaveMode mode);
// Code::too_large where the bytes of so many saves, or so many ranks, are not held; it says how many are.
Status check_full_payload(const Model& model, const MeshShape& mesh, SaveMode mode, uint32_t saves);

}  // namespace shoal::sim
