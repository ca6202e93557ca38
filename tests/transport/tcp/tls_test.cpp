// TLS at the two ends of one connection.
#include "transport/tcp/tls.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "base/host_port.h"
#include "base/owned_fd.h"
#include "tests/transport/live/recording_handler.h"
#include "transport/tcp/resolver.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Ends {
  explicit Ends(uint64_t records_per_key) {
    int sockets[2];
    SHOAL_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
    auto open = [&](int socket, transport::HandshakeRole role) {
      auto context = transport::TlsContext::create(as_view("token"), RootId{}, records_per_key);
      SHOAL_CHECK(context.ok());
      auto stream = transport::TlsStream::open(*context, base::OwnedFd(socket), role);
      SHOAL_CHECK(stream.ok());
      return std::move(*stream);
    };
    listener.emplace(open(sockets[0], transport::HandshakeRole::listener));
    connector.emplace(open(sockets[1], transport::HandshakeRole::connector));
    // A socketpair is connected from the beginning, as a listener's socket is.
    while (!(listener->is_proven() && connector->is_proven())) {
      SHOAL_CHECK(connector->prove().ok());
      SHOAL_CHECK(listener->prove().ok());
    }
  }
  std::optional<transport::TlsStream> listener, connector;
};

TEST(Tls, CarriesBytesThroughManyChangesOfTheKey) {
  Ends ends(3);
  const Bytes sent = make_message(size_t{2} << 20, 7);
  Bytes received(sent.size());
  size_t written = 0, read = 0;
  while (read < sent.size()) {
    if (written < sent.size()) {
      auto moved = ends.connector->write(ByteView(sent).subspan(written));
      ASSERT_TRUE(moved.ok()) << moved.status().to_string();
      written += *moved;
    }
    ASSERT_TRUE(ends.connector->flush().ok());
    auto moved = ends.listener->read(MutableByteView(received).subspan(read));
    ASSERT_TRUE(moved.ok()) << moved.status().to_string();
    read += *moved;
  }
  EXPECT_TRUE(received == sent);
}

// A server of TLS with a certificate of its own and without the job's token, at an address where a node is
// looked for.
class Impostor {
 public:
  Impostor()
      : listener_(
            *transport::Listener::listen(*transport::resolve(base::HostPort{"127.0.0.1", 0}, true), {})) {
    thread_ = std::thread([this] { run(); });
  }
  ~Impostor() {
    stops_ = true;
    thread_.join();
  }
  std::string address() const { return base::to_string(base::HostPort{"127.0.0.1", listener_.port()}); }
  bool has_shaken_hands() const { return has_shaken_hands_; }

 private:
  void run() {
    SSL_CTX* context = SSL_CTX_new(TLS_server_method());
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), -1000);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 100000);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    SHOAL_CHECK(SSL_CTX_use_certificate(context, certificate) == 1 &&
                SSL_CTX_use_PrivateKey(context, key) == 1);
    while (!stops_) {
      auto visitor = listener_.accept();
      if (!visitor.ok()) {
        std::this_thread::yield();
        continue;
      }
      fcntl(visitor->socket.get(), F_SETFL, 0);
      SSL* tls = SSL_new(context);
      SSL_set_fd(tls, visitor->socket.get());
      char first = 0;
      if (SSL_accept(tls) == 1 && SSL_read(tls, &first, 1) == 1) has_shaken_hands_ = true;
      SSL_free(tls);
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
    SSL_CTX_free(context);
  }

  transport::Listener listener_;
  std::atomic<bool> stops_ = false, has_shaken_hands_ = false;
  std::thread thread_;
};

TEST(Tls, TellsNothingToAServerThatShowsACertificateInPlaceOfTheToken) {
  Impostor impostor;
  Node node(make_options(false, "node"));
  ASSERT_TRUE(node.start().ok());
  Status why = node.handler.wait_lost(node.transport->connect(impostor.address()));
  EXPECT_FALSE(why.ok());
  EXPECT_NE(why.code(), Code::refused) << "it is no node";
  EXPECT_THAT(why.message(), HasSubstr("certificate"));
  EXPECT_FALSE(impostor.has_shaken_hands());
}

}  // namespace
}  // namespace shoal::testing
