// Shoal export: writes the tensors of a checkpoint as plain safetensors files.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "actors/checkpoint_tensors.h"
#include "actors/config.h"
#include "admin/pinned_checkpoint.h"
#include "admin/root_reader.h"
#include "admin/tensor_export.h"
#include "base/root_name.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/not_empty.h"
#include "cli/progress.h"
#include "cli/root/choice_options.h"
#include "gpu/dtype_conversion.h"
#include "storage/files/local_storage.h"
#include "storage/files/posix_file_system.h"

namespace shoal::cli {

namespace {

struct ExportCommand {
  std::string root, folder, format = "huggingface";
  admin::AttemptChoice choice;
  admin::ExportOptions options;
  bool force = false, json = false, progress = false;
};

constexpr const char* kExportFooter =
    "Writes the tensors of the latest checkpoint, or of the chosen one, as whole tensors that the "
    "safetensors\n"
    "package and Hugging Face's libraries read. Objects, such as optimizer options, are left out: choose "
    "the\n"
    "model with --only. Every block that is read is verified against its digest; a damaged one is read from\n"
    "a copy of another rank if there is one. It holds at most 64 MiB of elements, twice that with --dtype,\n"
    "and 8 MiB of blocks, whatever the size of the tensors. The checkpoint is pinned meanwhile, so that no "
    "rule\n"
    "deletes it; if the user may not write to the root, the export continues with a warning.\n"
    "\n"
    "Formats:\n"
    "  huggingface   model-00001-of-0000N.safetensors, and model.safetensors.index.json, which is written "
    "last\n"
    "  safetensors   one file, model.safetensors\n"
    "Each file has a temporary name until it is complete. An export that fails leaves none of its files.\n"
    "--force first removes the files of an earlier export from the folder.\n"
    "\n"
    "Examples:\n"
    "  shoal export /checkpoints/run7 --step 1000 --to /models/run7 --only model --rename model.=\n"
    "  shoal export /checkpoints/run7 --to /models/run7 --dtype bf16 --shard-size 2GB\n"
    "  shoal export /checkpoints/run7 --to /models/run7 --format safetensors --json\n"
    "\n"
    "Exit status: 0 success; 1 the checkpoint is damaged; 2 it does not exist, or the folder cannot be\n"
    "written.";

static_assert(admin::kPinRenewal.count() == actors::Timeouts().lease_renew_ms);

Result<std::unique_ptr<storage::LocalStorage>> open_folder(storage::FileSystem& file_system,
                                                           const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Status(Code::io, fmt::format("cannot create {}: {}", path, error.message()));
  return storage::LocalStorage::open(file_system, path, random_128());
}

// What lies in a root belongs to Shoal: other files there would be taken for its own, or hinder it.
Status check_lies_outside_root(const std::string& folder, const std::string& root) {
  namespace fs = std::filesystem;
  if (base::is_in_object_store(root)) return ok_status();
  std::error_code failed;
  const fs::path inner = fs::weakly_canonical(folder, failed), outer = fs::weakly_canonical(root, failed);
  if (failed || std::ranges::mismatch(outer, inner).in1 != outer.end()) return ok_status();
  return Status(Code::invalid_argument,
                fmt::format("--to {} is in the root {}: name a folder outside of it", folder, root));
}

class TensorsOfCheckpoint final : public admin::TensorReader {
 public:
  TensorsOfCheckpoint(storage::Storage& storage, const storage::Decision& decision)
      : tensors_(storage, std::make_shared<const storage::Decision>(decision)) {}
  Status read(const admin::ExportedTensor& tensor, uint64_t begin, uint64_t end,
              MutableByteView out) override {
    return tensors_.read(tensor.fqn, tensor.stored, tensor.shape, begin, end, out);
  }
  const DamageList& damage() const { return tensors_.damage(); }

