// The contents of a checkpoint and its values one by one, through clients, nodes and files; and the golden
// checkpoints of every format version, loaded by jobs of each mode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "shoal/checkpoint_reader.h"
#include "storage/retention/marks.h"
#include "tests/process/trainer.h"
#include "tests/storage/golden_root.h"

namespace shoal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<float> as_floats(const Bytes& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

class ACheckpointReader : public ::testing::TestWithParam<SaveMode> {
 protected:
  ACheckpointReader() {
    auto in_mode = [](CheckpointerOptions& options) { options.save.mode = GetParam(); };
    NodeChild node(scratch_.host("a"), {"root=" + scratch_.root(), "job=saving", "world=4"});
    EXPECT_NE(node.address(), "");
    std::vector<std::unique_ptr<Trainer>> trainers;
    for (Rank rank = 0; rank < 4; ++rank) {
      trainers.push_back(std::make_unique<Trainer>(scratch_, "a", rank, 4, "saving", in_mode));
    }
    for (uint64_t step : {5, 6}) {
      for (auto& save : together(trainers, [&](Trainer& trainer) { return trainer.save(step); })) {
        EXPECT_TRUE(save.ok() && save->wait_committed(kPatience).ok());
      }
    }
  }
  NodeChild start_node() { return NodeChild(scratch_.host("b"), {"root=" + scratch_.root(), "job=job-1"}); }
  std::unique_ptr<Checkpointer> open() {
    setenv("SHOAL_RUNTIME_DIR", scratch_.host("b").c_str(), 1);
    CheckpointerOptions options;
    options.root = scratch_.root();
    options.job_id = "job-1";
    options.start_node = false;
    auto opened = Checkpointer::open(options);
    SHOAL_CHECK(opened.ok());
    return std::move(opened).value();
  }
  size_t pins() const {
    storage::PosixFileSystem file_system;
    auto storage = storage::LocalStorage::open(file_system, scratch_.root(), random_128());
    return storage::list_marks(**storage, storage::MarkKind::pin)->marks.size();
  }
  Scratch scratch_;
};

TEST_P(ACheckpointReader, TellsWhatACheckpointHoldsAndReadsOfItWhatIsAskedFor) {
  NodeChild node = start_node();
  ASSERT_NE(node.address(), "");
  auto checkpointer = open();
  auto opened = checkpointer->open_checkpoint(5);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  CheckpointReader& reader = *opened;
  EXPECT_EQ(reader.metadata().key.step, 5u);
  EXPECT_EQ(reader.metadata().world_size, 4u);
  std::vector<std::string> names;
  for (const TensorMetadata& value : reader.metadata().state_dict_metadata) names.push_back(value.fqn);
  EXPECT_THAT(names, ElementsAre("b", "rng@rank0", "rng@rank1", "rng@rank2", "rng@rank3", "w"));
  ASSERT_NE(reader.find("w"), nullptr);
  EXPECT_EQ(reader.find("w")->shape, (Dims{kRows, kColumns}));
  EXPECT_EQ(reader.find("rng"), nullptr);
  EXPECT_EQ(reader.save_options().mode, GetParam());
  EXPECT_EQ(reader.world().roster.world_size(), 4u);
  const uint64_t rows = kRows / 4;
  EXPECT_THAT(reader.boxes_of("w", 2).value(), ElementsAre(Box{{2 * rows, 0}, {rows, kColumns}}));
  EXPECT_THAT(reader.boxes_of("rng@rank2", 2).value(), ElementsAre(Box{}));
  EXPECT_THAT(reader.boxes_of("rng@rank2", 1).value(), IsEmpty());
  EXPECT_EQ(reader.boxes_of("x", 0).status().code(), Code::key_mismatch);
  EXPECT_EQ(reader.boxes_of("w", 4).status().code(), Code::invalid_argument);

  const std::vector<float> all = as_floats(reader.read("w").value());
  ASSERT_EQ(all.size(), kRows * kColumns);
  for (uint64_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], value_at(i, 5));
  // Across two ranks' rows.
  std::vector<float> part(3 * 2);
  ASSERT_TRUE(reader.read("w", Box{{rows - 1, 7}, {3, 2}}, part.data(), part.size() * sizeof(float)).ok());
  for (uint64_t i = 0; i < part.size(); ++i) {
    EXPECT_EQ(part[i], value_at((rows - 1 + i / 2) * kColumns + 7 + i % 2, 5));
  }
  EXPECT_EQ(as_text(reader.read("rng@rank3").value()), "rng of 3 at 5");
  EXPECT_EQ(reader.read("b", Box{{4}, {0}})->size(), 0u);

  std::vector<float> bias(kColumns);
  std::fill(part.begin(), part.end(), 0);
  std::string rng;
  StateDict state;
  state.add_tensor_boxes("w", DType::f32, {kRows, kColumns}, {{Box{{rows - 1, 7}, {3, 2}}, part.data()}});
  state.add_tensor_boxes("b", DType::f32, {kColumns}, {{Box{{0}, {kColumns}}, bias.data()}});
  state.add_object("rng@rank3", &rng, Mesh::single(0));
  ASSERT_TRUE(reader.read(state).ok());
  EXPECT_EQ(part[0], value_at((rows - 1) * kColumns + 7, 5));
  EXPECT_EQ(part[5], value_at((rows + 1) * kColumns + 8, 5));
  EXPECT_EQ(rng, "rng of 3 at 5");
  const Bytes read = reader.read("b").value();
  EXPECT_EQ(std::memcmp(read.data(), bias.data(), read.size()), 0);
  state.add_object("x", &rng, Mesh::single(0));
  EXPECT_EQ(reader.read(state).code(), Code::key_mismatch);
  const std::string kept = "as it was";
  StateDict constant;
  constant.add_object("rng@rank3", &kept, Mesh::single(0));
  EXPECT_EQ(reader.read(constant).code(), Code::invalid_argument);
  EXPECT_EQ(kept, "as it was");
}

