#include "cli/calibrate/calibrate_hosts.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <set>

#include "cli/calibrate/measure_together.h"
#include "shoal/bytes.h"

namespace shoal::cli {

namespace {

using nlohmann::ordered_json;

constexpr size_t kChangeThreads = 8;
// Of the sum of what each host gets alone. If all together get more, the storage had room left.
constexpr double kNotSaturated = 0.9;

struct SpeedsOfOne {
  double one_by_one_p50_s = 0, one_by_one_p99_s = 0;  // alone, by one thread
  ChangeSpeed alone, together;
  double alone_bytes_per_s = 0, together_bytes_per_s = 0;
};

ordered_json to_json(const ChangeSpeed& changes, double bytes_per_s) {
  return {{"bytes_per_s", static_cast<int64_t>(bytes_per_s)},
          {"changes_per_s", static_cast<int64_t>(changes.changes_per_s)},
          {"create_p50_ns", nanoseconds(changes.create_p50_s)},
          {"create_p99_ns", nanoseconds(changes.create_p99_s)}};
}

Status read_speed(const ordered_json& json, ChangeSpeed* changes, double* bytes_per_s) {
  if (!json.is_object()) return Status(Code::corrupt, "another host published no object");
  *bytes_per_s = json.value("bytes_per_s", 0.0);
  changes->changes_per_s = json.value("changes_per_s", 0.0);
  changes->create_p50_s = json.value("create_p50_ns", 0.0) / 1e9;
  changes->create_p99_s = json.value("create_p99_ns", 0.0) / 1e9;
  const bool is_whole = *bytes_per_s > 0 && changes->changes_per_s > 0 && changes->create_p50_s > 0;
  return is_whole ? ok_status() : Status(Code::corrupt, "another host published no speeds");
}

LoadGate gate_of(HostMeeting& meeting, const std::string& what, double seconds) {
  const auto meet = [&meeting](const std::string& stem) -> Status {
    SHOAL_RETURN_IF_ERROR(meeting.publish(stem, ""));
    return meeting.wait_for_all(stem).status();
  };
  return {[meet, what] { return meet(what + "-loads"); }, [meet, what] { return meet(what + "-counted"); },
          [&meeting] { return meeting.check(); }, seconds};
}

// What this host measures, in the folders that all hosts use.
class HostTurns {
 public:
  HostTurns(HostMeeting& meeting, const MeetingOptions& options, double seconds)
      : meeting_(meeting),
        options_(options),
        seconds_(seconds),
        names_(meeting.folder() + "/names"),
        files_(meeting.folder() + "/files"),
        own_(fmt::format("host-{}", meeting.self())) {}

  Status alone() {
    for (const std::string& folder : {names_, files_}) {
      if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
        return Status(Code::io, fmt::format("{}: {}", folder, std::strerror(errno)));
      }
    }
    for (uint32_t host = 0; host < meeting_.self(); ++host) {
      SHOAL_RETURN_IF_ERROR(meeting_.wait_for("alone", host).status());
    }
    options_.note("measuring the storage alone: " + options_.root);
    const LoadGate gate = no_gate([this] { return meeting_.check(); }, seconds_);
    SHOAL_ASSIGN_OR_RETURN(const ChangeSpeed one, measure_changes(names_, own_, 1, gate));
    SHOAL_ASSIGN_OR_RETURN(const ChangeSpeed changes, measure_changes(names_, own_, kChangeThreads, gate));
    SHOAL_ASSIGN_OR_RETURN(const double writes, measure_writes(files_, own_, options_.bytes, gate));
    ordered_json json = to_json(changes, writes);
    json["one_by_one_p50_ns"] = nanoseconds(one.create_p50_s);
    json["one_by_one_p99_ns"] = nanoseconds(one.create_p99_s);
    return meeting_.publish("alone", json.dump());
  }