 private:
  actors::CheckpointTensors tensors_;
};

struct Exported {
  storage::AttemptView view;
  admin::ExportPlan plan;
  DamageList damage;
  double seconds = 0;
};

Result<Exported> run_export(const ExportCommand& command, const admin::OpenRoot& root) {
  const auto begun = std::chrono::steady_clock::now();
  Exported out;
  SHOAL_ASSIGN_OR_RETURN(const admin::PinnedCheckpoint pinned,
                         admin::pin_checkpoint(root, command.choice, "shoal export"));
  out.view = pinned.view;
  if (!pinned.not_pinned.ok()) {
    fmt::print(stderr,
               "shoal: warning: {} is exported without a pin, and must not be deleted meanwhile: {}\n",
               to_string(out.view.key), pinned.not_pinned.message());
  }
  const storage::Decision& decision = *out.view.decision;
  SHOAL_ASSIGN_OR_RETURN(
      out.plan, admin::plan_export(storage::metadata_of(decision).state_dict_metadata, command.options));
  storage::PosixFileSystem disk;
  SHOAL_ASSIGN_OR_RETURN(auto folder, open_folder(disk, command.folder));
  TensorsOfCheckpoint tensors(*root.storage, decision);
  std::atomic<uint64_t> bytes_done{0};
  ProgressLine progress("export", out.plan.tensor_bytes, bytes_done, command.progress);
  SHOAL_RETURN_IF_ERROR(admin::write_export(out.plan, tensors, *folder, command.force, &bytes_done)
                            .with_context(fmt::format("export of {}", to_string(out.view.key))));
  progress.finish();
  out.damage = tensors.damage();
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return out;
}

nlohmann::ordered_json exported_json(const ExportCommand& command, const admin::OpenRoot& root,
                                     const Exported& exported) {
  nlohmann::ordered_json out;
  out["root"] = root.storage->describe();
  out["step"] = exported.view.key.step;
  out["generation"] = exported.view.key.generation;
  out["attempt"] = exported.view.key.attempt;
  out["folder"] = command.folder;
  out["format"] = command.format;
  out["tensors"] = exported.plan.tensors;
  out["bytes"] = exported.plan.tensor_bytes;
  out["objects_left_out"] = exported.plan.objects_left_out;
  out["damaged_places"] = exported.damage.count;
  out["seconds"] = exported.seconds;
  out["files"] = nlohmann::ordered_json::array();
  for (const admin::ExportedFile& file : exported.plan.files) {
    out["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"tensors", file.tensors.size()}});
  }
  return out;
}

int export_command(const ExportCommand& command) {
  if (base::looks_like_url(command.folder)) {
    return report_unusable(
        Status(Code::invalid_argument,
               fmt::format("--to {} is no local path: shoal export writes to folders of this machine",
                           command.folder)));
  }
  auto root = admin::open_root_for_reading(command.root);
  if (!root.ok()) return report_unusable(root.status());
  const Status outside = check_lies_outside_root(command.folder, root->storage->describe());
  if (!outside.ok()) return report_unusable(outside);
  auto exported = run_export(command, *root);
  if (!exported.ok()) {
    report_unusable(exported.status());
    return exported.status().code() == Code::corrupt ? kExitDamaged : kExitUnusable;
  }
  for (const ReadDamage& damage : exported->damage.named) {
    fmt::print(stderr, "shoal: read from a copy: {}\n", to_string(damage));
  }
  if (command.json) {
    print_json("export", exported_json(command, *root, *exported));
    return kExitOk;
  }
  const admin::ExportPlan& plan = exported->plan;
  fmt::print("{}: {}, {} in {} written to {} in {}{}\n", to_string(exported->view.key),
             admin::counted(plan.tensors, "tensor"), human_bytes(plan.tensor_bytes),
             admin::counted(plan.files.size(), "file"), command.folder, human_seconds(exported->seconds),
             plan.objects_left_out == 0
                 ? ""
                 : fmt::format("; {} left out", admin::counted(plan.objects_left_out, "object")));
  return kExitOk;
}

// "OLD=NEW"; OLD may not be empty.
std::pair<std::string, std::string> parse_rename(const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0) {
    throw CLI::ValidationError("--rename", fmt::format("'{}' is not OLD=NEW", text));
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

DType parse_dtype(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  auto dtype = dtype_from_name(text);
  if (!dtype.ok() || !gpu::converts_between(*dtype, *dtype)) {
    throw CLI::ValidationError("--dtype",
                               fmt::format("'{}' is not f32, f16, bf16, f8_e4m3 or f8_e5m2", text));
  }
  return *dtype;
}

uint64_t parse_shard_size(const std::string& text) {
  auto bytes = parse_bytes(text);
  if (!bytes.ok() || *bytes == 0) {
    throw CLI::ValidationError("--shard-size", fmt::format("'{}' is not a size: write it as in 5GB", text));
  }
  return *bytes;
}

void add_tensor_options(CLI::App& command, admin::ExportOptions* options) {
  command.add_option("--only", options->only, "Only tensors of this subtree, such as model; may be repeated")
      ->check(not_empty, "")
      ->type_name("PREFIX")
      ->allow_extra_args(false);
  command
      .add_option_function<std::vector<std::string>>(
          "--rename",
          [=](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) options->renames.push_back(parse_rename(text));
          },
          "Replace OLD at the beginning of a name by NEW, which may be empty; the first that applies; may be "
          "repeated")
      ->type_name("OLD=NEW")
      ->allow_extra_args(false);
  command
      .add_option_function<std::string>(
          "--dtype", [=](const std::string& text) { options->dtype = parse_dtype(text); },
          "Convert f32, f16, bf16, f8_e4m3 and f8_e5m2 tensors to this type; others stay as they are")
      ->type_name("TYPE");
  command
      .add_option_function<std::string>(
          "--shard-size", [=](const std::string& text) { options->shard_bytes_max = parse_shard_size(text); },
          "Most bytes of tensors in a file of format huggingface (default 5GB); suffixes are powers of 1024")
      ->type_name("BYTES");
}

}  // namespace

void add_export_command(CLI::App& app, Command* chosen) {
  CLI::App* command =
      app.add_subcommand("export", "Write the tensors of a checkpoint as plain safetensors files");
  auto options = std::make_shared<ExportCommand>();
  command->add_option("ROOT", options->root, "Folder of the run, or s3://BUCKET/PREFIX")->required();
  add_choice_options(*command, &options->choice, "Export the newest checkpoint at this step");
  command->add_option("--to", options->folder, "Folder to write to; created if it does not exist")
      ->required()
      ->check(not_empty, "")
      ->type_name("DIR");
  command->add_option("--format", options->format, "huggingface or safetensors")
      ->check(CLI::IsMember({"huggingface", "safetensors"}))
      ->capture_default_str();
  add_tensor_options(*command, &options->options);
  command->add_flag("--force", options->force, "Replace the files of an earlier export");
  command->add_flag("--progress", options->progress,
                    "Print progress to stderr even if it is not a terminal, one line a second");
  command->add_flag("--json", options->json, "One JSON object instead of a line");
  command->footer(kExportFooter);
  command->callback([=] {
    options->options.is_sharded = options->format == "huggingface";
    *chosen = [=] { return export_command(*options); };
  });
}

}  // namespace shoal::cli
