#include "tests/model/models.h"

namespace shoal::model {

std::vector<NamedModel> all_models(Size size) {
  std::vector<NamedModel> models = {decisions_model(3, 1, 2), claims_model(3),     loads_model(2),
                                    readers_model(2, 1),      readers_model(1, 2), retention_model(2, 2),
                                    rosters_model(3, 2),      completion_model(),  fallback_model()};
  if (size == Size::tiny) return models;
  models.push_back(decisions_model(3, 2, 1));
  if (size == Size::small) return models;
  return {decisions_model(3, 1, 2), decisions_model(3, 2, 1), claims_model(3),       loads_model(3),
          readers_model(3, 1),      readers_model(2, 2),      retention_model(3, 2), rosters_model(4, 2),
          rosters_model(4, 1),      completion_model(),       fallback_model()};
}

}  // namespace shoal::model
