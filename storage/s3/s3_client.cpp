#include "storage/s3/s3_client.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "shoal/hash.h"
#include "storage/s3/connection_failure.h"
#include "storage/s3/s3_credentials.h"
#include "storage/s3/xml.h"

namespace shoal::storage {

namespace {

constexpr long kConnectTimeoutMs = 5'000;
// A connection that is slower for this long is dead. While a store puts the parts of an upload together, it
// sends a space now and then.
constexpr long kStallBytesPerSecond = 1, kStallSeconds = 30;
constexpr long kSmallStallSeconds = 15;  // of a request with little data
constexpr int64_t kRenewalPauseS = 10;   // between two renewals of credentials that end soon
constexpr uint64_t kSmallBytes = uint64_t{1} << 20;
constexpr int kTriesUntrusted = 3;  // of a store that is not trusted; another of its hosts may be
// A request is not begun again after this time.
constexpr std::chrono::seconds kTryFor{300}, kTrySmallFor{60};

Bytes sha256_of(const std::vector<ByteView>& body) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> hash(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  SHOAL_CHECK(EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1);
  for (const ByteView part : body) SHOAL_CHECK(EVP_DigestUpdate(hash.get(), part.data(), part.size()) == 1);
  SHOAL_CHECK(EVP_DigestFinal_ex(hash.get(), digest, &size) == 1);
  const auto bytes = std::as_bytes(std::span(digest, size));
  return Bytes(bytes.begin(), bytes.end());
}

std::string base64_of(const Bytes& bytes) {
  std::string out(4 * (bytes.size() / 3 + 1) + 1, '\0');  // with the NUL that OpenSSL writes
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  out.resize(static_cast<size_t>(
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), data, static_cast<int>(bytes.size()))));
  return out;
}

std::string shown_key(const S3Request& request) {
  return request.key.empty() ? "" : "/" + request.key;
}

uint64_t bytes_of(const std::vector<ByteView>& body) {
  uint64_t bytes = 0;
  for (const ByteView part : body) bytes += part.size();
  return bytes;
}

bool is_small(const S3Request& request) {
  return !request.may_hold_error && bytes_of(request.body) + request.into.size() < kSmallBytes;
}