TEST_P(ACheckpointReader, NamesWhatCannotBeRead) {
  NodeChild node = start_node();
  ASSERT_NE(node.address(), "");
  auto checkpointer = open();
  EXPECT_EQ(checkpointer->open_checkpoint(7).status().code(), Code::not_found);
  CheckpointReader reader = checkpointer->open_checkpoint(5).value();
  float one = 0;
  EXPECT_THAT(reader.read("x").status().message(), HasSubstr("'x' is not in step 5"));
  EXPECT_THAT(reader.read("rng@rank0", &one, 4).message(), HasSubstr("is an object"));
  EXPECT_THAT(reader.read("b", &one, 4).message(), HasSubstr("has 132 bytes, and the buffer has 4"));
  EXPECT_THAT(reader.read("b", Box{{30}, {4}}).status().message(), HasSubstr("'b'"));
  EXPECT_EQ(reader.read("b")->size(), kColumns * sizeof(float));
}

TEST_P(ACheckpointReader, GivesAPlainDictionaryOfAll) {
  NodeChild node = start_node();
  ASSERT_NE(node.address(), "");
  auto checkpointer = open();
  CheckpointReader reader = checkpointer->open_checkpoint().value();
  auto all = reader.read_all();
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  ASSERT_EQ(all->size(), 6u);
  const std::vector<float> w = as_floats(all->at("w").bytes);
  ASSERT_EQ(w.size(), kRows * kColumns);
  for (uint64_t i = 0; i < w.size(); ++i) ASSERT_EQ(w[i], value_at(i, 6));
  EXPECT_EQ(as_text(all->at("rng@rank1").bytes), "rng of 1 at 6");
  EXPECT_EQ(all->at("b").about.shape, Dims{kColumns});
  EXPECT_EQ(reader.read_all("b")->size(), 1u);
  // Regression: an empty dictionary, as if there were nothing to read.
  const Status none = reader.read_all("bias").status();
  EXPECT_EQ(none.code(), Code::key_mismatch);
  EXPECT_THAT(none.message(), ::testing::HasSubstr("has no key 'bias' and no key below it"));
}

TEST_P(ACheckpointReader, FillsAStateAndReportsItsKeys) {
  NodeChild node = start_node();
  ASSERT_NE(node.address(), "");
  auto checkpointer = open();
  CheckpointReader reader = checkpointer->open_checkpoint(6).value();
  std::vector<float> columns(kRows * 11), lazy(3, -1.0f);
  const Mesh three = Mesh::contiguous({3});  // columns, where rows were saved
  StateDict state;
  state.add_tensor("w", DType::f32, {kRows, kColumns}, three, {Placement::shard(1)}, columns.data());
  state.add_value("optimizer.lazy", DType::f32, {3}, lazy.data(), three);
  EXPECT_EQ(reader.load(state).status().code(), Code::key_mismatch);
  auto loaded = reader.load(state, {KeyPolicy::strict,
                                    {{"optimizer", KeyPolicy::allow_missing},
                                     {"b", KeyPolicy::skip},
                                     {"rng", KeyPolicy::allow_unexpected}}});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_THAT(loaded->report.missing, ElementsAre("optimizer.lazy"));
  EXPECT_THAT(loaded->report.unexpected, ElementsAre("rng@rank0"));  // those of others are theirs
  EXPECT_THAT(lazy, ElementsAre(-1.0f, -1.0f, -1.0f));
  for (uint64_t i = 0; i < columns.size(); ++i) {
    ASSERT_EQ(columns[i], value_at(i / 11 * kColumns + i % 11, 6));
  }
}

