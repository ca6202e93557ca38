// Names that a trainer gives its values, through client, node and files. A name is saved and loaded exactly,
// or rejected with a one-line error that shows it, and nothing is left half done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Values of all kinds under given names, on the only rank of a job.
struct NamedState {
  explicit NamedState(const std::vector<std::string>& names) : tensors(names.size()), objects(names.size()) {
    const Mesh mesh = Mesh::single(0);
    for (size_t i = 0; i < names.size(); ++i) {
      state.add_tensor(names[i], DType::i32, {3}, mesh, {Placement::shard(0)}, tensors[i].data());
      state.add_object(names[i] + ".o", &objects[i], mesh);
      state.add_rank_object(names[i] + ".r", &objects[i]);
    }
  }
  void fill(int32_t step) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto number = static_cast<int32_t>(i);
      tensors[i] = {step, number, step * number};
      objects[i] = fmt::format("object {} at {}", i, step);
    }
  }
  void forget() {
    for (auto& tensor : tensors) tensor = {};
    for (auto& object : objects) object.clear();
  }
  std::vector<std::array<int32_t, 3>> tensors;
  std::vector<std::string> objects;
  StateDict state;
};

class Names : public ::testing::Test {
 protected:
  Names() : node_(scratch_.host("a"), {"root=" + scratch_.root(), "job=job-1", "world=1"}) {
    EXPECT_NE(node_.address(), "");
    setenv("SHOAL_RUNTIME_DIR", scratch_.host("a").c_str(), 1);
    CheckpointerOptions options;
    options.root = scratch_.root();
    options.job_id = "job-1";
    options.start_node = false;
    checkpointer_ = Checkpointer::open(options).value();
  }

  // A save that is refused at once.
  std::string refusal_of(const StateDict& state) {
    auto saved = checkpointer_->save(1, state);
    EXPECT_FALSE(saved.ok());
    if (saved.ok()) return "";
    EXPECT_EQ(saved.status().code(), Code::invalid_argument) << saved.status().to_string();
    return saved.status().message();
  }
  std::string refusal_of(const std::vector<std::string>& names) {
    return refusal_of(NamedState(names).state);
  }

  Scratch scratch_;
  NodeChild node_;
  std::unique_ptr<Checkpointer> checkpointer_;
};

TEST_F(Names, ThatAreOddAreSavedAndLoadedExactly) {
  NamedState state({"/etc/passwd",
                    ".",
                    "a/b",
                    "a//b",
                    "C:\\a",
                    "quote\"d",
                    "it's",
                    "w",
                    "W",
                    "ﬀ",
                    "ff",
                    "größe",
                    "模型.层",
                    " ",
                    "a b ",
                    "x#1",
                    "x",
                    "manifest.shoal",
                    "%s%n",
                    "{\"a\":[",
                    "__METADATA__",
                    "__metadata__2",
                    "rank-00000.safetensors",
                    std::string(4000, 'n'),
                    std::string(4000, 'N')});
  state.fill(7);
  auto saved = checkpointer_->save(7, state.state);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  auto committed = saved->wait_committed(kPatience);
  ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  EXPECT_EQ(committed->state_dict_metadata.size(), 3 * state.tensors.size());
  state.forget();
  auto loaded = checkpointer_->load(state.state);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  for (size_t i = 0; i < state.tensors.size(); ++i) {
    const auto number = static_cast<int32_t>(i);
    EXPECT_EQ(state.tensors[i], (std::array<int32_t, 3>{7, number, 7 * number}));
    EXPECT_EQ(state.objects[i], fmt::format("object {} at 7", i));
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("etc"))) << "no name becomes a path";
}

int shards_in(const std::string& root) {
  int shards = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    shards += entry.path().extension() == ".safetensors";
  }
  return shards;
}

