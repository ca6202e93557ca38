// Where credentials come from, in the order of AWS's tools: the environment, a web identity, the profile, the
// container, the instance. docs/how-to/object-storage.md, "Credentials".
#pragma once

#include "storage/s3/s3_settings.h"

namespace shoal::storage {

// How long before their end credentials are renewed.
inline constexpr int64_t kRenewBeforeS = 300;

struct CredentialSources {
  Variables variables;
  ProfileSections::mapped_type profile;
  std::string profile_name, region, ca_file;
};
// Code::refused: no source has any; the message names what to set. Any other error: a source that is set up
// failed, and names itself.
Result<S3Credentials> find_s3_credentials(const CredentialSources& from);

// Seconds since 1970 of a time such as "2026-11-21T04:56:44Z". 0: it is none.
int64_t parse_utc_time(const std::string& text);

}  // namespace shoal::storage