TEST_P(ACheckpointReader, HoldsOnePinWhileItLives) {
  NodeChild node = start_node();
  ASSERT_NE(node.address(), "");
  auto checkpointer = open();
  {
    CheckpointReader five = checkpointer->open_checkpoint(5).value();
    CheckpointReader again = checkpointer->open_checkpoint(5).value();
    CheckpointReader six = checkpointer->open_checkpoint(6).value();
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(five.read("b").ok() && six.read("b").ok());
    }
    EXPECT_EQ(pins(), 2u);
    five = std::move(six);
    EXPECT_EQ(five.metadata().key.step, 6u);
    EXPECT_TRUE(five.read("b").ok());
  }
  // The node removes them in its own time; a load of another checkpoint comes after it.
  for (int i = 0; i < 500 && pins() > 0; ++i) ASSERT_TRUE(checkpointer->latest().ok());
  EXPECT_EQ(pins(), 0u);
}

TEST_P(ACheckpointReader, GoesOnAtTheNextNode) {
  auto node = std::make_unique<NodeChild>(scratch_.host("b"),
                                          std::vector<std::string>{"root=" + scratch_.root(), "job=job-1"});
  ASSERT_NE(node->address(), "");
  auto checkpointer = open();
  CheckpointReader reader = checkpointer->open_checkpoint(5).value();
  ASSERT_TRUE(reader.read("b").ok());
  node->signal(SIGKILL);
  node->wait();
  NodeChild next(scratch_.host("b"), {"root=" + scratch_.root(), "job=job-1",
                                      "rejoin=" + std::to_string(checkpointer->generation())});
  ASSERT_NE(next.address(), "");
  auto b = reader.read("w", Box{{40, 0}, {1, 4}});
  ASSERT_TRUE(b.ok()) << b.status().to_string();
  EXPECT_THAT(as_floats(*b), ElementsAre(value_at(40 * kColumns, 5), value_at(40 * kColumns + 1, 5),
                                         value_at(40 * kColumns + 2, 5), value_at(40 * kColumns + 3, 5)));
}

// All values of a golden checkpoint, whatever mode the job that loads it has.
TEST_P(ACheckpointReader, LoadsTheGoldenCheckpointsBitForBit) {
  Scratch scratch;
  std::filesystem::copy(
      SHOAL_GOLDEN_FOLDER "/v1", scratch.root(),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  NodeChild node(scratch.host("g"), {"root=" + scratch.root(), "job=golden"});
  ASSERT_NE(node.address(), "");
  setenv("SHOAL_RUNTIME_DIR", scratch.host("g").c_str(), 1);
  CheckpointerOptions options;
  options.root = scratch.root();
  options.job_id = "golden";
  options.start_node = false;
  options.save.mode = GetParam();
  auto checkpointer = Checkpointer::open(options);
  ASSERT_TRUE(checkpointer.ok()) << checkpointer.status().to_string();
  size_t values = 0;
  for (uint64_t step : {1, 4}) {
    CheckpointReader reader = (*checkpointer)->open_checkpoint(step).value();
    auto all = reader.read_all();
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    for (const auto& [fqn, value] : *all) {
      const uint64_t element_bytes = *dtype_bytes(value.about.dtype);
      const bool is_object = value.about.kind == LayoutEntry::Kind::object;
      ASSERT_EQ(value.bytes.size(), is_object ? storage::golden_object_bytes(fqn)
                                              : whole(value.about.shape).elements() * element_bytes);
      for (uint64_t i = 0; i < value.bytes.size(); ++i) {
        const uint64_t element = is_object ? 0 : i / element_bytes, k = is_object ? i : i % element_bytes;
        ASSERT_EQ(value.bytes[i], storage::golden_byte(fqn, value.about.dtype, element, k))
            << fqn << " " << i;
      }
      ++values;
    }
  }
  EXPECT_EQ(values,
            list_values(*storage::golden_world()).size() + list_values(*storage::golden_rare_world()).size());
}

INSTANTIATE_TEST_SUITE_P(InEachMode, ACheckpointReader,
                         ::testing::Values(SaveMode::collective_free, SaveMode::rank_local,
                                           SaveMode::collective),
                         mode_test_name);

}  // namespace
}  // namespace shoal::testing
