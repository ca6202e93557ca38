// Encodes and decodes PassedOver in any message or record that contains it (schema/layout.capnp).
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "shoal/bytes.h"
#include "shoal/passed_over.h"
#include "shoal/status.h"

namespace shoal::plan {

// `out` has a list `passedOver` of schema::PassedOver and a number `passedOverCount`. Leaves both unset if no
// attempt was passed over.
template <class Builder>
void write_passed_over(Builder out, const PassedOverPtr& passed_over) {
  if (!passed_over || passed_over->empty()) return;
  auto list = out.initPassedOver(static_cast<unsigned>(passed_over->named.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    const PassedOverAttempt& each = passed_over->named[i];
    list[i].setGeneration(each.key.generation);
    list[i].setStep(each.key.step);
    list[i].setAttempt(each.key.attempt);
    list[i].setCause({each.cause.c_str(), each.cause.size()});
  }
  using Count = decltype(out.asReader().getPassedOverCount());
  out.setPassedOverCount(static_cast<Count>(std::min<uint64_t>(passed_over->count, ~Count{0})));
}

// nullptr if no attempt was passed over. Code::corrupt if there are too many, or a cause is too long or not
// one clean line.
template <class Reader>
Result<PassedOverPtr> read_passed_over(Reader in) {
  auto list = in.getPassedOver();
  if (list.size() > kMaxPassedOverNamed)
    return Status(Code::corrupt, "the list of passed-over attempts is too long");
  if (list.size() == 0) return PassedOverPtr();
  auto read = std::make_shared<PassedOver>();
  for (auto each : list) {
    const auto cause = each.getCause();
    std::string text(cause.begin(), cause.size());
    if (text.size() > kMaxPassedOverCauseBytes || !is_clean_utf8(text)) {
      return Status(Code::corrupt, "the reason for passing over an attempt is not a clean line of text");
    }
    read->named.push_back({{each.getGeneration(), each.getStep(), each.getAttempt()}, std::move(text)});
  }
  read->count = std::max<uint64_t>(in.getPassedOverCount(), list.size());
  return PassedOverPtr(std::move(read));
}

}  // namespace shoal::plan
