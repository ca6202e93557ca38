#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/host_port.h"
#include "base/owned_fd.h"
#include "base/parent_only.h"
#include "client/launch/job_id_service.h"
#include "client/launch/own_address.h"
#include "client/session/node_process.h"
#include "local/job/job_proof.h"
#include "local/job/job_token.h"
#include "local/socket/question_server.h"
#include "local/socket/socket_file.h"
#include "shoal/bytes.h"
#include "shoal/hash.h"

// The protocol: on each connection rank 0 sends a greeting, gets one question and sends one answer. Numbers
// are 32 bits, little-endian.
// - Greeting: "SHJ2" and a nonce of 32 bytes.
// - Question: "SHJ2", world size, length of the run id, the client's nonce, a proof, the run id.
// - Answer: "SHJ2", 0 or 1 (refused), length, rank 0's nonce again, a proof, the job id or the reason.
// A proof (local/job/job_proof.h) covers both nonces, the number and the text, under the job token. Rank 0
// closes a connection whose proof is wrong without an answer.
//
// On one host the socket is in a folder that only the user can access, and the key is a constant.

namespace shoal::client {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kMagic = "SHJ2";
constexpr std::string_view kQuestionLabel = "shoal-job-id-question", kAnswerLabel = "shoal-job-id-answer";
constexpr std::string_view kKeyOnOneHost = "one host";
constexpr size_t kGreetingBytes = kMagic.size() + local::kJobNonceBytes;
constexpr size_t kHeadBytes = kMagic.size() + 4 + 4 + local::kJobNonceBytes + local::kJobProofBytes;
constexpr int kBacklog = 4096;  // ranks that connect at the same time
constexpr std::chrono::seconds kExchangeMost{2};
constexpr std::chrono::milliseconds kPause{100};
constexpr std::chrono::seconds kFloodLineEvery{10};
constexpr local::QuestionLimits kLimits{
    .connections_max = 64, .question_bytes_max = kHeadBytes + kMaxRunBytes, .life_max = kExchangeMost};

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  std::string shown;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Status failed(const std::string& shown, int error) {
  return Status(Code::unavailable, fmt::format("{}: {}", shown, std::strerror(error)));
}

// The path of a unix socket in the folder of the node's socket.
Result<Address> local_address(const CheckpointerOptions& options) {
  // This file's name cannot contain the job id, which is not known yet.
  const std::string reader = options.read_only ? "run " + options.job_id_exchange->run : "";
  SHOAL_ASSIGN_OR_RETURN(local::NodePaths paths, local::node_paths(options.root, reader));
  SHOAL_ASSIGN_OR_RETURN(std::string node_socket, socket_of(options, paths));
  Address out;
  out.shown = node_socket + ".job";
  auto* address = reinterpret_cast<sockaddr_un*>(&out.storage);
  address->sun_family = AF_UNIX;
  if (out.shown.size() >= sizeof address->sun_path) {
    return Status(Code::invalid_argument, out.shown + ": the path is too long for a socket");
  }
  std::memcpy(address->sun_path, out.shown.c_str(), out.shown.size() + 1);
  out.bytes = sizeof(sockaddr_un);
  return out;
}

Result<Address> address_of(const CheckpointerOptions& options, bool to_listen) {
  const std::string& text = options.job_id_exchange->address;
  if (text.empty()) return local_address(options);
  SHOAL_ASSIGN_OR_RETURN(base::HostPort at, base::parse_host_port(text));
  // A rank on rank 0's host uses the address at which rank 0 listens, whatever the name resolves to here.
  if (to_listen || own_address(at.host)) {
    SHOAL_ASSIGN_OR_RETURN(at.host, address_to_serve_at(at.host));
  }
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (error != 0) return Status(Code::unavailable, fmt::format("{}: {}", text, ::gai_strerror(error)));
  Address out;
  std::memcpy(&out.storage, found->ai_addr, found->ai_addrlen);
  out.bytes = found->ai_addrlen;
  out.shown = text;
  ::freeaddrinfo(found);
  return out;
}

Result<Bytes> key_of(const CheckpointerOptions& options) {
  if (options.job_id_exchange->address.empty()) {
    return Bytes(as_view(kKeyOnOneHost).begin(), as_view(kKeyOnOneHost).end());
  }
  SHOAL_ASSIGN_OR_RETURN(Bytes token, local::find_token(""));
  if (!token.empty()) return token;
  return Status(Code::invalid_argument, fmt::format("ranks on several hosts need the job's token to agree on "
                                                    "a job id: set {} or {}, equal on all hosts",
                                                    local::kTokenFileVariable, local::kTokenVariable));
}

base::OwnedFd new_socket(const Address& address) {
  return base::OwnedFd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

struct Nonces {
  local::JobNonce service, asker;
};

struct Packet {
  uint32_t number = 0;
  local::JobNonce nonce{};  // nonce of the sender
  local::JobProof proof{};
  std::string text;
};

local::JobProof proof_of(ByteView key, std::string_view label, const Nonces& nonces, uint32_t number,
                         std::string_view text) {
  std::array<std::byte, 4> number_bytes;
  store_le32(number_bytes.data(), number);
  return local::job_proof(key, label, {nonces.service, nonces.asker, number_bytes, as_view(text)});
}

void append(std::string& out, ByteView bytes) {
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string encode(const Packet& packet) {
  std::array<std::byte, 8> numbers;
  store_le32(numbers.data(), packet.number);
  store_le32(numbers.data() + 4, static_cast<uint32_t>(packet.text.size()));
  std::string out(kMagic);
  append(out, numbers);
  append(out, packet.nonce);
  append(out, packet.proof);
  return out + packet.text;
}

// The length of the packet that begins with these bytes; kHeadBytes if there are too few to know it. nullopt:
// it is not such a packet.
std::optional<size_t> packet_bytes(std::string_view begun, size_t text_most) {
  if (!begun.starts_with(kMagic.substr(0, begun.size()))) return std::nullopt;
  if (begun.size() < kHeadBytes) return kHeadBytes;
  const uint32_t length = load_le32(as_view(begun).data() + kMagic.size() + 4);
  return length <= text_most ? std::optional(kHeadBytes + length) : std::nullopt;
}

// Decodes a whole packet.
Packet decode(std::string_view bytes) {
  const std::byte* at = as_view(bytes).data() + kMagic.size();
  Packet out;
  out.number = load_le32(at);
  std::memcpy(out.nonce.data(), at + 8, local::kJobNonceBytes);
  std::memcpy(out.proof.data(), at + 8 + local::kJobNonceBytes, local::kJobProofBytes);
  out.text = bytes.substr(kHeadBytes);
  return out;
}

// The fields after the magic.
local::JobNonce nonce_in(std::string_view greeting) {
  local::JobNonce out;
  std::memcpy(out.data(), greeting.data() + kMagic.size(), out.size());
  return out;
}

// Serves the id of rank 0's process at one address. On one host each root has an address of its own.
class Service {
 public:
  // Returns the id of this process, and serves it at the address of `options` from now on. A service is never
  // destroyed: its thread must serve the id as long as the process lives.
  static Result<std::string> job_id(const CheckpointerOptions& options, Clock::time_point deadline) {
    SHOAL_ASSIGN_OR_RETURN(Bytes key, key_of(options));
    std::string at = options.job_id_exchange->address;
    if (at.empty()) {
      SHOAL_ASSIGN_OR_RETURN(const Address local, local_address(options));
      at = local.shown;
    }
    static std::mutex mutex;
    static std::map<std::string, Service*> services;  // by address
    std::lock_guard lock(mutex);
    if (const auto found = services.find(at); found != services.end()) return found->second->job_id_;
    base::OwnedFd listener;
    Status listening;
    do {  // the rank 0 before may still hold the port, or a process that it started
      listening = listen(options, &listener);
      if (!listening.ok()) std::this_thread::sleep_for(kPause);
    } while (!listening.ok() && listening.code() != Code::invalid_argument && Clock::now() < deadline);
    SHOAL_RETURN_IF_ERROR(listening.with_context("rank 0 cannot serve the job id"));
    std::unique_ptr<Service> service(new Service(std::move(listener), std::move(key), options));
    try {
      std::thread([self = service.get()] { self->server_.run(); }).detach();
    } catch (const std::exception& error) {
      return Status(Code::no_space, fmt::format("rank 0 cannot start a thread that serves the job id: {}; "
                                                "raise the limit (ulimit -u, ulimit -v, or the container's)",
                                                error.what()));
    }
    return services.emplace(at, service.release()).first->second->job_id_;
  }

 private:
  // Equal at all addresses: a launcher that gives a job id also gives one for all roots.
  static const std::string& id_of_process() {
    static const std::string id = "rendezvous-" + random_128().to_hex();
    return id;
  }

  Service(base::OwnedFd listener, Bytes key, const CheckpointerOptions& options)
      : parent_only_(listener.get()),
        key_(std::move(key)),
        world_size_(options.world_size),
        run_(options.job_id_exchange->run),
        job_id_(id_of_process()),
        server_(std::move(listener), kLimits,
                {.greet = [] { return greet(); },
                 .answer = [this](std::string_view greeting,
                                  std::string_view question) { return answer(greeting, question); },
                 .too_long = "",
                 .turned_away = [this] { turned_away(); }}) {}

  static Status listen(const CheckpointerOptions& options, base::OwnedFd* listener) {
    SHOAL_ASSIGN_OR_RETURN(Address address, address_of(options, true));
    *listener = new_socket(address);
    const int on = 1;
    ::setsockopt(listener->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    // Only this user can write to the folder, and there is one rank 0: an existing socket is stale.
    if (address.storage.ss_family == AF_UNIX) {
      SHOAL_RETURN_IF_ERROR(local::remove_socket_file(address.shown));
    }
    if (!listener->valid() || ::bind(listener->get(), address.get(), address.bytes) != 0 ||
        ::listen(listener->get(), kBacklog) != 0) {
      return failed(address.shown, errno);
    }
    ::fcntl(listener->get(), F_SETFL, O_NONBLOCK);
    return ok_status();
  }

  // Writes at most one line to stderr in this many seconds, so that a flood of connections cannot fill a log.
  void turned_away() {
    ++turned_away_;
    const Clock::time_point now = Clock::now();
    if (turned_away_since_ && now < *turned_away_since_ + kFloodLineEvery) return;
    turned_away_since_ = now;
    std::fprintf(stderr,
                 "shoal: rank 0 closed %llu connections that had not requested the job id, because it had "
                 "more than it can serve at once\n",
                 static_cast<unsigned long long>(std::exchange(turned_away_, 0)));
  }

  static std::string greet() {
    std::string out(kMagic);
    append(out, local::random_job_nonce());
    return out;
  }

  std::optional<std::string> answer(std::string_view greeting, std::string_view question) const {
    const std::optional<size_t> bytes = packet_bytes(question, kMaxRunBytes);
    if (!bytes || question.size() > *bytes) return "";
    if (question.size() < *bytes) return std::nullopt;
    const Packet asked = decode(question);
    const Nonces nonces{nonce_in(greeting), asked.nonce};
    const local::JobProof expected = proof_of(key_, kQuestionLabel, nonces, asked.number, asked.text);
    if (!local::is_same_proof(asked.proof, expected)) return "";
    Packet answer;
    answer.nonce = nonces.service;
    answer.number = asked.text == run_ && asked.number == world_size_ ? 0 : 1;
    answer.text = answer.number == 0 ? job_id_
                                     : fmt::format("rank 0 at this address belongs to run '{}' with {} ranks",
                                                   run_, world_size_);
    answer.proof = proof_of(key_, kAnswerLabel, nonces, answer.number, answer.text);
    return encode(answer);
  }

  const base::ParentOnly parent_only_;  // a child that outlives rank 0 must not hold the port
  const Bytes key_;
  const uint32_t world_size_;
  const std::string run_, job_id_;
  uint64_t turned_away_ = 0;  // since the last line; only the server's thread uses it
  std::optional<Clock::time_point> turned_away_since_;
  local::QuestionServer server_;  // only its thread uses it
};

// Reads until `out` has that many bytes. False: they did not arrive in time.
bool receive(int fd, size_t bytes, Clock::time_point until, std::string* out) {
  while (out->size() < bytes) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd readable{fd, POLLIN, 0};
    if (left <= 0 || ::poll(&readable, 1, static_cast<int>(left)) <= 0) return false;
    char buffer[1024];
    const ssize_t size = ::recv(fd, buffer, std::min(sizeof buffer, bytes - out->size()), 0);
    if (size <= 0) return false;
    out->append(buffer, static_cast<size_t>(size));
  }
  return true;
}

std::optional<Packet> receive_packet(int fd, size_t text_most, Clock::time_point until) {
  std::string out;
  if (!receive(fd, kHeadBytes, until, &out)) return std::nullopt;
  const std::optional<size_t> bytes = packet_bytes(out, text_most);
  if (!bytes || !receive(fd, *bytes, until, &out)) return std::nullopt;
  return decode(out);
}

Result<std::string> ask(const CheckpointerOptions& options, const Bytes& key) {
  SHOAL_ASSIGN_OR_RETURN(Address address, address_of(options, false));
  const Clock::time_point until = Clock::now() + kExchangeMost;
  base::OwnedFd socket = new_socket(address);
  const timeval limit{kExchangeMost.count(), 0};  // also limits connect
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(socket.get(), address.get(), address.bytes) != 0) return failed(address.shown, errno);
  std::string greeting;
  if (!receive(socket.get(), kGreetingBytes, until, &greeting) || !greeting.starts_with(kMagic)) {
    return Status(Code::unavailable,
                  address.shown + ": no rank 0 of this version of Shoal answers at this address");
  }
  Packet question;
  question.number = options.world_size;
  question.nonce = local::random_job_nonce();
  question.text = options.job_id_exchange->run;
  const Nonces nonces{nonce_in(greeting), question.nonce};
  question.proof = proof_of(key, kQuestionLabel, nonces, question.number, question.text);
  const std::string sent = encode(question);
  const bool is_sent =
      ::send(socket.get(), sent.data(), sent.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(sent.size());
  const auto answer = is_sent ? receive_packet(socket.get(), kMaxJobIdTextBytes, until) : std::nullopt;
  // Rank 0 closes the connection without an answer if the tokens differ.
  if (!answer || !local::is_same_proof(answer->proof,
                                       proof_of(key, kAnswerLabel, nonces, answer->number, answer->text))) {
    return Status(
        Code::unavailable,
        fmt::format("{}: the answer does not prove the job's token: is {} or {} equal on all hosts?",
                    address.shown, local::kTokenFileVariable, local::kTokenVariable));
  }
  if (answer->number != 0 || answer->text.empty()) {
    return Status(Code::refused, fmt::format("{}: {}", address.shown, answer->text));
  }
  return answer->text;
}

}  // namespace

Result<std::string> agree_on_job_id(const CheckpointerOptions& options, Clock::time_point deadline) {
  if (options.job_id_exchange->run.size() > kMaxRunBytes) {
    return Status(Code::invalid_argument,
                  fmt::format("the id of a run must have at most {} bytes", kMaxRunBytes));
  }
  if (options.rank == 0) return Service::job_id(options, deadline);
  SHOAL_ASSIGN_OR_RETURN(const Bytes key, key_of(options));
  while (true) {
    Result<std::string> notified = ask(options, key);
    if (notified.ok()) return notified;
    const Status failed = notified.status().with_context("cannot get the job id from rank 0");
    if (Clock::now() >= deadline) return failed;
    if (options.keep_waiting && !options.keep_waiting()) return failed.with_context("interrupted");
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace shoal::client