uint64_t number_in(std::string_view text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

bool asks_to_repeat(const S3Request& request, const S3Answer& answer) {
  switch (answer.status) {
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
      return true;
    case 400:
      return answer.code == "RequestTimeout";
    case 409:  // another conditional write of this key was in progress
      return request.method == "PUT" && answer.code == "ConditionalRequestConflict";
  }
  return false;
}

// Of an error in the body of an answer that began as a success.
int status_of_code(std::string_view code) {
  if (code == "PreconditionFailed") return 412;
  if (code == "ConditionalRequestConflict") return 409;
  return code == "NoSuchUpload" ? 404 : 500;
}

bool asks_to_slow_down(const S3Answer& answer) {
  return answer.status == 429 || answer.status == 503;
}

// Whether others may have renewed the credentials since they were read. InvalidTokenId is MinIO's.
bool has_expired(const S3Answer& answer) {
  return answer.code == "InvalidAccessKeyId" || answer.code == "InvalidToken" ||
         answer.code == "InvalidTokenId" || answer.code == "ExpiredToken" ||
         answer.code == "ExpiredTokenException" || answer.code == "TokenRefreshRequired";
}

// Whether the same may be the cause of an answer without a body, which has no code.
bool may_have_expired(const S3Request& request, const S3Answer& answer) {
  return request.method == "HEAD" && (answer.status == 400 || answer.status == 403);
}

// One try: what libcurl's callbacks read and write.
struct Exchange {
  const S3Request& request;
  S3Answer answer;
  CURL* handle = nullptr;
  size_t part = 0, offset = 0;  // of the next byte of the body to send
  bool is_too_long = false;

  static size_t read(char* to, size_t, size_t room, void* self) {
    auto& at = *static_cast<Exchange*>(self);
    size_t done = 0;
    while (done < room && at.part < at.request.body.size()) {
      const ByteView rest = at.request.body[at.part].subspan(at.offset);
      const size_t count = std::min(rest.size(), room - done);
      if (count > 0) std::memcpy(to + done, rest.data(), count);
      done += count;
      at.offset += count;
      if (count == rest.size()) ++at.part, at.offset = 0;
    }
    return done;
  }
  // libcurl sends a body again from its start.
  static int seek(void* self, curl_off_t offset, int) {
    auto& at = *static_cast<Exchange*>(self);
    if (offset != 0) return CURL_SEEKFUNC_CANTSEEK;
    at.part = at.offset = 0;
    return CURL_SEEKFUNC_OK;
  }
  static size_t write(char* data, size_t, size_t bytes, void* self) {
    auto& at = *static_cast<Exchange*>(self);
    long status = 0;
    curl_easy_getinfo(at.handle, CURLINFO_RESPONSE_CODE, &status);
    const bool is_data = status >= 200 && status < 300 && !at.request.into.empty();
    const size_t limit = is_data ? at.request.into.size() : kMaxS3AnswerBytes;
    const size_t have = is_data ? at.answer.into_bytes : at.answer.body.size();
    at.is_too_long = bytes > limit - have;
    if (at.is_too_long) return 0;
    if (is_data) {
      std::memcpy(at.request.into.data() + have, data, bytes);
      at.answer.into_bytes += bytes;
    } else {
      at.answer.body.append(data, bytes);
    }
    return bytes;
  }
  static size_t header(char* data, size_t, size_t bytes, void* self) {
    auto& answer = static_cast<Exchange*>(self)->answer;
    std::string_view line(data, bytes);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return bytes;
    const std::string name(line.substr(0, colon));
    std::string_view value = line.substr(colon + 1);
    value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
    while (!value.empty() && strchr(" \t\r\n", value.back()) != nullptr) value.remove_suffix(1);
    const auto is = [&](const char* wanted) { return strcasecmp(name.c_str(), wanted) == 0; };
    if (is("etag")) answer.etag = value;
    if (is("x-amz-meta-shoal-write")) answer.write_id = value;
    if (is("x-amz-request-id") || is("x-amzn-requestid")) answer.request_id = value;
    if (is("x-amz-bucket-region")) answer.region = value;
    if (is("x-amz-checksum-sha256")) answer.checksum = value;
    if (is("date"))
      answer.date_unix_s = std::max<int64_t>(curl_getdate(std::string(value).c_str(), nullptr), 0);
    if (is("content-length")) answer.content_length = number_in(value);
    if (is("content-range"))
      answer.object_bytes = number_in(value.substr(std::min(value.find('/'), value.size() - 1) + 1));
    return bytes;
  }
};

// Takes code and message from an error's body.
void read_error(S3Answer* answer) {
  auto root = parse_xml(answer->body);
  if (!root.ok() || root->name != "Error") return;
  answer->code = clean_line(root->text_of("Code"), 200);
  answer->message = clean_line(root->text_of("Message"), 500);
  if (const std::string& id = root->text_of("RequestId"); !id.empty()) answer->request_id = id;
  if (const std::string& region = root->text_of("Region"); !region.empty()) answer->region = region;
}

struct HeaderList {
  curl_slist* list = nullptr;
  ~HeaderList() { curl_slist_free_all(list); }
  void add(const std::string& line) { list = curl_slist_append(list, line.c_str()); }
};

void set_body(CURL* handle, const S3Request& request, Exchange* exchange) {
  const auto bytes = static_cast<curl_off_t>(bytes_of(request.body));
  if (request.method == "HEAD") {
    curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
  } else if (request.method == "PUT") {
    curl_easy_setopt(handle, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, bytes);
  } else if (request.method == "POST") {
    curl_easy_setopt(handle, CURLOPT_POST, 1L);
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, bytes);
  } else {
    curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  curl_easy_setopt(handle, CURLOPT_READFUNCTION, Exchange::read);
  curl_easy_setopt(handle, CURLOPT_READDATA, exchange);
  curl_easy_setopt(handle, CURLOPT_SEEKFUNCTION, Exchange::seek);
  curl_easy_setopt(handle, CURLOPT_SEEKDATA, exchange);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, Exchange::write);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, exchange);
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, Exchange::header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, exchange);
}

}  // namespace

