// Canonical Cap'n Proto encodings of plan values (schema/layout.capnp). Equal values have equal encodings.
// Decoding validates everything, uses bounded memory, and never throws. The bytes need no alignment.
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
// Computes the id; Code::corrupt if the bytes are not canonical.
Result<LayoutPtr> decode_layout(ByteView bytes);
// Like decode_layout, for bytes whose expected id a roster states. The matching hash proves that they are
// what the layout's owner encoded, so decoding skips the check for canonical form.
Result<LayoutPtr> decode_layout(ByteView bytes, const LayoutId& id);
Bytes encode_roster(const Roster& roster);
Result<Roster> decode_roster(ByteView bytes);
// A roster and its layouts, encoded, in the order of Roster::layout_ids. Borrowed.
struct EncodedWorld {
  ByteView roster;
  std::vector<ByteView> layouts;
};
// Checks each layout against the hash in the roster. validate_world checks that they are consistent.
Result<std::shared_ptr<const World>> decode_world(const EncodedWorld& encoded);
// A plan under a roster (plan/saving/plan_codec.cpp). Decoding computes id, tensor_bytes and files.
// check_plan checks the plan against a layout.
Bytes encode_plan(const SavePlan& plan);
Result<SavePlanPtr> decode_plan(ByteView bytes);

}  // namespace shoal::plan
