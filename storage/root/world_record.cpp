#include <fmt/format.h>

#include "storage/root/world_record_internal.h"

namespace shoal::storage {

Status validate_rule(uint32_t rule_version, const SaveOptions& options) {
  if (rule_version > kRuleVersion) {
    return Status(
        Code::version,
        fmt::format("this file follows planning rule {}, but this program supports only rules up to {}",
                    rule_version, kRuleVersion));
  }
  if (rule_version == 0) return Status(Code::invalid_argument, "its planning rule is 0");
  return validate_options(options);
}

Status validate_world_record(const WorldRecord& record) {
  SHOAL_RETURN_IF_ERROR(validate_rule(record.rule_version, record.options));
  return validate_world(*record.world);
}

}  // namespace shoal::storage
