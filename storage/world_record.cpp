#include <fmt/format.h>

#include "storage/world_record_internal.h"

namespace shoal {

Status validate_world_record(const WorldRecord& record) {
  if (record.rule_version > kRuleVersion) {
    return Status(Code::version,
                  fmt::format("this file follows planning rule {}, this program knows up to {}",
                              record.rule_version, kRuleVersion));
  }
  if (record.rule_version == 0) return Status(Code::invalid_argument, "planning rule 0");
  SHOAL_RETURN_IF_ERROR(validate_options(record.options));
  return validate_world(*record.world);
}

Result<std::shared_ptr<const World>> decode_world(ByteView roster, const std::vector<ByteView>& layouts) {
  SHOAL_ASSIGN_OR_RETURN(Roster decoded, decode_roster(roster));
  auto world = std::make_shared<World>(World{std::move(decoded), {}});
  if (layouts.size() != world->roster.layout_ids().size()) {
    return Status(Code::corrupt, fmt::format("{} layouts for a roster of {}", layouts.size(),
                                             world->roster.layout_ids().size()));
  }
  for (size_t i = 0; i < layouts.size(); ++i) {
    SHOAL_ASSIGN_OR_RETURN(LayoutPtr added, decode_layout(layouts[i], world->roster.layout_ids()[i]));
    world->layouts.push_back(std::move(added));
  }
  return std::shared_ptr<const World>(std::move(world));
}

}  // namespace shoal
