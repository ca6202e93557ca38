#include "shoal/dcp/storage.h"

#include <fmt/format.h>

#include "client/launch/checkpointer_options.h"
#include "client/loading/load_report.h"
#include "client/planners/plan_gathering.h"
#include "client/planners/planned_load.h"
#include "client/planners/planned_save.h"
#include "client/planners/storage_record.h"

namespace shoal::dcp {

namespace {

Role role_of(const Checkpointer& checkpointer) {
  const CheckpointerOptions& options = checkpointer.options();
  return {options.rank, options.world_size, options.rank == options.coordinator_rank};
}

Status refuse_global_plan(std::string_view what, const std::type_info& type, const char* step,
                          std::string_view where) {
  return Status(
      Code::invalid_argument,
      fmt::format(
          "the {} {} overrides {}, and {} cannot use a global plan: no rank has the plans of all ranks", what,
          client::class_name(type), step, where));
}

template <class Plan, class Storage>
Result<Plan> prepare_local(Storage& storage, Plan plan) {
  Result<Plan> prepared = storage.prepare_local_plan(std::move(plan));
  if (!prepared.ok()) return prepared.status().with_context("prepare_local_plan");
  return prepared;
}

template <class Plan, class Storage>
Result<std::vector<Plan>> prepare_global(Storage& storage, std::vector<Plan> plans) {
  const size_t ranks = plans.size();
  Result<std::vector<Plan>> global = storage.prepare_global_plan(std::move(plans));
  if (!global.ok()) return global.status().with_context("prepare_global_plan");
  if (global->size() == ranks) return global;
  return Status(Code::invalid_argument,
                fmt::format("prepare_global_plan returned {} plans for {} ranks", global->size(), ranks));
}

// Calls the storage's prepare_global_plan, if there is a single rank.
template <class Plan, class Storage>
Result<Plan> prepare_one_rank(Storage& storage, Plan plan) {
  if (!storage.overrides_global_plan()) return plan;
  SHOAL_ASSIGN_OR_RETURN(std::vector<Plan> global, prepare_global<Plan>(storage, {std::move(plan)}));
  return std::move(global.front());
}

// Writes all bytes through the storage during planning. Shoal then saves the record only.
class RecordPlanner : public internal::ExchangingPlanner {
 public:
  RecordPlanner(SavePlanner& planner, StorageWriter& writer) : planner_(planner), writer_(writer) {}

  void use(SaveMode mode, internal::ExchangePlans exchange) override {
    mode_ = mode;
    exchange_ = std::move(exchange);
  }

  Status set_up_planner(const StateDict& state_dict, const StorageMeta& storage_meta,
                        const Role& role) override {
    role_ = role;
    const std::string where = fmt::format("a {} save", mode_name(mode_));
    if (planner_.overrides_global_plan() && !is_collective()) {
      return refuse_global_plan("planner", typeid(planner_), "create_global_plan", where);
    }
    if (writer_.overrides_global_plan() && !is_collective() && role.world_size > 1) {
      return refuse_global_plan("storage", typeid(writer_), "prepare_global_plan", where);
    }
    SHOAL_RETURN_IF_ERROR(writer_.reset(storage_meta.checkpoint_id).with_context("reset"));
    SHOAL_RETURN_IF_ERROR(planner_.set_up_planner(state_dict, storage_meta, role));
    return writer_.set_up_storage_writer(role).with_context("set_up_storage_writer");
  }

  Result<SavePlan> create_local_plan() override {
    SHOAL_ASSIGN_OR_RETURN(SavePlan local, planner_.create_local_plan());
    SHOAL_RETURN_IF_ERROR(validate_local_plan(local));
    SHOAL_ASSIGN_OR_RETURN(local, prepare_local(writer_, std::move(local)));
    SHOAL_ASSIGN_OR_RETURN(
        local, is_collective() ? plan_with_all(local) : prepare_one_rank(writer_, std::move(local)));
    Result<SavePlan> final_plan = planner_.finish_plan(std::move(local));
    if (!final_plan.ok()) return final_plan.status().with_context("finish_plan");
    Result<std::vector<WriteResult>> results = writer_.write_data(*final_plan, planner_);
    if (!results.ok()) return results.status().with_context("write_data");
    SHOAL_ASSIGN_OR_RETURN(internal::StorageRecord record,
                           internal::make_record(*final_plan, std::move(results).value(), role_.rank));
    encoded_ = internal::encode_record(record);
    WriteItem item{{std::string(internal::kRecordFqn)}, WriteItemType::byte_io};
    item.per_rank = true;
    return SavePlan{{std::move(item)}, "", ""};
  }

