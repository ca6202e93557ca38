// SaveOptions in any message that has them (schema/layout.capnp).
#pragma once

#include <cstdint>
#include <type_traits>

#include "plan/save_plan.h"

namespace shoal {

// From the numbers of a message. Code::corrupt where they are none that validate_options takes.
Result<SaveOptions> checked_options(uint16_t dedupe, uint64_t unit_bytes, uint16_t mode);

// `out`: schema::SaveOptions::Builder.
template <class Builder>
void write_options(Builder out, const SaveOptions& options) {
  out.setDedupe(static_cast<std::decay_t<decltype(out.getDedupe())>>(options.dedupe));
  out.setUnitBytes(options.unit_bytes);
  out.setMode(static_cast<std::decay_t<decltype(out.getMode())>>(options.mode));
}

// `in`: schema::SaveOptions::Reader.
template <class Reader>
Result<SaveOptions> read_options(Reader in) {
  return checked_options(static_cast<uint16_t>(in.getDedupe()), in.getUnitBytes(),
                         static_cast<uint16_t>(in.getMode()));
}

}  // namespace shoal
