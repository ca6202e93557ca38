// Shoal diff: says which tensors and objects of two checkpoints differ.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/checkpoint_tensors.h"
#include "admin/checkpoint_diff.h"
#include "admin/pinned_checkpoint.h"
#include "admin/root_reader.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/not_empty.h"
#include "cli/progress.h"

namespace shoal::cli {

namespace {

struct DiffCommand {
  std::string root_a, root_b;
  std::vector<std::string> steps, attempts;  // of A and B; one is for both
  admin::AttemptChoice a, b;
  bool json = false, progress = false;
};

constexpr const char* kDiffFooter =
    "Compares the values of two checkpoints, whatever the shardings are: which tensors and objects only one\n"
    "of them has, which have another type or shape, and where the bytes differ: how many elements, the "
    "first\n"
    "of them, and for numbers the largest absolute difference. --step and --attempt may be given twice: for\n"
    "A and for B. Without a step it takes the latest checkpoint of a root. The metadata of the save and the\n"
    "order of the files do not count.\n"
    "\n"
    "Where both have stored a tensor in the same pieces, blocks with equal digests count as equal and are "
    "not\n"
    "read. Other bytes are read, verified and compared; a damaged block is read from a copy of another rank\n"
    "if there is one. It holds at most 64 MiB of elements of each side. Both checkpoints are pinned\n"
    "meanwhile; if the user may not write to a root, the comparison continues with a warning.\n"
    "\n"
    "Examples:\n"
    "  shoal diff /checkpoints/run7 --step 1000 --step 2000      two checkpoints of a root\n"
    "  shoal diff /checkpoints/run7 /backup/run7 --step 1000     a checkpoint and its copy\n"
    "  shoal diff /checkpoints/run7 /checkpoints/run8            the latest of each\n"
    "  shoal diff /checkpoints/run7 --step 9 --attempt g1a1 --attempt g2a1   two saves of one step\n"
    "\n"
    "Exit status: 0 the same; 1 different; 2 a checkpoint does not exist, is damaged or cannot be read.";

class ContentsOfCheckpoint final : public admin::CheckpointContents {
 public:
  ContentsOfCheckpoint(storage::Storage& storage, const storage::Decision& decision)
      : tensors_(storage, std::make_shared<const storage::Decision>(decision)) {}

  Result<std::vector<Piece>> pieces(const TensorMetadata& value) override {
    SHOAL_ASSIGN_OR_RETURN(auto stored, tensors_.pieces(value.fqn, value.kind, value.dtype, value.shape));
    std::vector<Piece> out;
    for (auto& piece : stored) out.push_back({std::move(piece.box), piece.bytes, std::move(piece.digests)});
    return out;
  }
  Status read(const TensorMetadata& tensor, const std::vector<Box>& boxes, MutableByteView out) override {
    return tensors_.read_boxes(tensor.fqn, tensor.dtype, tensor.shape, boxes, out);
  }
  Status read_object(const TensorMetadata& object, uint64_t begin, uint64_t end,
                     MutableByteView out) override {
    return tensors_.read_object(object.fqn, begin, end, out);
  }
  const DamageList& damage() const { return tensors_.damage(); }

 private:
  actors::CheckpointTensors tensors_;
};

// One of the two checkpoints.
struct DiffedCheckpoint {
  admin::OpenRoot root;
  admin::PinnedCheckpoint pinned;
  std::unique_ptr<ContentsOfCheckpoint> contents;
  admin::DiffSide side;

