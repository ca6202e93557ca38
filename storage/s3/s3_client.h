// S3Client: signed requests to one bucket, over connections that are kept. Any thread; each call blocks.
//
// A request is repeated, with growing random pauses, if the store answers 500, 502, 503, 504 or 429, if it
// asks to slow down, or if the connection breaks. libcurl repeats one by itself if a kept connection breaks
// before an answer. Any request may therefore have been carried out before the one that is answered: an
// answer of 412 to a conditional write may be caused by the same write. TLS certificates are checked: one
// that is not trusted ends a request after a few tries. Signatures (AWS Signature Version 4) cover the
// SHA-256 of the body, so the store rejects a body that changed on its way. With S3Settings::sends_checksums
// the store also keeps it with the object.
//
// If the store asks to slow down, fewer large requests are in flight at once (StreamLimit).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/status.h"
#include "storage/files/call_watch.h"
#include "storage/s3/connection_failure.h"
#include "storage/s3/s3_settings.h"
#include "storage/s3/stream_limit.h"

namespace shoal::storage {

inline constexpr size_t kMaxS3AnswerBytes = size_t{8} << 20;  // of a body that is no object's data
inline constexpr size_t kMaxIdleConnections = 64;             // that a client keeps

struct S3Retries {
  int tries_max = 10;  // of one request
  int64_t first_pause_ms = 50, pause_ms_max = 5'000;
  std::function<void(int64_t pause_ms)> pause;  // default: sleeps
};

struct S3Request {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  std::string method;
  std::string key;  // complete; "": the bucket
  Pairs query = {}, headers = {};
  std::vector<ByteView> body = {};
  // Where the data of an object goes, at most this much. If it is empty, a body goes into S3Answer::body.
  MutableByteView into = {};
  bool may_hold_error = false;  // a status of 200 may come with an error as its body
  bool is_stored = false;       // the body is an object or a part of one
};

struct S3Answer {
  int status = 0;
  std::string body;            // of an error, or if the request has no `into`
  size_t into_bytes = 0;       // written to `into`
  std::string code, message;   // of an error's body; "" if it has none
  std::string etag, write_id;  // of the object; write_id is the header x-amz-meta-shoal-write
  std::string request_id, region;
  int64_t date_unix_s = 0;  // when the store answered, by its clock; 0: not stated
  std::string checksum;     // x-amz-checksum-sha256 of a PUT: what the store keeps
  uint64_t content_length = 0;
  uint64_t object_bytes = 0;  // of Content-Range

  bool ok() const { return status >= 200 && status < 300; }
};

class S3Client {
 public:
  // `watch`, if any, sees each request with its repetitions as one call, and must outlive the client.
  explicit S3Client(S3Settings settings, S3Retries retries = {}, CallWatch* watch = nullptr);
  ~S3Client();

  const S3Settings& settings() const { return settings_; }
  uint64_t requests() const { return requests_; }  // that send was called for
  double streams_max() const { return streams_.most(); }
  // The store's clock in the last answer, compared with this host's; nullopt: it was not stated.
  std::optional<int64_t> clock_ahead_s() const {
    const int64_t ahead = clock_ahead_s_;
    return ahead == kUnknownClock ? std::nullopt : std::optional(ahead);
  }
  // The last answer, also if it is an error that repeating does not mend. Code::unavailable: no answer, or
  // only answers that ask to try again, until the tries were used up.
  Result<S3Answer> send(const S3Request& request);
  // "s3://bucket/key: cannot ACTION: CODE: MESSAGE (host, request id)". Code::not_found, already_exists
  // (412), busy (409), refused, corrupt (416), too_large, no_space, invalid_argument, unavailable or io.
  Status error(const S3Request& request, const S3Answer& answer, std::string_view action) const;

 private:
  class Connections;
  std::string url(const S3Request& request) const;
  Result<S3Answer> send_until_answered(const S3Request& request);
  std::optional<S3Answer> send_once(const S3Request& request, const std::string& address,
                                    const S3Credentials& keys, const Bytes& hash, ConnectionFailure* failure);
  Result<S3Answer> check_kept(const S3Request& request, const S3Answer& answer, const Bytes& hash) const;
  Status no_answer(const S3Request& request, const std::string& why, int tries) const;

  // Those of the last call, or new ones if these end soon, or if they are those that the store has
  // `rejected`.
  Result<S3Credentials> credentials(const S3Credentials* rejected);

  const S3Settings settings_;
  const S3Retries retries_;
  CallWatch* const watch_;
  std::string host_;
  std::unique_ptr<Connections> connections_;
  StreamLimit streams_;
  static constexpr int64_t kUnknownClock = std::numeric_limits<int64_t>::min();
  std::atomic<int64_t> clock_ahead_s_{kUnknownClock};
  std::atomic<uint64_t> requests_{0};
  std::atomic<bool> has_succeeded_{false};  // a request, so the credentials were right at some time
  std::mutex mutex_;
  std::optional<S3Credentials> credentials_;
  int64_t no_renewal_before_s_ = 0;
};

// Percent-encodes all but [A-Za-z0-9-._~] and, if it is part of a path, '/'.
std::string uri_encode(std::string_view text, bool is_path);
// "" for none, otherwise "?a=1&b=", ordered and encoded as a signature needs it.
std::string canonical_query(S3Request::Pairs query);

}  // namespace shoal::storage
