// Whether the bytes of a simulated job are counted or stored (sim/cluster/stored_payload.h), and whether they
// fit into memory.
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
inline constexpr uint64_t kMaxFullBytes = uint64_t{12} << 30;  // bytes of tensors in the files of all saves

// Bytes of tensors in the files of one save. Each element counts once, or, if every rank writes all that it
// holds, once per rank that holds it.
Result<uint64_t> bytes_of_save(const Model& model, const MeshShape& mesh, SaveMode mode);
// Code::too_large if the bytes of this number of saves or ranks cannot be stored; the error states the limit.
Status check_full_payload(const Model& model, const MeshShape& mesh, SaveMode mode, uint32_t saves);

}  // namespace shoal::sim
