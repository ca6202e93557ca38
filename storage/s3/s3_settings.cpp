#include "storage/s3/s3_settings.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/root_name.h"
#include "storage/s3/s3_credentials.h"

namespace shoal::storage {

namespace {

constexpr const char* kDefaultRegion = "us-east-1";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

ProfileSections read_profile_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return parse_profile_file(text.str());
}

// The first of these variables that is set and not empty.
std::string first_set(const Variables& variables, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = variables(name); value && !value->empty()) return *value;
  }
  return {};
}

// The lines of a profile in both files; credentials win.
std::map<std::string, std::string> read_profile(const Variables& variables, std::string* name) {
  *name = first_set(variables, {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"});
  if (name->empty()) *name = "default";
  const std::string home = first_set(variables, {"HOME"});
  std::string credentials = first_set(variables, {"AWS_SHARED_CREDENTIALS_FILE"});
  std::string config = first_set(variables, {"AWS_CONFIG_FILE"});
  if (credentials.empty()) credentials = home + "/.aws/credentials";
  if (config.empty()) config = home + "/.aws/config";
  std::map<std::string, std::string> profile = read_profile_file(credentials)[*name];
  ProfileSections sections = read_profile_file(config);
  profile.merge(sections["profile " + *name]);
  if (*name == "default") profile.merge(sections["default"]);
  return profile;
}

bool is_bucket_name(std::string_view name) {
  return name.size() >= 3 && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
         });
}

}  // namespace

std::string S3Settings::root() const {
  return prefix.empty() ? "s3://" + bucket : "s3://" + bucket + "/" + prefix;
}

Variables process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

ProfileSections parse_profile_file(std::string_view text) {
  ProfileSections out;
  std::string section, outer;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end), content = trimmed(line);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (content.empty() || content.starts_with('#') || content.starts_with(';')) continue;
    if (content.starts_with('[')) {
      section = trimmed(content.substr(1, content.find(']') - 1));
      outer.clear();
      continue;
    }
    const size_t equals = content.find('=');
    if (equals == std::string_view::npos) continue;
    std::string name(trimmed(content.substr(0, equals)));
    const std::string value(trimmed(content.substr(equals + 1)));
    const bool is_inner = line.starts_with(' ') || line.starts_with('\t');
    if (!is_inner) outer = value.empty() ? name + "." : "";
    if (is_inner) name = outer + name;
    out[section][name] = value;
  }
  return out;
}

Result<S3Settings> find_s3_settings(const std::string& root, const Variables& variables) {
  SHOAL_ASSIGN_OR_RETURN(const std::string normal, base::normal_root(root));
  std::string_view rest = std::string_view(normal).substr(base::kS3Scheme.size());
  S3Settings out;
  const size_t slash = std::min(rest.find('/'), rest.size());
  out.bucket = rest.substr(0, slash);
  out.prefix = rest.substr(std::min(slash + 1, rest.size()));
  if (!is_bucket_name(out.bucket)) {
    return Status(Code::invalid_argument,
                  fmt::format("root {}: '{}' is not a bucket's name; a root in an object store is "
                              "s3://BUCKET or s3://BUCKET/PREFIX",
                              root, out.bucket));
  }
  std::string name;
  std::map<std::string, std::string> profile = read_profile(variables, &name);
  out.region = first_set(variables, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (out.region.empty()) out.region = profile["region"];
  if (out.region.empty()) out.region = kDefaultRegion;
  out.endpoint = first_set(variables, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (out.endpoint.empty()) out.endpoint = profile["endpoint_url"];
  const bool is_aws = out.endpoint.empty();
  const char* const top = out.region.starts_with("cn-") ? ".cn" : "";
  if (is_aws) out.endpoint = fmt::format("https://s3.{}.amazonaws.com{}", out.region, top);
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  if (!std::all_of(out.region.begin(), out.region.end(), is_plain)) {
    return Status(Code::invalid_argument,
                  fmt::format("the region '{}' of root {} may have [a-z0-9-] only", out.region, root));
  }
  // An error names the endpoint, and must not show a password.
  if (out.endpoint.find('@') != std::string::npos) {
    return Status(Code::invalid_argument,
                  fmt::format("the endpoint of root {} may not have a user or a password in it", root));
  }
  while (out.endpoint.ends_with('/')) out.endpoint.pop_back();
  if (!out.endpoint.starts_with("https://") && !out.endpoint.starts_with("http://")) {
    return Status(
        Code::invalid_argument,
        fmt::format("the endpoint '{}' of root {} must begin with https:// or http://", out.endpoint, root));
  }
  // A certificate for *.s3.REGION.amazonaws.com does not cover a bucket whose name has dots.
  out.is_path_style = !is_aws || out.bucket.find_first_of("._") != std::string::npos;
  const std::string style = profile["s3.addressing_style"];
  if (style == "path" || style == "virtual") out.is_path_style = style == "path";
  std::string checksums = first_set(variables, {"AWS_REQUEST_CHECKSUM_CALCULATION"});
  if (checksums.empty()) checksums = profile["request_checksum_calculation"];
  out.sends_checksums = strcasecmp(checksums.c_str(), "when_required") != 0;
  out.ca_file = first_set(variables, {"AWS_CA_BUNDLE"});
  if (out.ca_file.empty()) out.ca_file = profile["ca_bundle"];
  out.credentials = [variables, region = out.region, ca_file = out.ca_file] {
    CredentialSources from{variables, {}, "", region, ca_file};
    from.profile = read_profile(variables, &from.profile_name);
    return find_s3_credentials(from);
  };
  return out;
}

}  // namespace shoal::storage
