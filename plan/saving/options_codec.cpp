#include "plan/saving/options_codec.h"

#include <fmt/format.h>

namespace shoal::plan {

Result<SaveOptions> checked_options(uint16_t dedupe, uint64_t unit_bytes, uint16_t mode) {
  if (dedupe > static_cast<uint16_t>(Dedupe::none)) {
    return Status(Code::corrupt, fmt::format("save options: dedupe {} is unknown", dedupe));
  }
  if (mode > static_cast<uint16_t>(SaveMode::collective)) {
    return Status(Code::corrupt, fmt::format("save options: mode {} is unknown", mode));
  }
  const SaveOptions options{static_cast<Dedupe>(dedupe), unit_bytes, static_cast<SaveMode>(mode)};
  if (Status status = validate_options(options); !status.ok()) {
    return Status(Code::corrupt, status.message()).with_context("save options");
  }
  return options;
}

}  // namespace shoal::plan
