#include "local/job/job_token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/owned_fd.h"
#include "local/socket/socket.h"
#include "shoal/hash.h"

namespace shoal::local {

namespace {

Status check_owner_and_mode(const std::string& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    return Status(Code::invalid_argument, fmt::format("token file {} is not a regular file", path));
  }
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return Status(
        Code::refused,
        fmt::format("token file {} belongs to user {}: it must belong to you or to root", path, info.st_uid));
  }
  if ((info.st_mode & 077) != 0) {
    return Status(Code::refused,
                  fmt::format("token file {} has mode {:04o}, so other users can use it: run chmod 600 {}",
                              path, info.st_mode & 07777, path));
  }
  return ok_status();
}

Bytes bytes_of(std::string_view text) {
  ByteView view = as_view(text);
  return Bytes(view.begin(), view.end());
}

}  // namespace

Result<Bytes> read_token_file(const std::string& path) {
  base::OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0) {
    return Status(errno == ENOENT ? Code::not_found : Code::refused,
                  fmt::format("token file {}: {}", path, std::strerror(errno)));
  }
  SHOAL_RETURN_IF_ERROR(check_owner_and_mode(path, info));
  std::string text(kMaxTokenBytes + 1, '\0');
  ssize_t size = read(file.get(), text.data(), text.size());
  if (size < 0) return Status(Code::io, fmt::format("token file {}: {}", path, std::strerror(errno)));
  text.resize(static_cast<size_t>(size));
  if (text.size() > kMaxTokenBytes) {
    return Status(Code::invalid_argument,
                  fmt::format("token file {} has more than {} bytes", path, kMaxTokenBytes));
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.empty()) return Status(Code::invalid_argument, fmt::format("token file {} is empty", path));
  return bytes_of(text);
}

Result<Bytes> find_token(const std::string& token_file) {
  if (!token_file.empty()) return read_token_file(token_file);
  const char* file_variable = std::getenv(kTokenFileVariable);
  if (file_variable != nullptr && *file_variable != '\0') return read_token_file(file_variable);
  const char* variable = std::getenv(kTokenVariable);
  if (variable == nullptr) return Bytes();
  std::string_view text = variable;
  if (text.size() > kMaxTokenBytes) {
    return Status(Code::invalid_argument,
                  fmt::format("{} has more than {} bytes", kTokenVariable, kMaxTokenBytes));
  }
  return bytes_of(text);
}

std::string mint_token() {
  return random_128().to_hex() + random_128().to_hex();
}

}  // namespace shoal::local
