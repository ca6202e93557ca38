#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "transport/tcp/tls.h"

#include "base/owned_fd.h"

namespace shoal::transport {

namespace {
constexpr std::string_view kKeyLabel = "shoal-tls-key";
constexpr std::string_view kIdentityLabel = "shoal-root-of-key";
constexpr const char* kCipherSuite = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherSuiteId[] = {0x13, 0x01};
constexpr const char* kGroup = "X25519";
constexpr size_t kReadAheadBytes = size_t{64} << 10;
constexpr size_t kMacBytes = 32;
constexpr int kNothing = -1;  // OpenSSL's result for a read or write that must wait or has failed

using MacBytes = std::array<unsigned char, kMacBytes>;

MacBytes hmac(ByteView key, std::string_view text) {
  MacBytes out{};
  unsigned size = 0;
  const unsigned char* done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data(), &size);
  SHOAL_CHECK(done != nullptr && size == out.size());
  return out;
}

// The index under which a context stores its TlsContext. One per process.
int context_slot() {
  static const int slot = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return slot;
}

const TlsContext& context_of(SSL* tls) {
  return *static_cast<const TlsContext*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(tls), context_slot()));
}

// Connector: offers the key.
int offer_key(SSL* tls, const EVP_MD*, const unsigned char** id, size_t* id_bytes, SSL_SESSION** key) {
  const TlsContext& context = context_of(tls);
  *id = reinterpret_cast<const unsigned char*>(context.key_identity().data());
  *id_bytes = context.key_identity().size();
  SSL_SESSION_up_ref(context.key());
  *key = context.key();
  return 1;
}

// Listener: looks the key up. An identity of another root finds no key, and the handshake fails.
int find_key(SSL* tls, const unsigned char* id, size_t id_bytes, SSL_SESSION** key) {
  const TlsContext& context = context_of(tls);
  const std::string& own = context.key_identity();
  *key = nullptr;
  if (id_bytes == own.size() && CRYPTO_memcmp(id, own.data(), id_bytes) == 0) {
    SSL_SESSION_up_ref(context.key());
    *key = context.key();
  }
  return 1;
}

std::string describe(unsigned long error) {
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "unknown cause" : reason;
}
}  // namespace

// --- the context ---

Result<std::shared_ptr<TlsContext>> TlsContext::create(ByteView token, const RootId& root_id,
                                                       uint64_t records_per_key) {
  std::shared_ptr<TlsContext> out(new TlsContext());
  out->records_per_key_ = records_per_key;
  const MacBytes identity = hmac(ByteView(root_id.bytes), kIdentityLabel);
  out->key_identity_.assign(reinterpret_cast<const char*>(identity.data()), identity.size());
  out->context_ = SSL_CTX_new(TLS_method());
  SSL_CTX* const context = out->context_;
  bool is_good = context != nullptr && SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                 SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                 SSL_CTX_set_ciphersuites(context, kCipherSuite) == 1 &&
                 SSL_CTX_set1_groups_list(context, kGroup) == 1 && SSL_CTX_set_num_tickets(context, 0) == 1 &&
                 SSL_CTX_set_ex_data(context, context_slot(), out.get()) == 1;
  if (is_good) {
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    // A session ends with a frame that contains the reason, or the connection broke. TLS's own close message
    // adds nothing.
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_TICKET);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, kReadAheadBytes);
    SSL_CTX_set_psk_use_session_callback(context, offer_key);
    SSL_CTX_set_psk_find_session_callback(context, find_key);
    SSL* any = SSL_new(context);
    const SSL_CIPHER* cipher = any == nullptr ? nullptr : SSL_CIPHER_find(any, kCipherSuiteId);
    const MacBytes secret = hmac(token, kKeyLabel);
    out->key_ = SSL_SESSION_new();
    is_good = cipher != nullptr && out->key_ != nullptr &&
              SSL_SESSION_set1_master_key(out->key_, secret.data(), secret.size()) == 1 &&
              SSL_SESSION_set_cipher(out->key_, cipher) == 1 &&
              SSL_SESSION_set_protocol_version(out->key_, TLS1_3_VERSION) == 1;
    SSL_free(any);
  }
  if (!is_good) return Status(Code::io, "cannot set up TLS: " + describe(ERR_get_error()));
  return out;
}

TlsContext::~TlsContext() {
  SSL_SESSION_free(key_);
  SSL_CTX_free(context_);
}

// --- OpenSSL's input and output ---

