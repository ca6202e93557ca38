// Shoal import: saves a checkpoint of torch.distributed.checkpoint as one of a root.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "admin/dcp/dcp_folder.h"
#include "admin/root_reader.h"
#include "base/root_name.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "shoal/checkpointer.h"
#include "shoal/hash.h"
#include "storage/open_storage.h"

namespace shoal::cli {

namespace {

constexpr uint64_t kImportMemoryBytes = uint64_t{256} << 20;  // the default of --memory

struct ImportCommand {
  std::string folder, root;
  std::optional<uint64_t> step;
  uint64_t memory_bytes = kImportMemoryBytes;
  bool create = false, allow_pickle = false, json = false, progress = false;
};

constexpr const char* kImportFooter =
    "FOLDER is what torch.distributed.checkpoint (DCP) has written: .metadata, and files __0_0.distcp. All "
    "of\n"
    "it is imported, as one new run of the root, and becomes the latest checkpoint there. `shoal verify`,\n"
    "`shoal export` and the Python package read it. No Python is needed, and the folder is only read.\n"
    "\n"
    "A pickle can run code when Python loads it. This command executes nothing: it rejects every class and\n"
    "function that DCP does not need, by its name. Objects that are numbers, text, bytes, None, or lists,\n"
    "tuples and dicts of these become such values. Of others it keeps what torch.load reads with\n"
    "weights_only=True. --allow-pickle keeps all others too, unread.\n"
    "\n"
    "Verifies the CRC-32 of what it reads, and that the chunks tile each tensor, before anything is saved. "
    "It\n"
    "stages through --memory bytes of memory, whatever the size of the folder. A tensor that is not stored "
    "in\n"
    "order is copied to a file without a name in $TMPDIR first.\n"
    "\n"
    "Examples:\n"
    "  shoal import /old/run7/step-1000 /checkpoints/run7 --create     step 1000, from the name\n"
    "  shoal import /old/last /checkpoints/run7 --step 1000 --json\n"
    "\n"
    "Exit status: 0 success; 1 the folder is damaged; 2 it cannot be imported, or the root cannot be "
    "written.";

// What can be rejected before the folder is read.
Status check_places(const ImportCommand& command) {
  if (base::looks_like_url(command.folder)) {
    return Status(Code::invalid_argument,
                  fmt::format("FOLDER {} is no local path: shoal import reads folders of this machine",
                              command.folder));
  }
  if (!base::is_in_object_store(command.root)) {
    if (!base::looks_like_url(command.root)) return ok_status();
    return Status(Code::invalid_argument,
                  fmt::format("ROOT {} is neither a local path nor s3://BUCKET/PREFIX", command.root));
  }
  const Status status = admin::open_root_for_reading(command.root).status();
  if (status.code() != Code::not_found) return status;
  if (command.create) return ok_status();  // its first object makes it
  return Status(Code::not_found, status.message() + ". Use --create for a new root");
}

// The number at the end of the name of the folder: 1000 of "step-1000".
Result<uint64_t> step_in_name(std::string_view folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.remove_suffix(1);
  const std::string_view name = folder.substr(folder.rfind('/') + 1);
  const size_t last = name.find_last_not_of("0123456789");
  const std::string_view digits = last == std::string_view::npos ? name : name.substr(last + 1);
  uint64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    return Status(Code::invalid_argument,
                  fmt::format("the name of {} does not end with a step: pass --step N", folder));
  }
  return step;
}

// The values of a folder for the one rank of the import.
struct ImportState {
  StateDict values;
  std::deque<std::string> objects;  // which the values refer to
  uint64_t tensors = 0, bytes = 0;
};

Status add_items(admin::DcpFolder& folder, bool allow_pickle, std::atomic<uint64_t>* bytes_read,
                 ImportState* state) {
  const Mesh own = Mesh::contiguous({1});
  std::map<size_t, std::vector<StateDict::BoxData>> tensors;
  for (const admin::DcpFolder::Item& item : folder.items()) {
    if (Interrupts::signal_number() != 0) return Status(Code::aborted, "interrupted");
    const admin::DcpValue& value = folder.values()[item.value];
    if (value.is_object) {
      SHOAL_ASSIGN_OR_RETURN(std::string object, folder.read_object(item, allow_pickle));
      state->bytes += object.size();
      state->objects.push_back(std::move(object));
      state->values.add_object(value.fqn, BytesRef(&std::as_const(state->objects).back()), own);
    } else {
      SHOAL_ASSIGN_OR_RETURN(const ByteView elements, folder.read_tensor(item));
      state->bytes += elements.size();
      tensors[item.value].push_back({item.box, MemoryRef(static_cast<const void*>(elements.data()))});
    }
    bytes_read->fetch_add(item.bytes, std::memory_order_relaxed);
  }
  for (auto& [number, boxes] : tensors) {
    const admin::DcpValue& value = folder.values()[number];
    state->values.add_tensor_boxes(value.fqn, value.dtype, value.shape, std::move(boxes));
  }
  state->tensors = tensors.size();
  state->objects.push_back(folder.structure().content);
  state->values.add_object(folder.structure().fqn, BytesRef(&std::as_const(state->objects).back()), own);
  return ok_status();
}

Result<std::unique_ptr<Checkpointer>> open_checkpointer(const ImportCommand& command) {
  if (command.create) SHOAL_RETURN_IF_ERROR(storage::make_root_folder(command.root));
  CheckpointerOptions options;
  options.root = command.root;
  options.job_id = "import-" + random_128().short_hex();
  options.staging_bytes_max = command.memory_bytes;
  options.max_in_flight = 1;
  options.ranks_on_host = 1;
  options.keep_waiting = [] { return Interrupts::signal_number() == 0; };
  return Checkpointer::open(std::move(options));
}

std::string save_text(const Checkpointer& checkpointer, double seconds) {
  const std::optional<Progress> progress = checkpointer.save_progress();
  if (!progress) return "save: committed";
  return ProgressLine::text(fmt::format("save, {}", progress_phase_name(progress->phase)),
                            progress->bytes_done, progress->bytes_total, seconds);
}

struct Imported {
  Metadata metadata;
  uint64_t tensors = 0, objects = 0, bytes = 0;
  double seconds = 0;
};

Result<Imported> run_import(const ImportCommand& command) {
  const auto begun = std::chrono::steady_clock::now();
  SHOAL_RETURN_IF_ERROR(check_places(command));
  uint64_t step = 0;
  if (command.step) {
    step = *command.step;
  } else {
    SHOAL_ASSIGN_OR_RETURN(step, step_in_name(command.folder));
  }
  const Interrupts interrupts;
  SHOAL_ASSIGN_OR_RETURN(admin::DcpFolder folder, admin::DcpFolder::open(command.folder));
  ImportState state;
  {
    std::atomic<uint64_t> bytes_read{0};
    ProgressLine progress("read", folder.archive_bytes(), bytes_read, command.progress);
    SHOAL_RETURN_IF_ERROR(add_items(folder, command.allow_pickle, &bytes_read, &state));
  }
  SHOAL_ASSIGN_OR_RETURN(const auto checkpointer, open_checkpointer(command));
  Imported out;
  {
    const Checkpointer& saves = *checkpointer;
    ProgressLine progress([&](double seconds) { return save_text(saves, seconds); }, command.progress);
    SHOAL_ASSIGN_OR_RETURN(SaveHandle handle, checkpointer->save(step, state.values));
    SHOAL_ASSIGN_OR_RETURN(out.metadata, handle.wait_committed());
  }
  SHOAL_RETURN_IF_ERROR(checkpointer->close());
  out.tensors = state.tensors;
  out.objects = state.objects.size() - 1;
  out.bytes = state.bytes;
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return out;
}

int import_command(const ImportCommand& command) {
  auto imported = run_import(command);
  if (!imported.ok()) {
    report_unusable(imported.status().with_context(fmt::format("import of {}", command.folder)));
    return imported.status().code() == Code::corrupt ? kExitDamaged : kExitUnusable;
  }
  const AttemptKey& key = imported->metadata.key;
  if (command.json) {
    nlohmann::ordered_json out;
    out["folder"] = command.folder;
    out["root"] = command.root;
    out["step"] = key.step;
    out["generation"] = key.generation;
    out["attempt"] = key.attempt;
    out["tensors"] = imported->tensors;
    out["objects"] = imported->objects;
    out["bytes"] = imported->bytes;
    out["seconds"] = imported->seconds;
    print_json("import", out);
    return kExitOk;
  }
  fmt::print("{}: {} and {}, {}, imported from {} in {}\n", to_string(key),
             admin::counted(imported->tensors, "tensor"), admin::counted(imported->objects, "object"),
             human_bytes(imported->bytes), command.folder, human_seconds(imported->seconds));
  return kExitOk;
}

uint64_t parse_memory(const std::string& text) {
  constexpr uint64_t kMemoryBytesMin = uint64_t{64} << 20;
  auto bytes = parse_bytes(text);
  if (!bytes.ok() || *bytes < kMemoryBytesMin) {
    throw CLI::ValidationError("--memory", fmt::format("'{}' is not a size of at least 64MiB", text));
  }
  return *bytes;
}

}  // namespace

