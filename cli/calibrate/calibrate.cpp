// Shoal calibrate: measures a profile of this machine, its storage and its network for `shoal sim`.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

#include "base/host_port.h"
#include "cli/calibrate/measure.h"
#include "cli/commands.h"
#include "cli/text_file.h"
#include "shoal/bytes.h"
#include "transport/transport.h"

namespace shoal::cli {

namespace {

struct CalibrateOptions {
  std::string root, peer, listen, out, name = "here", secret;
  std::string bytes = "1GiB";
  bool serve = false;
};

constexpr const char* kSecretOnOneHost = "shoal calibrate";

constexpr const char* kCalibrateFooter =
    "Writes a profile (TOML) to standard output or to --out. Each number in it states how it was measured.\n"
    "Numbers that one machine cannot measure are marked 'assumed', and you may edit them. The command\n"
    "takes about half a minute and some memory. It writes to a folder of its own in ROOT and removes it at\n"
    "the end. Run it on an idle machine.\n"
    "\n"
    "Examples:\n"
    "  shoal calibrate --root /checkpoints --out here.toml\n"
    "  shoal sim --profile here.toml --ranks 4096\n"
    "  node1$ shoal calibrate --serve --listen 10.0.0.1:7171 --secret WORD     and, on another host:\n"
    "  node2$ shoal calibrate --root /lustre/run --peer 10.0.0.1:7171 --secret WORD --name our-cluster \\\n"
    "                         --out our-cluster.toml\n"
    "\n"
    "Exit status: 0 success; 2 an argument is invalid, ROOT cannot be written, or the peer does not\n"
    "answer.";

std::atomic<bool> stop_serving{false};

void note(const std::string& text) {
  fmt::print(stderr, "calibrate: {}\n", text);
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  ::gmtime_r(&now, &date);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &date);
  return text.data();
}

// A default secret is public and protects nothing, so it is only for the loopback.
Result<std::string> secret_for(const CalibrateOptions& options, const std::string& address) {
  if (!options.secret.empty()) return options.secret;
  SHOAL_ASSIGN_OR_RETURN(const base::HostPort place, base::parse_host_port(address));
  if (place.host == "localhost" || place.host == "::1" || place.host.starts_with("127.")) {
    return std::string(kSecretOnOneHost);
  }
  return Status(Code::invalid_argument,
                fmt::format("other hosts can reach {}: set --secret WORD, equal on both sides", address));
}

int serve(const CalibrateOptions& options) {
  std::signal(SIGINT, [](int) { stop_serving = true; });
  std::signal(SIGTERM, [](int) { stop_serving = true; });
  const std::string listen = options.listen.empty() ? "127.0.0.1:0" : options.listen;
  const Result<std::string> secret = secret_for(options, listen);
  if (!secret.ok()) return report_unusable(secret.status());
  const Status served = serve_measurements(listen, *secret, stop_serving, [](const std::string& address) {
    fmt::print("{}\n", address);
    std::fflush(stdout);
    note("serving at " + address + "; stop it with Ctrl-C");
  });
  return served.ok() ? kExitOk : report_unusable(served);
}

Status calibrate(const CalibrateOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const uint64_t bytes, parse_bytes(options.bytes));
  if (::access(options.root.c_str(), W_OK | X_OK) != 0) {
    return Status(Code::not_found, fmt::format("{}: {}", options.root, std::strerror(errno)));
  }
  if (!options.out.empty()) SHOAL_RETURN_IF_ERROR(check_writable(options.out));
  note(options.peer.empty() ? "network: measuring the loopback, because --peer is not set"
                            : "network: measuring the way to " + options.peer);
  const bool is_alone = options.peer.empty();
  SHOAL_ASSIGN_OR_RETURN(const std::string secret,
                         secret_for(options, is_alone ? "127.0.0.1:0" : options.peer));
  SHOAL_ASSIGN_OR_RETURN(MeasuredNumbers numbers, measure_network(options.peer, secret));
  note("measuring processor and memory");
  for (MeasuredNumber& each : measure_processor()) numbers.push_back(std::move(each));
  note("measuring storage: " + options.root);
  SHOAL_ASSIGN_OR_RETURN(const MeasuredNumbers storage, measure_storage(options.root, bytes));
  numbers.insert(numbers.end(), storage.begin(), storage.end());
  const std::string host = host_name();
  const std::string text =
      profile_file(options.name, fmt::format("Measured on {} at {}, {}", host, options.root, today()),
                   numbers, fmt::format("shoal calibrate on {}, {}: ", host, today()));
  if (options.out.empty()) {
    fmt::print("{}", text);
    return ok_status();
  }
  SHOAL_RETURN_IF_ERROR(write_text(options.out, text));
  note("wrote " + options.out);
  return ok_status();
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

}  // namespace

std::string profile_file(const std::string& name, const std::string& about, const MeasuredNumbers& numbers,
                         const std::string& source_prefix) {
  std::string out = fmt::format(
      "# Costs of a cluster, for shoal sim. docs/explanation/simulator.md explains each number.\n"
      "name = {}\n"
      "about = {}\n",
      quoted(name), quoted(about));
  for (const char* table : {"network", "cpu", "trainer", "storage"}) {
    out += fmt::format("\n[{}]\n", table);
    if (std::string_view(table) == "storage") out += "interface = \"files\"\n";
    for (const MeasuredNumber& each : numbers) {
      const size_t dot = each.key.find('.');
      if (each.key.substr(0, dot) != table) continue;
      out += fmt::format("{} = {{ value = {}, kind = \"{}\", source = {} }}\n", each.key.substr(dot + 1),
                         each.value, each.is_measured ? "measured" : "assumed",
                         quoted(each.is_measured ? source_prefix + each.how : each.how));
    }
  }
  return out;
}

void add_calibrate_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand(
      "calibrate", "Measure this machine, its storage and its network, and write a profile for `shoal sim`");
  auto options = std::make_shared<CalibrateOptions>();
  command->add_option("--root", options->root, "Folder on the storage to measure");
  command->add_option("--peer", options->peer, "HOST:PORT of `shoal calibrate --serve` on another host");
  command->add_flag("--serve", options->serve,
                    "Answer the measurements of another host's --peer until Ctrl-C");
  command->add_option("--listen", options->listen,
                      "HOST:PORT for --serve; default: 127.0.0.1 and any free port");
  command->add_option("--secret", options->secret,
                      "Secret that both hosts must have; required on different hosts");
  command->add_option("--bytes", options->bytes, "Most bytes to write to the storage")->capture_default_str();
  command->add_option("--name", options->name, "Name of the profile")->capture_default_str();
  command->add_option("--out", options->out, "File for the profile; default: standard output");
  command->footer(kCalibrateFooter);
  command->callback([options, chosen] {
    *chosen = [options] {
      if (options->serve) return serve(*options);
      if (options->root.empty()) {
        return report_unusable(
            Status(Code::invalid_argument, "--root is missing: name a folder on the storage to measure"));
      }
      const Status done = calibrate(*options);
      return done.ok() ? kExitOk : report_unusable(done);
    };
  });
}

}  // namespace shoal::cli
