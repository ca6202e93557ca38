// Canonical Cap'n Proto encodings of plan values (schema/layout.capnp). Encoding twice gives the same bytes;
// decoding validates everything, with bounded memory, and never throws. Bytes need no alignment.
#pragma once

#include <memory>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/layout.h"
#include "shoal/roster.h"
#include "shoal/save_plan.h"
#include "shoal/status.h"

namespace shoal::plan {

inline constexpr size_t kMaxEncodedLayoutBytes = size_t{64} << 20;
inline constexpr size_t kMaxEncodedRosterBytes = size_t{256} << 20;
inline constexpr size_t kMaxEncodedPlanBytes = size_t{64} << 20;

Bytes encode_layout(const Layout& layout);
Result<LayoutPtr> decode_layout(ByteView bytes);  // its id is recomputed; Code::corrupt if not canonical
// The same where the bytes have this hash, which a roster states of a layout: they are what its maker
// encoded, and are not encoded anew to see that.
Result<LayoutPtr> decode_layout(ByteView bytes, const LayoutId& id);
Bytes encode_roster(const Roster& roster);
Result<Roster> decode_roster(ByteView bytes);
// A roster and its layouts, in their order, as they are encoded. Borrowed.
struct EncodedWorld {
  ByteView roster;
  std::vector<ByteView> layouts;
};
// Each layout by the hash that the roster states of it. Whether they go together: validate_world.
Result<std::shared_ptr<const World>> decode_world(const EncodedWorld& encoded);
// A plan under a roster (plan/saving/plan_codec.cpp); id, tensor_bytes and files are worked out anew. Whether
// it fits a layout: check_plan.
Bytes encode_plan(const SavePlan& plan);
Result<SavePlanPtr> decode_plan(ByteView bytes);

}  // namespace shoal::plan