  const AttemptKey& key() const { return pinned.view.key; }
  std::string name() const { return fmt::format("{} of {}", to_string(key()), root.storage->describe()); }
};

Result<std::unique_ptr<DiffedCheckpoint>> open_checkpoint(const std::string& path,
                                                          const admin::AttemptChoice& choice) {
  auto out = std::make_unique<DiffedCheckpoint>();
  SHOAL_ASSIGN_OR_RETURN(out->root, admin::open_root_for_reading(path));
  SHOAL_ASSIGN_OR_RETURN(out->pinned, admin::pin_checkpoint(out->root, choice, "shoal diff"));
  if (!out->pinned.not_pinned.ok()) {
    fmt::print(stderr,
               "shoal: warning: {} is compared without a pin, and must not be deleted meanwhile: {}\n",
               to_string(out->key()), out->pinned.not_pinned.message());
  }
  const storage::Decision& decision = *out->pinned.view.decision;
  out->contents = std::make_unique<ContentsOfCheckpoint>(*out->root.storage, decision);
  Metadata metadata = storage::metadata_of(decision);
  out->side = {std::move(metadata.state_dict_metadata), metadata.contents_digest, out->contents.get()};
  return out;
}

std::string type_text(const TensorMetadata& value) {
  if (value.kind == LayoutEntry::Kind::object) return "an object";
  return fmt::format("{}[{}]", dtype_name(value.dtype), fmt::join(value.shape, ", "));
}

std::string bytes_text(const admin::ValueDifference& found) {
  const bool is_object = found.a.kind == LayoutEntry::Kind::object;
  std::string text = fmt::format("{} of {} {} differ, the first at ", found.different_elements,
                                 found.elements, is_object ? "bytes" : "elements");
  text += is_object ? fmt::format("byte {}", found.first_index.front())
                    : fmt::format("[{}]", fmt::join(found.first_index, ", "));
  if (found.a_bytes != found.b_bytes) {
    text += fmt::format("; {} bytes in A, {} in B", found.a_bytes, found.b_bytes);
  }
  if (found.largest_difference) text += fmt::format("; largest difference {:g}", *found.largest_difference);
  if (found.not_numbers != 0) text += fmt::format("; {} with NaN", found.not_numbers);
  return text;
}

std::string difference_text(const admin::ValueDifference& found) {
  switch (found.what) {
    case admin::ValueDifference::What::only_in_a:
      return "only in A: " + type_text(found.a);
    case admin::ValueDifference::What::only_in_b:
      return "only in B: " + type_text(found.b);
    case admin::ValueDifference::What::bytes:
      return bytes_text(found);
    default:
      return fmt::format("{} in A, {} in B", type_text(found.a), type_text(found.b));
  }
}

nlohmann::ordered_json type_json(const TensorMetadata& value) {
  if (value.kind == LayoutEntry::Kind::object) return {{"kind", "object"}};
  return {{"kind", "tensor"}, {"dtype", dtype_name(value.dtype)}, {"shape", value.shape}};
}

nlohmann::ordered_json difference_json(const admin::ValueDifference& found) {
  using What = admin::ValueDifference::What;
  nlohmann::ordered_json out;
  out["fqn"] = found.fqn;
  out["what"] = admin::difference_name(found.what);
  if (found.what != What::only_in_b) out["a"] = type_json(found.a);
  if (found.what != What::only_in_a) out["b"] = type_json(found.b);
  if (found.what != What::bytes) return out;
  out["elements"] = found.elements;
  out["different_elements"] = found.different_elements;
  out["first_index"] = found.first_index;
  if (found.largest_difference && std::isfinite(*found.largest_difference)) {
    out["largest_difference"] = *found.largest_difference;
  } else if (found.largest_difference) {
    out["largest_difference"] = "inf";
  }
  if (found.not_numbers != 0) out["not_numbers"] = found.not_numbers;
  if (found.a.kind != LayoutEntry::Kind::object) return out;
  out["a"]["bytes"] = found.a_bytes;
  out["b"]["bytes"] = found.b_bytes;
  return out;
}

void print_diff(const DiffCommand& command, const DiffedCheckpoint& a, const DiffedCheckpoint& b,
                const admin::DiffReport& report) {
  if (command.json) {
    nlohmann::ordered_json out;
    for (const auto& [name, checkpoint] : {std::pair("a", &a), std::pair("b", &b)}) {
      out[name] = {{"root", checkpoint->root.storage->describe()}};
      out[name].update(key_json(checkpoint->key()));
    }
    out["same"] = report.same();
    out["values"] = report.values;
    out["bytes_read"] = report.bytes_read;
    out["bytes_equal_by_digest"] = report.bytes_known_equal;
    out["differences"] = nlohmann::ordered_json::array();
    for (const admin::ValueDifference& found : report.differences) {
      out["differences"].push_back(difference_json(found));
    }
    print_json("diff", out);
    return;
  }
  for (const admin::ValueDifference& found : report.differences) {
    fmt::print("{}: {}\n", found.fqn, difference_text(found));
  }
  const std::string values = admin::counted(report.values, "value");
  fmt::print(
      "{}: A is {}, B is {}; {} compared, {} known to be equal by digest\n",
      report.same() ? "same, " + values : fmt::format("{} of {} differ", report.differences.size(), values),
      a.name(), b.name(), human_bytes(report.bytes_read), human_bytes(report.bytes_known_equal));
}

int diff_command(const DiffCommand& command) {
  auto a = open_checkpoint(command.root_a, command.a);
  if (!a.ok()) return report_unusable(a.status().with_context("A"));
  auto b = open_checkpoint(command.root_b, command.b);
  if (!b.ok()) return report_unusable(b.status().with_context("B"));
  const Interrupts interrupts;
  std::atomic<uint64_t> bytes_done{0};
  ProgressLine progress("diff", admin::bytes_to_compare((*a)->side, (*b)->side), bytes_done,
                        command.progress);
  auto report = admin::compare_checkpoints((*a)->side, (*b)->side,
                                           {[] { return Interrupts::signal_number() == 0; }}, &bytes_done);
  progress.finish();
  for (const auto* side : {&*a, &*b}) {
    for (const ReadDamage& damage : (*side)->contents->damage().named) {
      fmt::print(stderr, "shoal: read from a copy: {}\n", to_string(damage));
    }
  }
  if (!report.ok()) return report_unusable(report.status());
  print_diff(command, **a, **b, *report);
  return report->same() ? kExitOk : kExitDifferent;
}

// The first of one or two is for A, the last for B.
void choose_side(const DiffCommand& command, bool is_a, admin::AttemptChoice* choice) {
  const auto pick = [is_a](const std::vector<std::string>& given) {
    return is_a ? given.front() : given.back();
  };
  if (!command.steps.empty()) {
    if (Status taken = admin::choose_step(pick(command.steps), choice); !taken.ok()) {
      throw CLI::ValidationError("--step", std::string(taken.message()));
    }
  }
  if (!command.attempts.empty()) choice->attempt = pick(command.attempts);
}

void complete_diff(DiffCommand* command) {
  if (command->steps.size() > 2) throw CLI::ValidationError("--step", "it may be given twice at most");
  if (command->attempts.size() > 2) throw CLI::ValidationError("--attempt", "it may be given twice at most");
  const bool names_two = command->steps.size() == 2 || command->attempts.size() == 2;
  if (command->root_b.empty() && !names_two) {
    throw CLI::ValidationError("B", "name two checkpoints: two roots, or --step twice");
  }
  if (command->root_b.empty()) command->root_b = command->root_a;
  choose_side(*command, true, &command->a);
  choose_side(*command, false, &command->b);
}

}  // namespace

void add_diff_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("diff", "Compare the tensors and objects of two checkpoints");
  auto options = std::make_shared<DiffCommand>();
  command->add_option("A", options->root_a, "Folder of a run")->required();
  command->add_option("B", options->root_b, "Folder of another run; without it, the same run");
  command
      ->add_option("--step", options->steps,
                   "Compare the newest checkpoints at this step, or at these of A and B; or tags")
      ->type_name("N")
      ->allow_extra_args(false);
  command
      ->add_option("--attempt", options->attempts,
                   "Only this attempt at the step, such as g3a1, or these of A and B")
      ->check(not_empty, "")
      ->allow_extra_args(false);
  command->add_flag("--progress", options->progress,
                    "Print progress to stderr even if it is not a terminal, one line a second");
  command->add_flag("--json", options->json, "One JSON object instead of lines");
  command->footer(kDiffFooter);
  command->callback([=] {
    complete_diff(options.get());
    *chosen = [=] { return diff_command(*options); };
  });
}

}  // namespace shoal::cli
