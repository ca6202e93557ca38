// Shoal calibrate: measures a profile of this machine, its storage and its network for `shoal sim`.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "base/host_port.h"
#include "cli/calibrate/calibrate_hosts.h"
#include "cli/calibrate/measure.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/text_file.h"
#include "shoal/bytes.h"
#include "transport/transport.h"

namespace shoal::cli {

namespace {

struct CalibrateOptions {
  std::string root, peer, listen, out, name = "here", secret;
  std::string bytes = "1GiB";
  uint32_t hosts = 1, patience_s = 120;
  double seconds = 3;
  bool serve = false, json = false;
};

using nlohmann::ordered_json;

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
    "  srun -N 16 --ntasks-per-node=1 shoal calibrate --root /lustre/run --hosts 16 --out our-cluster.toml\n"
    "\n"
    "With --hosts N start it on N hosts, one process a host. They meet by files in ROOT and need no\n"
    "network. Each host measures the storage alone, one after the other, then all at once. So the profile\n"
    "has the bandwidth of one host and of all, and what the metadata server gets done in total. It takes\n"
    "about ten seconds a host. The first host to come writes the profile. If a host does not come, or is\n"
    "lost, all others end within --patience with an error that names it.\n"
    "\n"
    "Exit status: 0 success; 2 an argument is invalid, ROOT cannot be written, or a peer or a host does\n"
    "not answer; 130 or 143 after SIGINT or SIGTERM.";

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

// The tables that one host can measure for all.
Result<MeasuredNumbers> measure_network_and_processor(const CalibrateOptions& options,
                                                      const std::string& secret) {
  note(options.peer.empty() ? "network: measuring the loopback, because --peer is not set"
                            : "network: measuring the way to " + options.peer);
  SHOAL_ASSIGN_OR_RETURN(MeasuredNumbers numbers, measure_network(options.peer, secret));
  note("measuring processor and memory");
  for (MeasuredNumber& each : measure_processor()) numbers.push_back(std::move(each));
  return numbers;
}

ordered_json numbers_json(const MeasuredNumbers& numbers) {
  ordered_json out = ordered_json::array();
  for (const MeasuredNumber& each : numbers) {
    out.push_back({{"number", each.key},
                   {"value", each.value},
                   {"kind", each.is_measured ? "measured" : "assumed"},
                   {"source", each.how}});
  }
  return out;
}

// Writes the profile to --out, or prints it or its JSON. `fields`: further fields of the JSON.
Status deliver(const CalibrateOptions& options, const MeasuredNumbers& numbers, const std::string& where,
               const ordered_json& fields) {
  const std::string text =
      profile_file(options.name, fmt::format("Measured on {} at {}, {}", where, options.root, today()),
                   numbers, fmt::format("shoal calibrate on {}, {}: ", where, today()));
  if (!options.out.empty()) {
    SHOAL_RETURN_IF_ERROR(write_text(options.out, text));
    note("wrote " + options.out);
  }
  if (options.json) {
    ordered_json out = {{"root", options.root}, {"profile_by", host_name()}};
    out.update(fields);
    out["numbers"] = numbers_json(numbers);
    print_json("calibrate", out);
  } else if (options.out.empty()) {
    fmt::print("{}", text);
  }
  return ok_status();
}

Status calibrate_here(const CalibrateOptions& options, uint64_t bytes, const std::string& secret) {
  if (!options.out.empty()) SHOAL_RETURN_IF_ERROR(check_writable(options.out));
  SHOAL_ASSIGN_OR_RETURN(MeasuredNumbers numbers, measure_network_and_processor(options, secret));
  note("measuring storage: " + options.root);
  SHOAL_ASSIGN_OR_RETURN(const MeasuredNumbers storage, measure_storage(options.root, bytes));
  numbers.insert(numbers.end(), storage.begin(), storage.end());
  return deliver(options, numbers, host_name(), ordered_json::object());
}

Status calibrate_all(const CalibrateOptions& options, uint64_t bytes, const std::string& secret) {
  MeetingOptions meeting;
  meeting.root = options.root;
  meeting.hosts = options.hosts;
  meeting.bytes = bytes;
  meeting.patience = std::chrono::seconds(options.patience_s);
  meeting.name = host_name();
  meeting.is_stopped = [] { return Interrupts::signal_number() != 0; };
  meeting.note = note;
  ProfileWriter writer;
  writer.check = [&] { return options.out.empty() ? ok_status() : check_writable(options.out); };
  writer.write = [&](HostsCalibrated& all) -> Status {
    SHOAL_ASSIGN_OR_RETURN(MeasuredNumbers numbers, measure_network_and_processor(options, secret));
    note("measuring the rest of the storage's numbers on this host");
    SHOAL_ASSIGN_OR_RETURN(MeasuredNumbers storage, measure_storage(all.folder, bytes));
    for (MeasuredNumber& number : storage) {
      const auto better = std::find_if(all.numbers.begin(), all.numbers.end(),
                                       [&](const MeasuredNumber& each) { return each.key == number.key; });
      numbers.push_back(better == all.numbers.end() ? std::move(number) : *better);
    }
    for (const std::string& line : all.report) note(line);
    return deliver(options, numbers, fmt::format("{} hosts, first {}", options.hosts, host_name()),
                   all.speeds);
  };
  SHOAL_ASSIGN_OR_RETURN(const HostsCalibrated all, calibrate_hosts(meeting, options.seconds, writer));
  if (all.is_here) return ok_status();
  note(all.profile_by + " has written the profile, the first host to come");
  if (options.json) print_json("calibrate", {{"root", options.root}, {"profile_by", all.profile_by}});
  return ok_status();
}

Status calibrate(const CalibrateOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const uint64_t bytes, parse_bytes(options.bytes));
  if (::access(options.root.c_str(), W_OK | X_OK) != 0) {
    return Status(Code::not_found, fmt::format("{}: {}", options.root, std::strerror(errno)));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string secret,
                         secret_for(options, options.peer.empty() ? "127.0.0.1:0" : options.peer));
  return options.hosts > 1 ? calibrate_all(options, bytes, secret) : calibrate_here(options, bytes, secret);
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
  command->add_option("--hosts", options->hosts, "Measure with so many hosts: start it on each of them")
      ->capture_default_str()
      ->check(CLI::Range(1u, kMostMeetingHosts));
  command
      ->add_option("--patience", options->patience_s,
                   "Most seconds for all hosts to come, and without a sign of life of one")
      ->capture_default_str()
      ->check(CLI::Range(1u, 3600u));
  command->add_option("--seconds", options->seconds, "With --hosts: time that each measurement counts")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 600.0));
  command->add_flag("--json", options->json, "One JSON object with all numbers, and with those of each host");
  command->footer(kCalibrateFooter);
  command->callback([options, chosen] {
    *chosen = [options] {
      if (options->serve) return serve(*options);
      const Interrupts interrupts;
      const Status done =
          options->root.empty()
              ? Status(Code::invalid_argument, "--root is missing: name a folder on the storage to measure")
              : calibrate(*options);
      if (done.ok()) return kExitOk;
      const int status = report_unusable(done);
      return Interrupts::signal_number() != 0 ? Interrupts::kExitStatus + Interrupts::signal_number()
                                              : status;
    };
  });
}

}  // namespace shoal::cli
