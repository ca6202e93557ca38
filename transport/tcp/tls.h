// TLS 1.3 on a TCP connection between two nodes that know the job's token. The token authenticates both
// sides, and all bytes are encrypted. A peer without the token gets a TLS alert or nothing, and the
// connection is closed.
//
// The pre-shared key is HMAC-SHA256(token, "shoal-tls-key"). The cipher suite is TLS_AES_128_GCM_SHA256, with
// an X25519 key exchange (psk_dhe_ke), so that a token that leaks later does not decrypt recorded sessions.
// The identity of the key is sent in the clear. It is a hash of the root's random id, so a listener can
// distinguish another root from another token, and it reveals nothing about the job. RFC 8446, sections 2.2
// and 4.2.11. One thread uses a context and its streams.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/owned_fd.h"
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

// One per transport.
class TlsContext {
 public:
  // A key encrypts at most `records_per_key` records; then TLS updates it.
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

// One connection; no call blocks. After any error only the destructor may be called.
class TlsStream {
 public:
  // The socket of a connector may still be connecting.
  static Result<TlsStream> open(std::shared_ptr<TlsContext> context, base::OwnedFd socket,
                                HandshakeRole role);
  TlsStream(TlsStream&& other) noexcept;
  TlsStream& operator=(TlsStream&& other) = delete;
  ~TlsStream();

  int fd() const;
  // Continues connecting and the TLS handshake. True once the peer has proven that it knows the token.
  // Code::refused: the peer has another token or another root. Code::unavailable: any other failure.
  Result<bool> prove();
  bool is_proven() const { return is_proven_; }
  // On a listener: the peer's first message was made with the token. It may be a replay of another
  // peer's message; the rest of the handshake proves that it is not.
  bool has_offered_key() const;

  // Return the number of bytes read into `into` or taken from `from`; 0: none now. read returns
  // Code::unavailable once everything before the end of the stream was read. Written bytes, at most
  // kTlsUnsentBytes, may be buffered until flush().
  Result<size_t> read(MutableByteView into);
  Result<size_t> write(ByteView from);
  Status flush();  // writes as much as the socket accepts
  bool has_unsent() const;
  bool wants_to_write() const;  // read or prove can continue once the socket is writable
  // Call it once everything is flushed. The other side then reads the end of the stream.
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
  uint64_t records_written_ = 0;  // with the current key
};

inline constexpr size_t kTlsUnsentBytes = size_t{64} << 10;

}  // namespace shoal::transport
