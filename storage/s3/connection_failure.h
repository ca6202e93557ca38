// Why a request by libcurl had no answer, for an error: what happened, and what the user may do.
#pragma once

#include <string>

namespace shoal::storage {

struct ConnectionFailure {
  std::string why;  // one line
  // The certificate of the other side is not trusted, or those to trust cannot be read. Only the user can
  // mend that.
  bool is_untrusted = false;
};

// `handle` and `code` are a CURL* and the CURLcode of its last transfer, `detail` its error buffer.
// `ca_file`: the file that it was to trust; "": libcurl's own.
ConnectionFailure connection_failure(void* handle, int code, const char* detail, const std::string& ca_file);

}  // namespace shoal::storage
