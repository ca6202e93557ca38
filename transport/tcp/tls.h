// TLS 1.3 on a TCP connection between two who know the job's token: the token proves both sides to each
// other, and all bytes are encrypted. Whoever does not know the token gets a TLS alert, or nothing, and the
// connection is closed.
//
// The pre-shared key is HMAC-SHA256(token, "shoal-tls-key") with the cipher suite TLS_AES_128_GCM_SHA256 and
// an X25519 key exchange (psk_dhe_ke), so that a token that is lost later opens no recorded session. The
// key's identity, which passes in the clear, is a hash of the root's random id: it tells a listener of
// another root apart from one with another token, and says nothing of the job. RFC 8446, sections 2.2 and
// 4.2.11; one thread uses a context and its streams.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shoal/bytes.h"
#include "shoal/hash.h"
#include "shoal/status.h"
#include "transport/handshake.h"
#include "transport/tcp/socket.h"

struct ssl_st;
struct ssl_ctx_st;
struct ssl_session_st;

namespace shoal::transport {

// AES-GCM is safe for 2^24.5 records of 16 KiB under one key (RFC 8446, section 5.5).
inline constexpr uint64_t kTlsRecordsPerKey = uint64_t{1} << 23;

// One for each transport.
class TlsContext {
 public:
  // A key encrypts `records_per_key` records at most; then TLS goes over to the next one.
  static Result<std::shared_ptr<TlsContext>> create(ByteView token, const RootId& root_id,
                                                    uint64_t records_per_key = kTlsRecordsPerKey);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* get() const { return context_; }
  ssl_session_st* key() const { return key_; }
  const std::string& key_identity() const { return key_identity_; }
  uint64_t records_per_key() const { return records_per_key_; }

 private:
  TlsContext() = default;
  ssl_ctx_st* context_ = nullptr;
  ssl_session_st* key_ = nullptr;
  std::string key_identity_;
  uint64_t records_per_key_ = kTlsRecordsPerKey;
};

// One connection; nothing blocks. After anything but OK only the destructor may be called.
class TlsStream {
 public:
  // A connector's socket may still be connecting.
  static Result<TlsStream> open(std::shared_ptr<TlsContext> context, FileDescriptor socket,
                                HandshakeRole role);
  TlsStream(TlsStream&& other) noexcept;
  TlsStream& operator=(TlsStream&& other) = delete;
  ~TlsStream();

  int fd() const;
  // Goes on with connecting and with TLS. True once the other side has proven that it knows the token.
  // Code::refused: it proved that it does not, or that its root is another; Code::unavailable otherwise.
  Result<bool> prove();
  bool is_proven() const { return is_proven_; }
  // A listener's: the other side's first message needs the token to be made. It may be somebody else's, sent
  // again; whoever made it proves that next.
  bool has_offered_key() const;

  // How many bytes were read into `into`, or taken from `from`; 0: none now. A read answers
  // Code::unavailable once all was read that came before the end of the stream. What is written may wait
  // here until flush(): at most kTlsUnsentBytes.
  Result<size_t> read(MutableByteView into);
  Result<size_t> write(ByteView from);
  Status flush();  // as far as the socket takes it
  bool has_unsent() const;
  bool wants_to_write() const;  // read or prove go on once the socket can be written to
  // Once all is flushed: the other side reads the end of the stream.
  void end_writing();

 private:
  struct Wire;  // what OpenSSL reads from and writes to
  TlsStream(std::shared_ptr<TlsContext> context, std::unique_ptr<Wire> wire, ssl_st* tls, HandshakeRole role);
  Status failure(int result, const char* what);
  Status handshake_failure(unsigned long error);

  std::shared_ptr<TlsContext> context_;
  std::unique_ptr<Wire> wire_;
  ssl_st* tls_ = nullptr;
  HandshakeRole role_;
  bool is_connected_, is_proven_ = false;
  uint64_t records_written_ = 0;  // under the present key
};

inline constexpr size_t kTlsUnsentBytes = size_t{64} << 10;

}  // namespace shoal::transport
