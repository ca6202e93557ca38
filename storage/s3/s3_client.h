// S3Client: signed requests to one bucket, over connections that are kept. Any thread; each call blocks.
//
// A request is repeated, with growing random pauses, if the store answers 500, 502, 503, 504 or 429, if it
// asks to slow down, or if the connection breaks. libcurl repeats one by itself if a kept connection breaks
// before an answer. Any request may therefore have been carried out before the one that is answered: an
// answer of 412 to a conditional write may be caused by the same write. TLS certificates are checked.
// Signatures (AWS Signature Version 4) cover the SHA-256 of the body, so the store rejects a body that
// changed on its way.
#pragma once

#include <cstdint>
#include <functional>
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
#include "storage/s3/s3_settings.h"

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
};

struct S3Answer {
  int status = 0;
  std::string body;            // of an error, or if the request has no `into`
  size_t into_bytes = 0;       // written to `into`
  std::string code, message;   // of an error's body; "" if it has none
  std::string etag, write_id;  // of the object; write_id is the header x-amz-meta-shoal-write
  std::string request_id, region;
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
  Status no_answer(const S3Request& request, const std::string& why, int tries) const;

  // Those of the last call; `renews`: reads them again, because the store no longer takes them.
  Result<S3Credentials> credentials(bool renews);

  const S3Settings settings_;
  const S3Retries retries_;
  CallWatch* const watch_;
  std::string host_;
  std::unique_ptr<Connections> connections_;
  std::mutex mutex_;
  std::optional<S3Credentials> credentials_;
};

// Percent-encodes all but [A-Za-z0-9-._~] and, if it is part of a path, '/'.
std::string uri_encode(std::string_view text, bool is_path);
// "" for none, otherwise "?a=1&b=", ordered and encoded as a signature needs it.
std::string canonical_query(S3Request::Pairs query);

}  // namespace shoal::storage
