// A client of a server on the loopback, for tests.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstdint>
#include <string>

#include "base/owned_fd.h"

namespace shoal {

// Connects, with a long timeout for what is received.
inline base::OwnedFd connect_to_loopback(uint16_t port) {
  base::OwnedFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience{20, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return fd;
}

// What arrives until the server closes the connection.
inline std::string read_all(const base::OwnedFd& fd) {
  std::string out;
  char buffer[4096];
  for (ssize_t size; (size = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;) {
    out.append(buffer, static_cast<size_t>(size));
  }
  return out;
}

}  // namespace shoal