// Replaces OpenSSL's own socket BIO, which would write one record at a time and raise SIGPIPE.
struct TlsStream::Wire {
  explicit Wire(base::OwnedFd connection) : socket(std::move(connection)) {}

  base::OwnedFd socket;
  Bytes unsent;
  size_t sent = 0;         // bytes of unsent
  bool has_ended = false;  // the peer has ended its bytes
  bool ends_writing = false, has_ended_writing = false;
  int error = 0;  // errno of the failed call

  static bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

  // False: the connection is broken.
  bool flush() {
    while (sent < unsent.size() && error == 0) {
      ssize_t moved = ::send(socket.get(), unsent.data() + sent, unsent.size() - sent, MSG_NOSIGNAL);
      if (moved < 0 && would_block()) return true;
      if (moved < 0) {
        error = errno;
      } else {
        sent += static_cast<size_t>(moved);
      }
    }
    if (error != 0) return false;
    unsent.clear();
    sent = 0;
    if (ends_writing && !std::exchange(has_ended_writing, true)) ::shutdown(socket.get(), SHUT_WR);
    return true;
  }

  static Wire& of(BIO* bio) { return *static_cast<Wire*>(BIO_get_data(bio)); }

  static int write(BIO* bio, const char* bytes, int count) {
    Wire& wire = of(bio);
    BIO_clear_retry_flags(bio);
    const auto size = static_cast<size_t>(count);
    if (wire.unsent.size() + size > kTlsUnsentBytes) {
      if (!wire.flush()) return kNothing;
      wire.unsent.erase(wire.unsent.begin(), wire.unsent.begin() + static_cast<ptrdiff_t>(wire.sent));
      wire.sent = 0;
    }
    const bool fits = wire.unsent.empty() || wire.unsent.size() + size <= kTlsUnsentBytes;
    if (!fits) {
      BIO_set_retry_write(bio);
      return kNothing;
    }
    const auto* from = reinterpret_cast<const std::byte*>(bytes);
    wire.unsent.insert(wire.unsent.end(), from, from + size);
    return count;
  }

  static int read(BIO* bio, char* into, int count) {
    Wire& wire = of(bio);
    BIO_clear_retry_flags(bio);
    ssize_t moved = ::recv(wire.socket.get(), into, static_cast<size_t>(count), 0);
    if (moved > 0) return static_cast<int>(moved);
    if (moved == 0) {
      wire.has_ended = true;
      return 0;
    }
    if (would_block()) {
      BIO_set_retry_read(bio);
    } else {
      wire.error = errno;
    }
    return kNothing;
  }

  static long control(BIO* bio, int command, long, void*) {
    // The stream flushes after it has written the records of a round.
    if (command == BIO_CTRL_FLUSH) return 1;
    return command == BIO_CTRL_EOF && of(bio).has_ended ? 1 : 0;
  }

  static const BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* out = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "shoal socket");
      SHOAL_CHECK(out != nullptr);
      BIO_meth_set_write(out, write);
      BIO_meth_set_read(out, read);
      BIO_meth_set_ctrl(out, control);
      return out;
    }();
    return made;
  }
};

// --- the stream ---

Result<TlsStream> TlsStream::open(std::shared_ptr<TlsContext> context, base::OwnedFd socket,
                                  HandshakeRole role) {
  ERR_clear_error();
  SSL* tls = SSL_new(context->get());
  BIO* bio = BIO_new(Wire::method());
  if (tls == nullptr || bio == nullptr) {
    SSL_free(tls);
    BIO_free(bio);
    return Status(Code::unavailable, "no memory for a TLS connection");
  }
  auto wire = std::make_unique<Wire>(std::move(socket));
  BIO_set_data(bio, wire.get());
  BIO_set_init(bio, 1);
  SSL_set_bio(tls, bio, bio);
  if (role == HandshakeRole::connector) {
    SSL_set_connect_state(tls);
    // A peer that answers with a certificate instead of the key is rejected: no certificate is trusted.
    SSL_set_verify(tls, SSL_VERIFY_PEER, nullptr);
  } else {
    SSL_set_accept_state(tls);
  }
  return TlsStream(std::move(context), std::move(wire), tls, role);
}

TlsStream::TlsStream(std::shared_ptr<TlsContext> context, std::unique_ptr<Wire> wire, ssl_st* tls,
                     HandshakeRole role)
    : context_(std::move(context)),
      wire_(std::move(wire)),
      tls_(tls),
      role_(role),
      is_connected_(role == HandshakeRole::listener) {}