// Handles that hold an open connection each.
class S3Client::Connections {
 public:
  Connections() {
    static std::once_flag once;
    std::call_once(once, [] { SHOAL_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK); });
  }
  ~Connections() {
    for (CURL* handle : idle_) curl_easy_cleanup(handle);
  }

  class Lease {
   public:
    explicit Lease(Connections& from) : from_(from), handle_(from.take()) {}
    ~Lease() { from_.give_back(handle_); }
    Lease(const Lease&) = delete;
    CURL* get() { return handle_; }

   private:
    Connections& from_;
    CURL* const handle_;
  };

 private:
  CURL* take() {
    std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      CURL* made = curl_easy_init();
      SHOAL_CHECK(made != nullptr);
      return made;
    }
    CURL* handle = idle_.back();
    idle_.pop_back();
    return handle;
  }
  void give_back(CURL* handle) {
    curl_easy_reset(handle);  // keeps its connection
    std::lock_guard lock(mutex_);
    if (idle_.size() < kMaxIdleConnections) return idle_.push_back(handle);
    curl_easy_cleanup(handle);
  }

  std::mutex mutex_;
  std::vector<CURL*> idle_;
};

namespace {

// Sends the request once. nullopt and `failure`: no whole answer came.
std::optional<S3Answer> try_once(CURL* handle, const S3Settings& settings, const S3Credentials& credentials,
                                 const std::string& url, const S3Request& request, const Bytes& hash,
                                 ConnectionFailure* failure) {
  Exchange exchange{request, {}, handle};
  set_body(handle, request, &exchange);
  HeaderList headers;
  headers.add("x-amz-content-sha256: " + hex_encode(hash));
  if (request.is_stored && settings.sends_checksums) {
    headers.add("x-amz-sdk-checksum-algorithm: SHA256");
    headers.add("x-amz-checksum-sha256: " + base64_of(hash));
  }
  if (!credentials.session_token.empty()) headers.add("x-amz-security-token: " + credentials.session_token);
  for (const auto& [name, value] : request.headers) headers.add(name + ": " + value);
  if (request.method == "POST") headers.add("content-type: application/xml");  // instead of a form's
  const std::string signs = fmt::format("aws:amz:{}:s3", settings.region);
  char text[CURL_ERROR_SIZE] = {};
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.list);
  curl_easy_setopt(handle, CURLOPT_AWS_SIGV4, signs.c_str());
  curl_easy_setopt(handle, CURLOPT_USERNAME, credentials.access_key.c_str());
  curl_easy_setopt(handle, CURLOPT_PASSWORD, credentials.secret_key.c_str());
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, text);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  // Do not wait for the store to ask for the body. A line "Expect:" in the headers would spoil the signature.
  curl_easy_setopt(handle, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerSecond);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, is_small(request) ? kSmallStallSeconds : kStallSeconds);
  curl_easy_setopt(handle, CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
  curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, 512L << 10);
  if (!settings.ca_file.empty()) curl_easy_setopt(handle, CURLOPT_CAINFO, settings.ca_file.c_str());
  const CURLcode code = curl_easy_perform(handle);
  if (exchange.is_too_long) {
    return S3Answer{.code = "AnswerTooLong", .message = "the store sent more bytes than were asked for"};
  }
  if (code != CURLE_OK) {
    *failure = connection_failure(handle, code, text, settings.ca_file);
    return std::nullopt;
  }
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  exchange.answer.status = static_cast<int>(status);
  if (!exchange.answer.ok() || request.may_hold_error) read_error(&exchange.answer);
  // The work began with a 200, and failed after it.
  if (exchange.answer.ok() && !exchange.answer.code.empty()) {
    exchange.answer.status = status_of_code(exchange.answer.code);
  }
  return std::move(exchange.answer);
}

// A share of the longest pause after so many tries, drawn at random: clients that failed together come back
// at different times.
int64_t pause_after(const S3Retries& retries, int tries) {
  int64_t most = retries.first_pause_ms;
  for (int i = 1; i < tries && most < retries.pause_ms_max; ++i) most *= 2;
  thread_local std::minstd_rand random(static_cast<uint32_t>(load_le32(random_128().bytes.data())));
  return std::uniform_int_distribution<int64_t>(0, std::min(most, retries.pause_ms_max))(random);
}

}  // namespace

S3Client::S3Client(S3Settings settings, S3Retries retries, CallWatch* watch)
    : settings_(std::move(settings)),
      retries_(std::move(retries)),
      watch_(watch),
      host_(settings_.endpoint.substr(settings_.endpoint.find("://") + 3)),
      connections_(std::make_unique<Connections>()) {}

S3Client::~S3Client() = default;