  Status together() {
    SHOAL_RETURN_IF_ERROR(meeting_.wait_for_all("alone").status());
    options_.note("measuring the storage with all hosts at once");
    SHOAL_ASSIGN_OR_RETURN(
        const ChangeSpeed changes,
        measure_changes(names_, own_, kChangeThreads, gate_of(meeting_, "changes", seconds_)));
    SHOAL_ASSIGN_OR_RETURN(const double writes, measure_writes(files_, own_, options_.bytes,
                                                               gate_of(meeting_, "writes", seconds_)));
    return meeting_.publish("together", to_json(changes, writes).dump());
  }

  Result<std::vector<SpeedsOfOne>> collect() {
    SHOAL_ASSIGN_OR_RETURN(const auto alone, meeting_.wait_for_all("alone"));
    SHOAL_ASSIGN_OR_RETURN(const auto together, meeting_.wait_for_all("together"));
    std::vector<SpeedsOfOne> out(alone.size());
    for (size_t host = 0; host < out.size(); ++host) {
      const auto json = ordered_json::parse(alone[host], nullptr, false);
      SHOAL_RETURN_IF_ERROR(read_speed(json, &out[host].alone, &out[host].alone_bytes_per_s));
      out[host].one_by_one_p50_s = json.value("one_by_one_p50_ns", 0.0) / 1e9;
      out[host].one_by_one_p99_s = json.value("one_by_one_p99_ns", 0.0) / 1e9;
      SHOAL_RETURN_IF_ERROR(read_speed(ordered_json::parse(together[host], nullptr, false),
                                       &out[host].together, &out[host].together_bytes_per_s));
    }
    return out;
  }

