#include "sim/reports/coordinator_series.h"

#include <algorithm>
#include <utility>

namespace shoal::sim {

namespace {

void raise(CoordinatorLoad& to, const CoordinatorLoad& by) {
  to.queue = std::max(to.queue, by.queue);
  to.memory_bytes = std::max(to.memory_bytes, by.memory_bytes);
  to.descriptors = std::max(to.descriptors, by.descriptors);
}

}  // namespace

void CoordinatorSeries::open(actors::TimeNs now) {
  close();
  const actors::TimeNs begin = now / width_ * width_;
  open_ = {begin, begin + width_, {}};
  if (!closed_.empty() && closed_.back().begin == begin) {  // samples have just been merged
    open_.most = closed_.back().most;
    closed_.pop_back();
  }
  const CoordinatorLoad state = look_();
  raise(open_.most, state);
  raise(peaks_, state);
}

void CoordinatorSeries::close() {
  if (open_.end == 0) return;
  closed_.push_back(open_);
  open_ = {};
  while (closed_.size() >= kMaxCoordinatorSamples) halve();
}

void CoordinatorSeries::halve() {
  width_ *= 2;
  std::vector<CoordinatorSample> fewer;
  for (const CoordinatorSample& sample : closed_) {
    const actors::TimeNs begin = sample.begin / width_ * width_;
    if (fewer.empty() || fewer.back().begin != begin) fewer.push_back({begin, begin + width_, {}});
    raise(fewer.back().most, sample.most);
  }
  closed_ = std::move(fewer);
}

CoordinatorLoad CoordinatorSeries::take_peaks() {
  raise(peaks_, look_());
  return std::exchange(peaks_, {});
}

std::vector<CoordinatorSample> CoordinatorSeries::samples() const {
  std::vector<CoordinatorSample> all = closed_;
  if (open_.end != 0) all.push_back(open_);
  return all;
}

}  // namespace shoal::sim
