// The job's secret: from a file that only its owner may read, or from the environment.
#pragma once

#include <string>

#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::local {

inline constexpr const char* kTokenVariable = "SHOAL_TOKEN";
inline constexpr const char* kTokenFileVariable = "SHOAL_TOKEN_FILE";
inline constexpr size_t kMaxTokenBytes = 4096;

// What the file holds, without a newline at its end. Code::refused where others may read it, or it is not
// ours; Code::invalid_argument where it is empty, too long or no regular file.
Result<Bytes> read_token_file(const std::string& path);
// From `token_file` if given, else from the file that SHOAL_TOKEN_FILE names, else from SHOAL_TOKEN; empty
// where none of them is there.
Result<Bytes> find_token(const std::string& token_file);
std::string mint_token();  // 256 random bits, as hex digits

}  // namespace shoal::local
