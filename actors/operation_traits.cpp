#include "actors/operation_traits.h"

#include <variant>

namespace shoal::actors {

namespace {

// One overload for each operation, so that a new operation does not compile without one.
struct Table {
  static constexpr RootUse reads = RootUse::reads, keeps = RootUse::keeps_what_is_read,
                           writes = RootUse::writes;
  static constexpr ThreadClass bulk = ThreadClass::bulk, duty = ThreadClass::duty,
                               background = ThreadClass::background;
  static constexpr bool creates = true, commits = true;

  OperationTraits operator()(const operation::WriteShard&) const {
    return {"WriteShard", writes, bulk, creates};
  }
  // It asks the node's own writers, not the root.
  OperationTraits operator()(const operation::MeasureWrites&) const { return {"MeasureWrites", reads, duty}; }
  OperationTraits operator()(const operation::RecordStaged&) const {
    return {"RecordStaged", writes, duty, creates};
  }
  OperationTraits operator()(const operation::PublishDecision&) const {
    return {"PublishDecision", writes, duty, creates, commits};
  }
  OperationTraits operator()(const operation::PublishRankManifest&) const {
    return {"PublishRankManifest", writes, duty, creates, commits};
  }
  OperationTraits operator()(const operation::CompleteRankLocal&) const {
    return {"CompleteRankLocal", writes, duty, creates, commits};
  }
  OperationTraits operator()(const operation::ListMissingManifests&) const {
    return {"ListMissingManifests", reads, duty};
  }
  OperationTraits operator()(const operation::CompleteAttempt&) const {
    return {"CompleteAttempt", writes, duty, creates, commits};
  }
  OperationTraits operator()(const operation::ReadDecision&) const { return {"ReadDecision", reads, duty}; }
  OperationTraits operator()(const operation::DecodeDecision&) const {
    return {"DecodeDecision", reads, duty};
  }
  OperationTraits operator()(const operation::VerifyCheckpoint&) const {
    return {"VerifyCheckpoint", reads, bulk};  // it reads the whole checkpoint
  }
  OperationTraits operator()(const operation::CheckFiles&) const { return {"CheckFiles", reads, duty}; }
  // The catalog grows, on the coordinator's own disk.
  OperationTraits operator()(const operation::RecordDecision&) const {
    return {"RecordDecision", writes, duty};
  }
  OperationTraits operator()(const operation::PublishRoster&) const {
    return {"PublishRoster", writes, duty, creates};
  }
  OperationTraits operator()(const operation::ReadRoster&) const { return {"ReadRoster", reads, duty}; }
  OperationTraits operator()(const operation::ReadEpoch&) const { return {"ReadEpoch", reads, duty}; }
  OperationTraits operator()(const operation::ListAttempts&) const { return {"ListAttempts", reads, duty}; }
  OperationTraits operator()(const operation::ListNewestAttempts&) const {
    return {"ListNewestAttempts", reads, duty};
  }
  OperationTraits operator()(const operation::ListAttemptsOfStep&) const {
    return {"ListAttemptsOfStep", reads, duty};
  }
  OperationTraits operator()(const operation::ListCheckpoints&) const {
    return {"ListCheckpoints", reads, bulk};
  }
  OperationTraits operator()(const operation::InspectAttempt&) const {
    return {"InspectAttempt", reads, duty};
  }
  OperationTraits operator()(const operation::SweepAttempt&) const { return {"SweepAttempt", writes, bulk}; }
  OperationTraits operator()(const operation::PinAttempt&) const {
    return {"PinAttempt", keeps, duty, creates};
  }
  OperationTraits operator()(const operation::RenewPin&) const { return {"RenewPin", keeps, duty, creates}; }
  OperationTraits operator()(const operation::RemovePin&) const { return {"RemovePin", keeps, duty}; }
  // It plans deletions.
  OperationTraits operator()(const operation::PlanRetention&) const {
    return {"PlanRetention", writes, background};
  }
  // It creates a tombstone.
  OperationTraits operator()(const operation::DeleteCheckpoint&) const {
    return {"DeleteCheckpoint", writes, background, creates};
  }
  OperationTraits operator()(const operation::RemoveRemains&) const {
    return {"RemoveRemains", writes, background};
  }
  OperationTraits operator()(const operation::PublishLoadChoice& publish) const {
    return {"PublishLoadChoice", publish.of == storage::ChoiceOf::reader ? keeps : writes, duty, creates};
  }
  OperationTraits operator()(const operation::ReadLoadChoice&) const {
    return {"ReadLoadChoice", reads, duty};
  }
  OperationTraits operator()(const operation::MeasureObjects&) const {
    return {"MeasureObjects", reads, duty};
  }
  OperationTraits operator()(const operation::ReadBatch&) const { return {"ReadBatch", reads, bulk}; }
  OperationTraits operator()(const operation::LocateRanges&) const { return {"LocateRanges", reads, bulk}; }
  OperationTraits operator()(const operation::ListenToPeers&) const { return {"ListenToPeers", reads, duty}; }
  OperationTraits operator()(const operation::ReadChunk&) const { return {"ReadChunk", reads, bulk}; }
  OperationTraits operator()(const operation::CheckChunk&) const { return {"CheckChunk", reads, bulk}; }
  OperationTraits operator()(const operation::ReadHeader&) const { return {"ReadHeader", reads, bulk}; }
  OperationTraits operator()(const operation::CheckHeader&) const { return {"CheckHeader", reads, bulk}; }
  OperationTraits operator()(const operation::CopyChunk&) const { return {"CopyChunk", reads, bulk}; }
  OperationTraits operator()(const operation::ReleaseWindow&) const { return {"ReleaseWindow", reads, duty}; }
};

}  // namespace

OperationTraits traits_of(const Operation& operation) {
  return std::visit(Table{}, operation);
}

}  // namespace shoal::actors