TEST_F(Names, ThatAreNoneAreShownInOneLineAndNothingIsWritten) {
  struct Bad {
    std::string name, shown;
  };
  using namespace std::string_literals;
  const std::vector<Bad> bad = {{"", "''"},
                                {"a\0b"s, "'a\\x00b'"},
                                {"a\nb", "'a\\x0ab'"},
                                {"a\x7f", "'a\\x7f'"},
                                {"\xff\xfe", "'\\xff\\xfe'"},
                                {"a\xc3", "'a\\xc3'"},
                                {"\xed\xa0\x80", "'\\xed\\xa0\\x80'"},
                                {"__metadata__", "'__metadata__'"},
                                {"..", "'..'"},
                                {"../../etc/passwd", "'../../etc/passwd'"},
                                {"a/../b", "'a/../b'"},
                                {std::string(64 << 10, 'x'), "65536 bytes"}};
  for (const Bad& each : bad) {
    StateDict tensor, value, object, rank_object, boxes;
    float data = 0;
    std::string bytes;
    tensor.add_tensor(each.name, DType::f32, {1}, Mesh::single(0), {Placement::replicate()}, &data);
    value.add_value(each.name, DType::f32, {}, &data, std::nullopt);
    object.add_object(each.name, &bytes, Mesh::single(0));
    rank_object.add_rank_object(each.name, &bytes);
    boxes.add_tensor_boxes(each.name, DType::f32, {1}, {{Box{{0}, {1}}, &data}});
    for (const StateDict* state : {&tensor, &value, &object, &rank_object, &boxes}) {
      EXPECT_THAT(refusal_of(*state), AllOf(HasSubstr(each.shown), Not(HasSubstr("\n"))));
      EXPECT_EQ(checkpointer_->load(*state).status().code(), Code::invalid_argument);
    }
  }
  EXPECT_EQ(shards_in(scratch_.root()), 0) << "of an attempt that is refused there is a tombstone at most";
  NamedState good({"good"});
  auto saved = checkpointer_->save(1, good.state);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_TRUE(saved->wait_committed(kPatience).ok());
}

TEST_F(Names, ThatAreGivenTwiceAreRefused) {
  EXPECT_THAT(refusal_of({"w", "v", "w"}), HasSubstr("'w' is given twice"));
  float data = 0;
  std::string bytes;
  StateDict collides;
  collides.add_rank_object("rng", &bytes);
  collides.add_tensor("rng@rank0", DType::f32, {1}, Mesh::single(0), {Placement::replicate()}, &data);
  EXPECT_THAT(refusal_of(collides), HasSubstr("'rng@rank0' is given twice"));
}

TEST_F(Names, OfAnotherCaseAreOtherValues) {
  NamedState saved({"layer.W"}), wanted({"layer.w"});
  saved.fill(1);
  auto handle = checkpointer_->save(1, saved.state);
  ASSERT_TRUE(handle.ok() && handle->wait_committed(kPatience).ok());
  Status missing = checkpointer_->load(wanted.state).status();
  EXPECT_FALSE(missing.ok());
  EXPECT_THAT(missing.message(), HasSubstr("layer.w"));
}

// One rank gives an invalid name. Its save fails at once, and no rank waits for it beyond the deadline.
TEST(NamesOfOneRank, ThatAreRefusedEndTheSaveOfTheOthersByName) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=2",
                                     "attempt_deadline_ms=1000", "node_deadline_ms=1500"});
  ASSERT_NE(node.address(), "");
  Trainer good(scratch, "a", 0, 2), bad(scratch, "a", 1, 2);
  ASSERT_TRUE(good.opened.ok() && bad.opened.ok());
  StateDict state = bad.state;
  state.add_rank_object("line\nbreak", &bad.rng);
  auto one = good.save(1);
  ASSERT_TRUE(one.ok());
  EXPECT_THAT(bad.checkpointer().save(1, state).status().message(), HasSubstr("'line\\x0abreak'"));
  auto decided = one->wait_committed(kPatience);
  EXPECT_EQ(decided.status().code(), Code::aborted) << decided.status().to_string();
  auto second = good.save(2), other = bad.save(2);
  ASSERT_TRUE(second.ok() && other.ok());
  EXPECT_TRUE(second->wait_committed(kPatience).ok()) << second->error().to_string();
}

}  // namespace
}  // namespace shoal::testing