std::string S3Client::url(const S3Request& request) const {
  const size_t host = settings_.endpoint.find("://") + 3;
  std::string out = settings_.endpoint.substr(0, host);
  if (!settings_.is_path_style) out += settings_.bucket + ".";
  out += settings_.endpoint.substr(host);
  if (settings_.is_path_style) out += "/" + settings_.bucket;
  if (!request.key.empty()) out += "/" + uri_encode(request.key, true);
  if (request.key.empty() && !settings_.is_path_style) out += "/";
  return out + canonical_query(request.query);
}

Result<S3Answer> S3Client::send(const S3Request& request) {
  ++requests_;
  if (watch_ == nullptr) return send_until_answered(request);
  const std::string bucket = "s3://" + settings_.bucket;
  const CallWatch::Call call(*watch_, request.method.c_str(), bucket, request.key);
  return send_until_answered(request);
}

Result<S3Answer> S3Client::send_until_answered(const S3Request& request) {
  const std::string address = url(request);
  const Bytes hash = sha256_of(request.body);
  SHOAL_ASSIGN_OR_RETURN(S3Credentials keys, credentials(nullptr));
  ConnectionFailure failure;
  bool has_asked = false, has_renewed = false;
  const auto end = std::chrono::steady_clock::now() + (is_small(request) ? kTrySmallFor : kTryFor);
  for (int tries = 1;; ++tries) {
    const std::optional<S3Answer> answer = send_once(request, address, keys, hash, &failure);
    const bool is_expired = answer && has_expired(*answer);
    if (is_expired || (answer && may_have_expired(request, *answer) && !has_asked)) {
      has_asked = true;
      auto renewed = credentials(&keys);
      const bool are_new = renewed.ok() && !renewed->has_keys_of(keys);
      if (are_new) keys = std::move(*renewed);
      // A store may reject new keys too: so only the first ones are tried at once.
      if (are_new && !std::exchange(has_renewed, true) && tries < retries_.tries_max) continue;
      // Another program may renew them a moment later. Those that never served are a mistake.
      const bool may_come = is_expired && has_succeeded_ && tries < retries_.tries_max;
      if (!may_come && !renewed.ok()) return renewed.status();
      if (!may_come) return *answer;
    } else if (answer && !asks_to_repeat(request, *answer)) {
      return check_kept(request, *answer, hash);
    }
    const bool is_untrusted = !answer && failure.is_untrusted;
    const int tries_max = is_untrusted ? std::min(kTriesUntrusted, retries_.tries_max) : retries_.tries_max;
    const bool was_last = tries >= tries_max || std::chrono::steady_clock::now() >= end;
    if (answer && was_last) {
      return error(request, *answer, fmt::format("{} after {} tries", request.method, tries));
    }
    if (was_last) return no_answer(request, failure.why, tries);
    const int64_t pause_ms = pause_after(retries_, tries);
    if (retries_.pause) {
      retries_.pause(pause_ms);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    }
  }
}

// Requests with little data do not wait for a stream: records and leases must come in time.
std::optional<S3Answer> S3Client::send_once(const S3Request& request, const std::string& address,
                                            const S3Credentials& keys, const Bytes& hash,
                                            ConnectionFailure* failure) {
  std::optional<StreamLimit::Stream> stream;
  if (!is_small(request)) stream.emplace(streams_);
  Connections::Lease lease(*connections_);
  std::optional<S3Answer> answer = try_once(lease.get(), settings_, keys, address, request, hash, failure);
  if (answer && answer->date_unix_s != 0) {
    clock_ahead_s_ =
        answer->date_unix_s - std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1);
  }
  if (answer && answer->ok()) has_succeeded_ = true;
  if (stream && answer && asks_to_slow_down(*answer)) stream->was_slowed();
  if (stream && answer && answer->ok()) stream->succeeded();
  return answer;
}

// A store that keeps checksums returns the one that it has computed.
Result<S3Answer> S3Client::check_kept(const S3Request& request, const S3Answer& answer,
                                      const Bytes& hash) const {
  const bool is_kept = request.is_stored && answer.ok() && !answer.checksum.empty();
  if (!is_kept || answer.checksum == base64_of(hash)) return answer;
  return Status(
      Code::corrupt,
      fmt::format("s3://{}{}: the store has kept other bytes than were sent: its SHA-256 is {}, not {}",
                  settings_.bucket, shown_key(request), clean_line(answer.checksum, 64), base64_of(hash)));
}

