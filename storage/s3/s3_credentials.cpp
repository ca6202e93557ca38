#include "storage/s3/s3_credentials.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "shoal/hash.h"
#include "storage/s3/connection_failure.h"
#include "storage/s3/s3_client.h"
#include "storage/s3/xml.h"

namespace shoal::storage {

namespace {

constexpr size_t kServiceBytesMax = 64 << 10;  // of a file with a token
constexpr long kServiceTimeoutMs = 10'000;     // of STS and of a container's service
constexpr long kInstanceTimeoutMs = 1'000;     // where there is no instance, nobody answers
constexpr int kServiceTries = 3;

std::string set_value(const Variables& variables, const char* name) {
  return variables(name).value_or("");
}

// From the environment, else from the profile.
std::string set_value(const CredentialSources& from, const char* variable, const char* in_profile) {
  const std::string value = set_value(from.variables, variable);
  if (!value.empty()) return value;
  const auto found = from.profile.find(in_profile);
  return found == from.profile.end() ? "" : found->second;
}

struct ServiceRequest {
  std::string url;
  const char* method = "GET";
  std::vector<std::string> headers = {};
  std::string body = {};  // of a POST
  std::string ca_file = {};
  long timeout_ms = kServiceTimeoutMs;
  bool uses_proxy = false;  // those on the way to a metadata service are of no use
};

struct ServiceAnswer {
  long status = 0;
  std::string body;
};

size_t append_answer(char* data, size_t, size_t bytes, void* self) {
  auto& body = *static_cast<std::string*>(self);
  if (body.size() + bytes > kServiceBytesMax) return 0;
  body.append(data, bytes);
  return bytes;
}

Result<ServiceAnswer> ask_once(const ServiceRequest& request) {
  std::unique_ptr<CURL, void (*)(CURL*)> handle(curl_easy_init(), curl_easy_cleanup);
  SHOAL_CHECK(handle != nullptr);
  curl_slist* headers = nullptr;
  for (const std::string& header : request.headers) headers = curl_slist_append(headers, header.c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> owned(headers, curl_slist_free_all);
  ServiceAnswer answer;
  char text[CURL_ERROR_SIZE] = {};
  curl_easy_setopt(handle.get(), CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(handle.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_ERRORBUFFER, text);
  curl_easy_setopt(handle.get(), CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(handle.get(), CURLOPT_CONNECTTIMEOUT_MS, request.timeout_ms);
  curl_easy_setopt(handle.get(), CURLOPT_TIMEOUT_MS, request.timeout_ms);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, append_answer);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &answer.body);
  if (!request.uses_proxy) curl_easy_setopt(handle.get(), CURLOPT_NOPROXY, "*");
  if (!request.ca_file.empty()) curl_easy_setopt(handle.get(), CURLOPT_CAINFO, request.ca_file.c_str());
  const bool is_post = std::string_view(request.method) == "POST";
  if (is_post) curl_easy_setopt(handle.get(), CURLOPT_COPYPOSTFIELDS, request.body.c_str());
  if (!is_post) curl_easy_setopt(handle.get(), CURLOPT_CUSTOMREQUEST, request.method);
  const CURLcode code = curl_easy_perform(handle.get());
  if (code != CURLE_OK) {
    return Status(Code::unavailable, connection_failure(handle.get(), code, text, request.ca_file).why);
  }
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &answer.status);
  return answer;
}

// `what`: for an error, such as "STS". The address of a service holds no secret.
Result<std::string> ask(const ServiceRequest& request, const std::string& what, int tries = kServiceTries) {
  Status failed;
  for (int i = 0; i < tries; ++i) {
    auto answer = ask_once(request);
    if (answer.ok() && answer->status >= 200 && answer->status < 300) return std::move(answer->body);
    if (answer.ok()) {
      failed = Status(Code::refused, fmt::format("{} at {} answered with status {}: {}", what, request.url,
                                                 answer->status, clean_line(answer->body, 300)));
      if (answer->status < 500 && answer->status != 429) break;
    } else {
      failed = Status(Code::unavailable,
                      fmt::format("{} at {}: {}", what, request.url, answer.status().message()));
    }
  }
  return failed;
}

Result<std::string> read_token_file(const std::string& path, const char* variable) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  std::string token = text.str();
  while (!token.empty() && std::string_view(" \t\r\n").find(token.back()) != std::string_view::npos) {
    token.pop_back();
  }
  if (!file || token.empty() || token.size() > kServiceBytesMax) {
    return Status(Code::refused, fmt::format("cannot read a token from {}, which {} names", path, variable));
  }
  return token;
}

// The JSON of containers and instances.
Result<S3Credentials> credentials_of_json(const std::string& body, const std::string& what) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  const auto text = [&](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (json.is_object()) {
    S3Credentials out{text("AccessKeyId"), text("SecretAccessKey"), text("Token")};
    out.expires_unix_s = parse_utc_time(text("Expiration"));
    if (!out.access_key.empty() && !out.secret_key.empty()) return out;
  }
  return Status(Code::refused, fmt::format("{} answered without credentials", what));
}

// --- web identity ---

Result<S3Credentials> from_web_identity(const CredentialSources& from, const std::string& token_file,
                                        const std::string& role) {
  SHOAL_ASSIGN_OR_RETURN(const std::string token, read_token_file(token_file, "AWS_WEB_IDENTITY_TOKEN_FILE"));
  std::string session = set_value(from, "AWS_ROLE_SESSION_NAME", "role_session_name");
  if (session.empty()) session = "shoal-" + random_128().to_hex().substr(0, 16);
  ServiceRequest request{.method = "POST", .ca_file = from.ca_file, .uses_proxy = true};
  request.url = set_value(from.variables, "AWS_ENDPOINT_URL_STS");
  if (request.url.empty()) request.url = set_value(from, "AWS_ENDPOINT_URL", "endpoint_url");
  if (request.url.empty()) {
    const char* const top = from.region.starts_with("cn-") ? ".cn" : "";
    request.url = fmt::format("https://sts.{}.amazonaws.com{}/", from.region, top);
  }
  request.body = canonical_query({{"Action", "AssumeRoleWithWebIdentity"},
                                  {"Version", "2011-06-15"},
                                  {"RoleArn", role},
                                  {"RoleSessionName", session},
                                  {"WebIdentityToken", token}})
                     .substr(1);
  SHOAL_ASSIGN_OR_RETURN(const std::string body, ask(request, "STS (AssumeRoleWithWebIdentity)"));
  SHOAL_ASSIGN_OR_RETURN(const XmlElement root, parse_xml(body));
  const XmlElement* result = root.child("AssumeRoleWithWebIdentityResult");
  const XmlElement* keys = result == nullptr ? nullptr : result->child("Credentials");
  if (keys == nullptr || keys->text_of("AccessKeyId").empty() || keys->text_of("SecretAccessKey").empty()) {
    return Status(Code::refused, fmt::format("STS at {} answered without credentials", request.url));
  }
  return S3Credentials{keys->text_of("AccessKeyId"), keys->text_of("SecretAccessKey"),
                       keys->text_of("SessionToken"), parse_utc_time(keys->text_of("Expiration"))};
}

// --- container ---

// A token for the service must not leave the host in clear.
bool is_allowed_container_url(std::string_view url) {
  if (url.starts_with("https://")) return true;
  if (!url.starts_with("http://")) return false;
  std::string_view host = url.substr(7);
  host = host.substr(0, host.find_first_of("/?#"));
  if (host.find('@') != std::string_view::npos) return false;
  const size_t end = host.starts_with('[') ? host.find(']') + 1 : host.find(':');
  host = host.substr(0, end);
  constexpr std::string_view kHosts[] = {"localhost", "[::1]", "169.254.170.2", "169.254.170.23",
                                         "[fd00:ec2::23]"};
  if (std::ranges::find(kHosts, host) != std::end(kHosts)) return true;
  const bool is_number = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return is_number && host.starts_with("127.");
}

Result<S3Credentials> from_container(const CredentialSources& from, const std::string& url) {
  ServiceRequest request{.url = url, .ca_file = from.ca_file};
  if (!is_allowed_container_url(url)) {
    return Status(
        Code::refused,
        fmt::format("AWS_CONTAINER_CREDENTIALS_FULL_URI must be https://, or http:// of this host or "
                    "of a container service: {}",
                    clean_line(url, 200)));
  }
  std::string token = set_value(from.variables, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string file = set_value(from.variables, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!file.empty()) {
    SHOAL_ASSIGN_OR_RETURN(token, read_token_file(file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"));
  }
  if (token.find_first_of("\r\n") != std::string::npos) {
    return Status(Code::refused, "AWS_CONTAINER_AUTHORIZATION_TOKEN has more than one line");
  }
  if (!token.empty()) request.headers.push_back("Authorization: " + token);
  SHOAL_ASSIGN_OR_RETURN(const std::string body, ask(request, "the credentials of the container"));
  return credentials_of_json(body, "the credentials of the container at " + url);
}

// --- instance ---

Result<S3Credentials> from_instance(const CredentialSources& from) {
  std::string base = set_value(from.variables, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (base.empty()) base = "http://169.254.169.254";
  while (base.ends_with('/')) base.pop_back();
  const std::string what = "the metadata of the instance";
  ServiceRequest request{
      .url = base + "/latest/api/token", .method = "PUT", .timeout_ms = kInstanceTimeoutMs};
  request.headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"};
  SHOAL_ASSIGN_OR_RETURN(const std::string token, ask(request, what, 1));
  if (token.find_first_of("\r\n") != std::string::npos) {
    return Status(Code::refused, what + " at " + base + " answered with something else than a token");
  }
  request.method = "GET";
  request.headers = {"X-aws-ec2-metadata-token: " + token};
  request.url = base + "/latest/meta-data/iam/security-credentials/";
  SHOAL_ASSIGN_OR_RETURN(const std::string roles, ask(request, what));
  request.url += uri_encode(roles.substr(0, roles.find('\n')), false);
  SHOAL_ASSIGN_OR_RETURN(const std::string body, ask(request, what));
  return credentials_of_json(body, what + " at " + request.url);
}

}  // namespace

int64_t parse_utc_time(const std::string& text) {
  std::tm parts{};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  return end == nullptr ? 0 : static_cast<int64_t>(timegm(&parts));
}

Result<S3Credentials> find_s3_credentials(const CredentialSources& from) {
  const auto variable = [&](const char* name) { return set_value(from.variables, name); };
  S3Credentials found{variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"),
                      variable("AWS_SESSION_TOKEN")};
  if (!found.access_key.empty() && !found.secret_key.empty()) return found;
  const std::string token_file = set_value(from, "AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity_token_file");
  const std::string role = set_value(from, "AWS_ROLE_ARN", "role_arn");
  if (!token_file.empty() && !role.empty()) return from_web_identity(from, token_file, role);
  const auto in_profile = [&](const char* name) {
    const auto at = from.profile.find(name);
    return at == from.profile.end() ? std::string() : at->second;
  };
  found = {in_profile("aws_access_key_id"), in_profile("aws_secret_access_key"),
           in_profile("aws_session_token")};
  if (!found.access_key.empty() && !found.secret_key.empty()) return found;
  const std::string relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  if (!relative.empty()) return from_container(from, "http://169.254.170.2" + relative);
  const std::string full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (!full.empty()) return from_container(from, full);
  std::string disabled = variable("AWS_EC2_METADATA_DISABLED"), why = "AWS_EC2_METADATA_DISABLED is set";
  std::ranges::transform(disabled, disabled.begin(), [](unsigned char c) { return std::tolower(c); });
  if (disabled != "true") {
    auto of_instance = from_instance(from);
    if (of_instance.ok()) return of_instance;
    why = of_instance.status().message();
  }
  return Status(Code::refused,
                fmt::format("no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or put "
                            "aws_access_key_id and aws_secret_access_key into profile {} of "
                            "~/.aws/credentials; there is no web identity and no container either, and none "
                            "of an instance ({})",
                            from.profile_name, why));
}

}  // namespace shoal::storage