 private:
  HostMeeting& meeting_;
  const MeetingOptions& options_;
  const double seconds_;
  const std::string names_, files_, own_;
};

template <class Of>
double sum_of(const std::vector<SpeedsOfOne>& speeds, Of of) {
  return std::accumulate(speeds.begin(), speeds.end(), 0.0,
                         [&](double so_far, const SpeedsOfOne& each) { return so_far + of(each); });
}
template <class Of>
double median_of(const std::vector<SpeedsOfOne>& speeds, Of of) {
  std::vector<double> values;
  for (const SpeedsOfOne& each : speeds) values.push_back(of(each));
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string who_measured(const std::vector<std::string>& names) {
  const size_t hosts = std::set<std::string>(names.begin(), names.end()).size();
  if (hosts == names.size()) return fmt::format("{} hosts", hosts);
  return fmt::format("{} processes on {} host{}", names.size(), hosts, hosts == 1 ? "" : "s");
}

// What all hosts got, of the sum of what each got alone.
std::string share_text(double share, const char* if_not_saturated) {
  return fmt::format("{:.0f} % of the sum of what each got alone{}", share * 100,
                     share >= kNotSaturated ? if_not_saturated : "");
}

void summarize(const std::vector<SpeedsOfOne>& speeds, const std::vector<std::string>& names,
               HostsCalibrated* out) {
  const double bytes = sum_of(speeds, [](const auto& each) { return each.together_bytes_per_s; });
  const double bytes_alone = sum_of(speeds, [](const auto& each) { return each.alone_bytes_per_s; });
  const double changes = sum_of(speeds, [](const auto& each) { return each.together.changes_per_s; });
  const double changes_alone = sum_of(speeds, [](const auto& each) { return each.alone.changes_per_s; });
  const double client = median_of(speeds, [](const auto& each) { return each.alone_bytes_per_s; });
  const double one = median_of(speeds, [](const auto& each) { return each.one_by_one_p50_s; });
  const double change = 1 / changes;
  const std::string who = who_measured(names);
  out->numbers = {
      {"storage.round_trip_ns", nanoseconds(std::max(one - change, one / 10)), true,
       fmt::format("median of {}, each alone: median of files made one after the other, less change_ns",
                   who)},
      {"storage.change_ns", nanoseconds(change), true,
       fmt::format(
           "{} made and removed files in one folder at the same time, {} threads each: {:.0f} changes/s, {}",
           who, kChangeThreads, changes,
           share_text(changes / changes_alone, ", so the true number may be less"))},
      {"storage.client_bytes_per_s", static_cast<int64_t>(client), true,
       fmt::format("median of {}, each alone: files written at once and synced", who)},
      {"storage.total_bytes_per_s", static_cast<int64_t>(bytes), true,
       fmt::format("{} wrote and synced files at the same time: {}", who,
                   share_text(bytes / bytes_alone, ", so the true number may be greater"))},
  };
  ordered_json hosts = ordered_json::array();
  for (size_t i = 0; i < speeds.size(); ++i) {
    const SpeedsOfOne& each = speeds[i];
    ordered_json alone = to_json(each.alone, each.alone_bytes_per_s);
    alone["one_by_one_p50_ns"] = nanoseconds(each.one_by_one_p50_s);
    alone["one_by_one_p99_ns"] = nanoseconds(each.one_by_one_p99_s);
    hosts.push_back({{"name", names[i]},
                     {"alone", std::move(alone)},
                     {"together", to_json(each.together, each.together_bytes_per_s)}});
    out->report.push_back(fmt::format(
        "{}: {}/s and {:.0f} changes/s alone, {}/s and {:.0f} changes/s with all; a file is made in {} "
        "alone, in {} with all",
        names[i], human_bytes(static_cast<uint64_t>(each.alone_bytes_per_s)), each.alone.changes_per_s,
        human_bytes(static_cast<uint64_t>(each.together_bytes_per_s)), each.together.changes_per_s,
        human_seconds(each.one_by_one_p50_s), human_seconds(each.together.create_p50_s)));
  }
  out->report.push_back(fmt::format(
      "{} at once: {}/s, {}; {:.0f} changes/s, {}", who, human_bytes(static_cast<uint64_t>(bytes)),
      share_text(bytes / bytes_alone, ""), changes, share_text(changes / changes_alone, "")));
  out->speeds = {{"hosts", std::move(hosts)},
                 {"total",
                  {{"bytes_per_s", static_cast<int64_t>(bytes)},
                   {"changes_per_s", static_cast<int64_t>(changes)},
                   {"bytes_of_sum_alone", bytes / bytes_alone},
                   {"changes_of_sum_alone", changes / changes_alone}}}};
}

Status take_turns(HostMeeting& meeting, const MeetingOptions& options, double seconds,
                  const ProfileWriter& writer, HostsCalibrated* out) {
  if (out->is_here) SHOAL_RETURN_IF_ERROR(writer.check());
  HostTurns turns(meeting, options, seconds);
  SHOAL_RETURN_IF_ERROR(turns.alone());
  SHOAL_RETURN_IF_ERROR(turns.together());
  if (!out->is_here) return meeting.wait_for("done", 0).status();
  SHOAL_ASSIGN_OR_RETURN(const auto speeds, turns.collect());
  summarize(speeds, meeting.names(), out);
  SHOAL_RETURN_IF_ERROR(writer.write(*out));
  return meeting.publish("done", "");
}

}  // namespace

Result<HostsCalibrated> calibrate_hosts(const MeetingOptions& options, double seconds,
                                        const ProfileWriter& writer) {
  options.note(fmt::format("waiting for {} hosts in {}", options.hosts, options.root));
  SHOAL_ASSIGN_OR_RETURN(const auto meeting, HostMeeting::join(options));
  HostsCalibrated out;
  out.is_here = meeting->self() == 0;
  out.profile_by = meeting->names()[0];
  out.folder = meeting->folder();
  options.note(fmt::format("all have come; {} writes the profile", out.profile_by));
  const Status done = take_turns(*meeting, options, seconds, writer, &out);
  if (!done.ok()) {
    meeting->fail(done);
    return done;
  }
  return out;
}

}  // namespace shoal::cli