void add_import_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("import", "Save a checkpoint of PyTorch DCP as one of a root");
  auto options = std::make_shared<ImportCommand>();
  command->add_option("FOLDER", options->folder, "Folder that DCP has written")->required();
  command->add_option("ROOT", options->root, "Root of the run to save to: a folder, or s3://BUCKET/PREFIX")
      ->required();
  command->add_option("--step", options->step,
                      "Step of the new checkpoint; default: the number at the end of the name of FOLDER");
  command->add_flag("--create", options->create,
                    "Create the folder ROOT if its parent exists, or begin a new prefix");
  command->add_flag("--allow-pickle", options->allow_pickle,
                    "Keep objects that name other classes or functions. To load them can run code");
  command
      ->add_option_function<std::string>(
          "--memory", [=](const std::string& text) { options->memory_bytes = parse_memory(text); },
          "Memory through which the bytes are staged (default 256MiB, at least 64MiB)")
      ->type_name("BYTES");
  command->add_flag("--progress", options->progress,
                    "Print progress to stderr even if it is not a terminal, one line a second");
  command->add_flag("--json", options->json, "One JSON object instead of a line");
  command->footer(kImportFooter);
  command->callback([=] { *chosen = [=] { return import_command(*options); }; });
}

}  // namespace shoal::cli