Result<S3Credentials> S3Client::credentials(const S3Credentials* rejected) {
  std::lock_guard lock(mutex_);
  // Another request has renewed them meanwhile.
  if (rejected != nullptr && !credentials_->has_keys_of(*rejected)) return *credentials_;
  const int64_t now_s = std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1);
  const auto end_soon = [&] {
    return credentials_->expires_unix_s != 0 && credentials_->expires_unix_s - now_s < kRenewBeforeS;
  };
  const bool is_renewal = credentials_.has_value();
  const bool may_wait = is_renewal && rejected == nullptr && credentials_->expires_unix_s > now_s;
  if (is_renewal && rejected == nullptr && !end_soon()) return *credentials_;
  if (may_wait && now_s < no_renewal_before_s_) return *credentials_;
  auto found = settings_.credentials();
  if (!found.ok() && !may_wait) return found.status();
  if (found.ok()) credentials_ = std::move(*found);
  // A service may fail, or give the same ones until their end. It is not asked for each request.
  if (is_renewal && end_soon()) no_renewal_before_s_ = now_s + kRenewalPauseS;
  return *credentials_;
}

Status S3Client::no_answer(const S3Request& request, const std::string& why, int tries) const {
  return Status(Code::unavailable,
                fmt::format("s3://{}{}: no answer to {} from {} in {} tries: {}", settings_.bucket,
                            shown_key(request), request.method, host_, tries, why));
}

namespace {

Code code_of(const S3Answer& answer) {
  if (answer.code == "NoSuchBucket") return Code::unavailable;
  if (answer.code == "EntityTooLarge") return Code::too_large;
  // Others may renew them later. Only a key that the store does not know at all is an error for good.
  if (has_expired(answer) && answer.code != "InvalidAccessKeyId") return Code::unavailable;
  if (answer.code == "QuotaExceeded" || answer.code == "XMinioStorageFull" || answer.status == 507) {
    return Code::no_space;
  }
  if (!answer.region.empty() && (answer.status == 301 || answer.status == 307 || answer.status == 400)) {
    return Code::invalid_argument;
  }
  switch (answer.status) {
    case 401:
    case 403:
    case 405:
      return Code::refused;
    case 404:
      return Code::not_found;
    case 409:
      return Code::busy;
    case 412:
      return Code::already_exists;
    case 416:
      return Code::corrupt;
    case 501:
      return Code::invalid_argument;
  }
  return answer.status >= 500 || answer.status == 429 ? Code::unavailable : Code::io;
}

// What the user may do; "": nothing in particular.
std::string advice_for(const S3Answer& answer, const S3Settings& settings) {
  if (answer.code == "RequestTimeTooSkewed") return "; the clock of this host differs from the store's";
  if (answer.code == "SignatureDoesNotMatch") {
    return fmt::format("; check the secret key, and the region {}", settings.region);
  }
  if (has_expired(answer)) return "; check or renew the credentials";
  if (answer.code == "NoSuchBucket") return "; Shoal does not create buckets";
  if (answer.region.empty() || answer.region == settings.region || answer.ok()) return "";
  return fmt::format("; the bucket is in region {}: set AWS_REGION", answer.region);
}

}  // namespace

Status S3Client::error(const S3Request& request, const S3Answer& answer, std::string_view action) const {
  std::string what = answer.code.empty() ? fmt::format("status {}", answer.status) : answer.code;
  if (!answer.message.empty()) what += ": " + answer.message;
  while (what.ends_with('.')) what.pop_back();
  return Status(code_of(answer),
                fmt::format("s3://{}{}: cannot {}: {}{} ({}{}{})", settings_.bucket, shown_key(request),
                            action, what, advice_for(answer, settings_), host_,
                            answer.request_id.empty() ? "" : ", request ", answer.request_id));
}

std::string uri_encode(std::string_view text, bool is_path) {
  std::string out;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                          c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && is_path);
    if (is_plain) {
      out.push_back(c);
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string canonical_query(S3Request::Pairs query) {
  for (auto& [name, value] : query) name = uri_encode(name, false), value = uri_encode(value, false);
  std::sort(query.begin(), query.end());
  std::string out;
  for (const auto& [name, value] : query) out += (out.empty() ? "?" : "&") + name + "=" + value;
  return out;
}

}  // namespace shoal::storage
