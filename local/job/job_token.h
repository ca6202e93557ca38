// The job token: reads it from a file that only its owner may read, or from the environment.
#pragma once

#include <string>

#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::local {

inline constexpr const char* kTokenVariable = "SHOAL_TOKEN";
inline constexpr const char* kTokenFileVariable = "SHOAL_TOKEN_FILE";
inline constexpr size_t kMaxTokenBytes = 4096;

// The contents of the file, without a newline at the end. Code::refused: other users may read it, or it
// belongs to another user. Code::invalid_argument: it is empty, too long or not a regular file.
Result<Bytes> read_token_file(const std::string& path);
// Reads `token_file` if it is not empty, else the file that SHOAL_TOKEN_FILE names, else SHOAL_TOKEN. Returns
// no bytes if none of these is set.
Result<Bytes> find_token(const std::string& token_file);
std::string mint_token();  // 256 random bits, as hex digits

}  // namespace shoal::local
