// A custom storage: each rank writes one file, and the results of the storage record where each value is in
// it. Shoal decides whether the checkpoint exists. Run it on any number of ranks:
//   shoal launch -n 2 --root /tmp/run --create -- ./custom_storage
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "shoal/checkpointer.h"
#include "shoal/dcp/storage.h"

namespace {

using namespace shoal;

class FileWriter : public dcp::LocalStorageWriter {
 public:
  explicit FileWriter(std::string folder) : folder_(std::move(folder)) {}

  Status reset(const std::string& checkpoint_id) override {
    path_ = folder_ + "/" + checkpoint_id;
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    return error ? Status(Code::io, path_ + ": " + error.message()) : ok_status();
  }
  Status set_up_storage_writer(const dcp::Role& role) override {
    file_name_ = "rank-" + std::to_string(role.rank) + ".bin";
    return ok_status();
  }
  Result<std::vector<dcp::WriteResult>> write_data(const dcp::SavePlan& plan,
                                                   dcp::SavePlanner& planner) override {
    const std::string path = path_ + "/" + file_name_;
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (!file) return Status(Code::io, path + ": cannot create this file");
    Result<std::vector<dcp::WriteResult>> results = write_to(file, plan, planner);
    const bool is_durable = std::fflush(file) == 0 && fsync(fileno(file)) == 0;
    if ((std::fclose(file) != 0 || !is_durable) && results.ok())
      return Status(Code::io, path + ": cannot write this file");
    return results;
  }
  // Shoal calls it on one rank, after the commit. This storage needs nothing more; another one might publish
  // an index here.
  Status finish(const dcp::Metadata& metadata,
                const std::vector<std::vector<dcp::WriteResult>>& results) override {
    std::ofstream(path_ + "/FINISHED")
        << metadata.state_dict_metadata.size() << " values of " << results.size() << " ranks\n";
    return ok_status();
  }

 private:
  Result<std::vector<dcp::WriteResult>> write_to(std::FILE* file, const dcp::SavePlan& plan,
                                                 dcp::SavePlanner& planner) {
    std::vector<dcp::WriteResult> results;
    uint64_t offset = 0;
    for (const dcp::WriteItem& item : plan.items) {
      SHOAL_ASSIGN_OR_RETURN(const dcp::Data data, planner.resolve_data(item));
      if (std::fwrite(data.bytes.data(), 1, data.bytes.size(), file) != data.bytes.size()) {
        return Status(Code::io, file_name_ + ": incomplete write");
      }
      results.push_back({item.index, data.bytes.size(), file_name_ + " " + std::to_string(offset)});
      offset += data.bytes.size();
    }
    return results;
  }

  const std::string folder_;
  std::string path_, file_name_;
};

class FileReader : public dcp::LocalStorageReader {
 public:
  explicit FileReader(std::string folder) : folder_(std::move(folder)) {}

  Status reset(const std::string& checkpoint_id) override {
    path_ = folder_ + "/" + checkpoint_id;
    return ok_status();
  }
  Status set_up_storage_reader(const dcp::Metadata& metadata, const dcp::Role&) override {
    metadata_ = metadata;
    return ok_status();
  }
  Status read_data(const dcp::LoadPlan& plan, dcp::LoadPlanner& planner) override {
    for (const dcp::ReadItem& item : plan.items) {
      SHOAL_ASSIGN_OR_RETURN(std::string bytes, read(item.storage_index));
      if (item.type == dcp::LoadItemType::byte_io) {
        SHOAL_RETURN_IF_ERROR(planner.load_bytes(item, std::move(bytes)));
        continue;
      }
      SHOAL_ASSIGN_OR_RETURN(const Dims sizes, dcp::chunk_sizes(metadata_, item.storage_index));
      SHOAL_ASSIGN_OR_RETURN(const dcp::Tensor tensor, planner.resolve_tensor(item));
      SHOAL_RETURN_IF_ERROR(dcp::fill_from_chunk(item, sizes, as_view(bytes), tensor));
      SHOAL_RETURN_IF_ERROR(planner.commit_tensor(item, tensor));
    }
    return ok_status();
  }

 private:
  Result<std::string> read(const dcp::MetadataIndex& index) const {
    const dcp::WriteResult& result = metadata_.storage_data.at(index);
    const size_t space = result.storage_data.find(' ');
    const std::string path = path_ + "/" + result.storage_data.substr(0, space);
    std::ifstream file(path, std::ios::binary);
    std::string bytes(result.size_in_bytes, '\0');
    file.seekg(static_cast<std::streamoff>(std::strtoull(result.storage_data.c_str() + space, nullptr, 10)));
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file) return Status(Code::io, path + ": cannot read this file");
    return bytes;
  }

  const std::string folder_;
  std::string path_;
  dcp::Metadata metadata_;
};

int fail(const Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

}  // namespace

int main() {
  auto options = CheckpointerOptions::from_environment();
  if (!options.ok()) return fail(options.status());
  const std::string folder = options->root + "-bytes";
  auto checkpointer = Checkpointer::open(*options);
  if (!checkpointer.ok()) return fail(checkpointer.status());

  const Dims shape = {101, 64};
  const Mesh mesh = Mesh::contiguous({options->world_size});
  auto rows_and_columns = [&](std::vector<float>& rows, std::vector<float>& columns, std::string& rng) {
    StateDict state;
    const ShardedTensor by_rows{DType::f32, shape, mesh, {Placement::shard(0)}};
    const ShardedTensor by_columns{DType::f32, shape, mesh, {Placement::shard(1)}};
    rows.resize(by_rows.local_elements(options->rank).value());
    columns.resize(by_columns.local_elements(options->rank).value());
    state.add_tensor("rows", by_rows, rows.data());
    state.add_tensor("columns", by_columns, columns.data());
    state.add_rank_object("rng", &rng);
    return state;
  };
  std::vector<float> rows, columns;
  std::string rng = "random state of rank " + std::to_string(options->rank);
  const StateDict state = rows_and_columns(rows, columns, rng);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i + options->rank);
  for (size_t i = 0; i < columns.size(); ++i) columns[i] = 0.5f * static_cast<float>(i);

  FileWriter writer(folder);
  dcp::DefaultSavePlanner save_planner;
  auto saved = dcp::save(**checkpointer, 1, state, save_planner, writer);
  if (!saved.ok()) return fail(saved.status());
  auto committed = saved->wait_committed();  // on rank 0 this calls FileWriter::finish
  if (!committed.ok()) return fail(committed.status());

  std::vector<float> loaded_rows, loaded_columns;
  std::string loaded_rng;
  const StateDict target = rows_and_columns(loaded_rows, loaded_columns, loaded_rng);
  FileReader reader(folder);
  dcp::DefaultLoadPlanner load_planner;
  auto loaded = dcp::load(**checkpointer, target, load_planner, reader);
  if (!loaded.ok()) return fail(loaded.status());
  if (loaded_rows != rows || loaded_columns != columns || loaded_rng != rng) {
    return fail(Status(Code::corrupt, "the loaded bytes differ from the saved ones"));
  }
  std::printf("rank %u: loaded everything that it saved through the custom storage\n", options->rank);
  return 0;
}