TlsStream::TlsStream(TlsStream&& other) noexcept
    : context_(std::move(other.context_)),
      wire_(std::move(other.wire_)),
      tls_(std::exchange(other.tls_, nullptr)),
      role_(other.role_),
      is_connected_(other.is_connected_),
      is_proven_(other.is_proven_),
      records_written_(other.records_written_) {}

TlsStream::~TlsStream() {
  SSL_free(tls_);
}

int TlsStream::fd() const {
  return wire_->socket.get();
}

Result<bool> TlsStream::prove() {
  if (is_proven_) return true;
  if (!is_connected_) {
    SHOAL_ASSIGN_OR_RETURN(is_connected_, finish_connecting(wire_->socket));
    if (!is_connected_) return false;
  }
  ERR_clear_error();
  const int result = SSL_do_handshake(tls_);
  const bool is_done = result == 1;
  Status shaken = is_done ? ok_status() : failure(result, "TLS");
  if (is_done && SSL_session_reused(tls_) != 1) {
    shaken = Status(Code::refused, "the peer did not prove that it knows this job's token");
  }
  is_proven_ = is_done && shaken.ok();
  (void)wire_->flush();  // also sends an alert, which reports the rejection to the peer
  SHOAL_RETURN_IF_ERROR(shaken);
  return is_proven_;
}

Result<size_t> TlsStream::read(MutableByteView into) {
  ERR_clear_error();
  size_t moved = 0;
  const int result = SSL_read_ex(tls_, into.data(), into.size(), &moved);
  if (result == 1) return moved;
  SHOAL_RETURN_IF_ERROR(failure(result, "the connection"));
  return 0;
}

Result<size_t> TlsStream::write(ByteView from) {
  ERR_clear_error();
  size_t moved = 0;
  const int result = SSL_write_ex(tls_, from.data(), from.size(), &moved);
  if (result == 1) {
    if (++records_written_ < context_->records_per_key()) return moved;
    records_written_ = 0;
    // TLS sends the update before the next record.
    if (SSL_key_update(tls_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) return moved;
    return Status(Code::unavailable, "TLS cannot update its key: " + describe(ERR_peek_error()));
  }
  SHOAL_RETURN_IF_ERROR(failure(result, "the connection"));
  return 0;
}

Status TlsStream::flush() {
  if (wire_->flush()) return ok_status();
  return Status(Code::unavailable, fmt::format("the connection broke: {}", std::strerror(wire_->error)));
}

bool TlsStream::has_unsent() const {
  return !wire_->unsent.empty();
}

bool TlsStream::has_offered_key() const {
  return SSL_session_reused(tls_) == 1;
}

bool TlsStream::wants_to_write() const {
  return !is_connected_ || has_unsent();
}

void TlsStream::end_writing() {
  wire_->ends_writing = true;
  (void)wire_->flush();
}

// OK: the operation must wait.
Status TlsStream::failure(int result, const char* what) {
  const int kind = SSL_get_error(tls_, result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return ok_status();
  if (wire_->error != 0) {
    return Status(Code::unavailable, fmt::format("the connection broke: {}", std::strerror(wire_->error)));
  }
  const unsigned long error = ERR_peek_error();
  if (kind == SSL_ERROR_ZERO_RETURN || (error == 0 && wire_->has_ended)) {
    return Status(Code::unavailable, "the connection was closed");
  }
  if (!is_proven_) return handshake_failure(error);
  return Status(Code::unavailable, fmt::format("{} broke: TLS: {}", what, describe(error)));
}

Status TlsStream::handshake_failure(unsigned long error) {
  const bool is_connector = role_ == HandshakeRole::connector;
  switch (ERR_GET_REASON(error)) {
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
      if (is_connector) return Status(Code::refused, "the listener has another token than this node");
      break;
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      if (is_connector) return Status(Code::refused, "the roots differ: the listener uses another one");
      break;
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_BAD_PSK:
      return Status(Code::refused, "the connector does not know this job's token");
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
      if (!is_connector) return Status(Code::refused, "the roots differ, or the connector is not a node");
      break;
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return Status(Code::unavailable, "the peer is not a node of a job: it showed a certificate");
    case SSL_R_WRONG_VERSION_NUMBER:
      return Status(is_connector ? Code::unavailable : Code::refused,
                    "the peer does not speak TLS: it is not a node, or it is an older version");
    default:
      break;
  }
  return Status(is_connector ? Code::unavailable : Code::refused,
                fmt::format("the TLS handshake failed: {}", describe(error)));
}

}  // namespace shoal::transport
