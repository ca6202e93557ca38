// CheckpointerOptions::from_environment.
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "client/checkpointer.h"

namespace shoal {

namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

struct RankVariables {
  const char* rank;
  const char* world_size;
};
// torchrun and shoal launch, Open MPI, Slurm.
constexpr RankVariables kRankVariables[] = {{"RANK", "WORLD_SIZE"},
                                            {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                            {"SLURM_PROCID", "SLURM_NTASKS"}};

Result<uint32_t> number_in(const char* name) {
  const std::optional<std::string> text = variable(name);
  if (!text) return Status(Code::invalid_argument, fmt::format("{} is not set", name));
  uint32_t value = 0;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) {
    return Status(Code::invalid_argument, fmt::format("{} is '{}', not a number", name, *text));
  }
  return value;
}

// A requeued job keeps its number, so that the restart count belongs to the token.
std::string job_id_of_environment() {
  if (auto given = variable("SHOAL_JOB_ID")) return *given;
  auto job = variable("SLURM_JOB_ID");
  if (!job) return "";
  return fmt::format("slurm-{}-{}-{}", *job, variable("SLURM_STEP_ID").value_or("0"),
                     variable("SLURM_RESTART_COUNT").value_or("0"));
}

}  // namespace

Result<CheckpointerOptions> CheckpointerOptions::from_environment() {
  CheckpointerOptions options;
  const std::optional<std::string> root = variable("SHOAL_ROOT");
  if (!root) return Status(Code::invalid_argument, "SHOAL_ROOT is not set");
  options.root = *root;
  for (const RankVariables& names : kRankVariables) {
    if (!variable(names.rank) && !variable(names.world_size)) continue;
    SHOAL_ASSIGN_OR_RETURN(options.rank, number_in(names.rank));
    SHOAL_ASSIGN_OR_RETURN(options.world_size, number_in(names.world_size));
    if (options.world_size == 0 || options.rank >= options.world_size) {
      return Status(Code::invalid_argument, fmt::format("{} is {}, but {} is {}", names.rank, options.rank,
                                                        names.world_size, options.world_size));
    }
    break;
  }
  options.job_id = job_id_of_environment();
  if (options.job_id.empty() && options.world_size != 1) {
    return Status(
        Code::invalid_argument,
        "SHOAL_JOB_ID is not set: all ranks of one incarnation of the job need the same, never used "
        "again");
  }
  options.coordinator = variable("SHOAL_COORDINATOR").value_or("");
  return options;
}

}  // namespace shoal
