// The world, rule version and options in manifests and in roster records: two structs with the same four
// fields.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "plan/layout/codec.h"
#include "plan/saving/options_codec.h"
#include "schema/checked_reader_internal.h"
#include "schema/layout.capnp.h"
#include "shoal/roster.h"
#include "shoal/save_plan.h"

namespace shoal::storage {

struct WorldRecord {
  std::shared_ptr<const World> world;
  uint32_t rule_version = 0;
  SaveOptions options;
};

// Code::invalid_argument, or Code::version if this program does not know the rule.
Status validate_rule(uint32_t rule_version, const SaveOptions& options);
Status validate_world_record(const WorldRecord& record);  // includes validate_rule

template <class Builder>
void write_world_record(Builder builder, const World& world, uint32_t rule_version,
                        const SaveOptions& options) {
  builder.setRoster(schema::data_of(plan::encode_roster(world.roster)));
  auto layouts = builder.initLayouts(static_cast<unsigned>(world.layouts.size()));
  for (unsigned i = 0; i < layouts.size(); ++i)
    layouts.set(i, schema::data_of(plan::encode_layout(*world.layouts[i])));
  builder.setRuleVersion(rule_version);
  plan::write_options(builder.initOptions(), options);
}

template <class Reader>
Result<plan::EncodedWorld> encoded_world_in(Reader reader) {
  plan::EncodedWorld world{schema::view_of(reader.getRoster()), {}};
  auto layouts = reader.getLayouts();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(layouts, kMaxWorldSize, "layouts").status());
  for (auto layout : layouts) world.layouts.push_back(schema::view_of(layout));
  return world;
}

// Decodes and validates the record.
template <class Reader>
Result<WorldRecord> read_world_record(Reader reader) {
  WorldRecord record;
  record.rule_version = reader.getRuleVersion();
  SHOAL_ASSIGN_OR_RETURN(record.options, plan::read_options(reader.getOptions()));
  SHOAL_ASSIGN_OR_RETURN(plan::EncodedWorld encoded, encoded_world_in(reader));
  SHOAL_ASSIGN_OR_RETURN(record.world, plan::decode_world(encoded));
  SHOAL_RETURN_IF_ERROR(validate_world_record(record));
  return record;
}

}  // namespace shoal::storage