  Result<Data> resolve_data(const WriteItem&) override { return Data{as_view(encoded_), nullptr}; }
  void release() override { planner_.release(); }

 private:
  bool is_collective() const { return mode_ == SaveMode::collective; }

  // As in DCP: first the planner's create_global_plan on all plans, then the storage's prepare_global_plan.
  Result<SavePlan> plan_with_all(const SavePlan& local) {
    return internal::follow_global_plan(
        local,
        [&](std::vector<SavePlan> all) -> Result<std::vector<SavePlan>> {
          SHOAL_ASSIGN_OR_RETURN(std::vector<SavePlan> plans,
                                 internal::global_step_of(planner_)(std::move(all)));
          return prepare_global(writer_, std::move(plans));
        },
        exchange_);
  }

  SavePlanner& planner_;
  StorageWriter& writer_;
  SaveMode mode_ = SaveMode::collective_free;
  internal::ExchangePlans exchange_;
  Role role_;
  std::string encoded_;
};

// Reads the records of all ranks of a committed checkpoint.
Result<std::vector<internal::StorageRecord>> load_records(Checkpointer& checkpointer,
                                                          const shoal::Metadata& checkpoint,
                                                          LoadResult* loaded) {
  const std::string first = rank_fqn(internal::kRecordFqn, 0);
  bool is_recorded = false;
  for (const TensorMetadata& value : checkpoint.state_dict_metadata) is_recorded |= value.fqn == first;
  if (!is_recorded) {
    return Status(
        Code::invalid_argument,
        to_string(checkpoint.key) + " was saved without a StorageWriter: load it without a StorageReader");
  }
  std::vector<std::string> encoded(checkpoint.world_size);
  StateDict state;
  for (Rank rank = 0; rank < checkpoint.world_size; ++rank) {
    state.add_object(rank_fqn(internal::kRecordFqn, rank), &encoded[rank],
                     Mesh::single(client::rank_in_world(checkpointer.options())));
  }
  LoadOptions options;
  options.step = checkpoint.key.step;
  SHOAL_ASSIGN_OR_RETURN(*loaded, checkpointer.load(state, options));
  if (loaded->metadata.key != checkpoint.key) {
    return Status(Code::aborted, fmt::format("{} was committed during the load of {}: load again",
                                             to_string(loaded->metadata.key), to_string(checkpoint.key)));
  }
  std::vector<internal::StorageRecord> records;
  for (Rank rank = 0; rank < encoded.size(); ++rank) {
    Result<internal::StorageRecord> record = internal::decode_record(as_view(encoded[rank]));
    if (!record.ok()) return record.status().with_context(fmt::format("rank {}", rank));
    records.push_back(std::move(record).value());
  }
  return records;
}

Result<shoal::Metadata> finish(Checkpointer& checkpointer, StorageWriter& writer,
                               const shoal::Metadata& committed) {
  LoadResult ignored;
  SHOAL_ASSIGN_OR_RETURN(const auto records, load_records(checkpointer, committed, &ignored));
  SHOAL_ASSIGN_OR_RETURN(const Metadata metadata, internal::join_records(records, committed.key));
  std::vector<std::vector<WriteResult>> results;
  for (const internal::StorageRecord& record : records) results.push_back(record.results);
  SHOAL_RETURN_IF_ERROR(writer.finish(metadata, results).with_context("finish"));
  return committed;
}

}  // namespace

Result<Dims> chunk_sizes(const Metadata& metadata, const MetadataIndex& storage_index) {
  auto value = metadata.state_dict_metadata.find(storage_index.fqn);
  if (value != metadata.state_dict_metadata.end() && storage_index.offset) {
    if (const auto* tensor = std::get_if<TensorStorageMetadata>(&value->second)) {
      for (const Box& chunk : tensor->chunks) {
        if (chunk.offsets == *storage_index.offset) return chunk.sizes;
      }
    }
  }
  return Status(Code::key_mismatch, fmt::format("the checkpoint has no chunk {}", to_string(storage_index)));
}

Result<StorageSave> save(Checkpointer& checkpointer, uint64_t step, const StateDict& state,
                         SavePlanner& planner, StorageWriter& writer, const SaveAttributes& attributes) {
  RecordPlanner recording(planner, writer);
  SHOAL_ASSIGN_OR_RETURN(SaveHandle handle, checkpointer.save(step, state, recording, attributes));
  return StorageSave(checkpointer, writer, std::move(handle));
}

Result<shoal::Metadata> StorageSave::wait_committed(std::optional<std::chrono::milliseconds> timeout) {
  Result<shoal::Metadata> committed = handle_.wait_committed(timeout);
  if (!committed.ok() || !role_of(*checkpointer_).is_coordinator) return committed;
  if (!finished_) finished_ = finish(*checkpointer_, *writer_, *committed);
  return *finished_;
}

namespace {

// Loads a checkpoint that was found, through the storage and the planner.
Result<LoadResult> load_found(Checkpointer& checkpointer, const StateDict& state, LoadPlanner& planner,
                              StorageReader& reader, LoadResult loaded) {
  const Role role = role_of(checkpointer);
  // The records are loaded by step, and such a load passes over nothing.
  PassedOver passed_over = std::move(loaded.passed_over);
  SHOAL_ASSIGN_OR_RETURN(const auto records, load_records(checkpointer, loaded.metadata, &loaded));
  loaded.passed_over = std::move(passed_over);
  SHOAL_ASSIGN_OR_RETURN(Metadata metadata, internal::join_records(records, loaded.metadata.key));

  SHOAL_RETURN_IF_ERROR(reader.reset(metadata.storage_meta.checkpoint_id).with_context("reset"));
  Result<Metadata> read = reader.read_metadata(std::move(metadata));
  if (!read.ok()) return read.status().with_context("read_metadata");
  SHOAL_RETURN_IF_ERROR(planner.set_up_planner(state, *read, role).with_context("set_up_planner"));
  SHOAL_RETURN_IF_ERROR(reader.set_up_storage_reader(*read, role).with_context("set_up_storage_reader"));
  SHOAL_ASSIGN_OR_RETURN(LoadPlan plan,
                         client::make_load_plan(planner, role, [&](LoadPlan local) -> Result<LoadPlan> {
                           SHOAL_ASSIGN_OR_RETURN(local, prepare_local(reader, std::move(local)));
                           return prepare_one_rank(reader, std::move(local));
                         }));
  SHOAL_RETURN_IF_ERROR(reader.read_data(plan, planner).with_context("read_data"));
  return loaded;
}

}  // namespace

Result<LoadResult> load(Checkpointer& checkpointer, const StateDict& given, LoadPlanner& planner,
                        StorageReader& reader, const LoadOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const StateDict state, client::in_process_group(checkpointer.options(), given));
  const Role role = role_of(checkpointer);
  if (role.world_size > 1 && planner.overrides_global_plan()) {
    return refuse_global_plan("planner", typeid(planner), "create_global_plan", "a load");
  }
  if (role.world_size > 1 && reader.overrides_global_plan()) {
    return refuse_global_plan("storage", typeid(reader), "prepare_global_plan", "a load");
  }
  SHOAL_RETURN_IF_ERROR(client::check_no_policies(options.policies));
  SHOAL_ASSIGN_OR_RETURN(LoadResult found, checkpointer.load(StateDict(), options));
  Result<LoadResult> loaded = load_found(checkpointer, state, planner, reader, std::move(found));
  // The checkpoint exists: if the storage does not find something, the checkpoint is damaged.
  if (loaded.status().code() == Code::not_found) return Status(Code::corrupt, loaded.status().message());
  return loaded;
}

}  // namespace shoal::dcp
