// Reads shoal.toml. toml++ is used as headers only, so that the client needs no further library at run time.
#define TOML_HEADER_ONLY 1

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/root_name.h"
#include "local/settings/settings.h"

namespace shoal::local {

namespace {

Status at_line(const std::string& path, uint32_t line, std::string_view what) {
  return Status(Code::invalid_argument, fmt::format("{}:{}: {}", path, line, what));
}

// nullopt: the file does not exist.
Result<std::optional<std::string>> read_settings_file(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<std::string>();
    return Status(Code::io, fmt::format("{}: {}", path, std::strerror(errno)));
  }
  // Opening a pipe would wait for a process that writes to it.
  if (!S_ISREG(found.st_mode)) return Status(Code::io, path + ": this file cannot be read");
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxSettingsFileBytes + 1, '\0');
  if (!file) return Status(Code::io, path + ": this file cannot be read");
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Status(Code::io, path + ": this file cannot be read");
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxSettingsFileBytes) {
    return Status(Code::invalid_argument,
                  fmt::format("{}: it has more than {} bytes, so it is not a file of settings", path,
                              kMaxSettingsFileBytes));
  }
  return std::optional(std::move(text));
}

// The value as on a command line; nullopt: it is neither an integer nor a string.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  return std::nullopt;
}

bool belongs_to_us(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && (found.st_uid == ::geteuid() || found.st_uid == 0);
}

}  // namespace

Status Settings::add_file(const std::string& path, bool is_trusted) {
  SHOAL_ASSIGN_OR_RETURN(const std::optional<std::string> text, read_settings_file(path));
  if (!text) return ok_status();
  toml::table table;
  try {
    table = toml::parse(*text);
  } catch (const toml::parse_error& error) {
    return at_line(path, error.source().begin.line, error.description());
  }
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const uint32_t line = key.source().begin.line;
    const std::optional<std::string> value = text_of(node);
    const Setting* setting = find_setting(name);
    if (!value && setting == nullptr && node.is_table()) {
      return at_line(path, line, fmt::format("[{}]: a file of settings must not have sections", name));
    }
    if (!value) {
      return at_line(path, line,
                     fmt::format("the value of {} must be a whole number, or text in quotes", name));
    }
    if (setting != nullptr && setting->is_environment_only() && !is_trusted) {
      return at_line(
          path, line,
          fmt::format(
              "{} may not be set here: set it by a flag, by {}, or by {} in the working folder if that file "
              "is yours. Other users, who may write to this file, must not choose your files and ports",
              name, setting->variable(), kSettingsFile));
    }
    SHOAL_RETURN_IF_ERROR(set(name, *value, fmt::format("{}:{}", path, line)));
  }
  return ok_status();
}

Status Settings::add_files(const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::current_path(error);
  // A root in an object store has no such file.
  const bool has_file = !root.empty() && !base::is_in_object_store(root);
  const std::string of_root = has_file ? (fs::path(root) / kSettingsFile).string() : "";
  if (!error) {
    const std::string here = (folder / kSettingsFile).string();
    std::error_code either_lacks;
    if (of_root.empty() || !fs::equivalent(here, of_root, either_lacks)) {
      SHOAL_RETURN_IF_ERROR(add_file(here, belongs_to_us(here)));
    }
  }
  return of_root.empty() ? ok_status() : add_file(of_root, false);
}

}  // namespace shoal::local
