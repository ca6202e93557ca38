// Where a bucket is and with which keys requests are signed, found as AWS's tools find them.
//
// Region, endpoint and credentials come from the environment (AWS_REGION, AWS_DEFAULT_REGION,
// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
// AWS_CA_BUNDLE, AWS_REQUEST_CHECKSUM_CALCULATION), then from the profile AWS_PROFILE ("default") in
// AWS_SHARED_CREDENTIALS_FILE
// (~/.aws/credentials) and AWS_CONFIG_FILE (~/.aws/config).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "shoal/status.h"

namespace shoal::storage {

struct S3Credentials {
  std::string access_key, secret_key;
  std::string session_token = {};  // "": none
  int64_t expires_unix_s = 0;      // 0: not known to end

  bool has_keys_of(const S3Credentials& other) const {
    return access_key == other.access_key && secret_key == other.secret_key &&
           session_token == other.session_token;
  }
};

struct S3Settings {
  std::string bucket;
  std::string prefix;    // of all keys, without '/' at its ends; may be empty
  std::string endpoint;  // "https://s3.eu-west-1.amazonaws.com", without '/' at its end
  std::string region;
  std::string ca_file;  // certificates to trust; "": those of the system
  // true: the bucket is in the path of an address, as most stores besides AWS need; false: in its host name.
  bool is_path_style = false;
  // Each upload has a SHA-256 that the store checks and keeps. Buckets with an object lock require it.
  bool sends_checksums = true;
  // Reads or requests them at each call: another program may renew those in a file.
  std::function<Result<S3Credentials>()> credentials;

  std::string root() const;  // "s3://bucket/prefix"
};

// The value of an environment variable; nullopt: not set.
using Variables = std::function<std::optional<std::string>(const char* name)>;
Variables process_environment();

// `root` is "s3://BUCKET" or "s3://BUCKET/PREFIX". Code::invalid_argument: it is neither.
Result<S3Settings> find_s3_settings(const std::string& root, const Variables& variables);

// A file of sections with "name = value" lines; an indented line belongs to the value above it, and its name
// is then "outer.inner". Comments begin with '#' or ';'.
using ProfileSections = std::map<std::string, std::map<std::string, std::string>>;
ProfileSections parse_profile_file(std::string_view text);

}  // namespace shoal::storage
