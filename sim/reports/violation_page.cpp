#include "sim/reports/violation_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sim/reports/chart.h"
#include "sim/reports/event_text.h"

namespace shoal::sim {

namespace {

constexpr size_t kLane = 190, kLeftEdge = 120, kRowHeight = 18, kHead = 34;

// docs/explanation/simulator.md has the same list.
constexpr std::array<std::pair<std::string_view, std::string_view>, 39> kMeanings = {{
    {"one-decision", "An attempt has one decision, the same for every reader, for ever."},
    {"notified-of-what-exists",
     "A trainer that is told of a commit finds the manifest, and one that is told of an abort a tombstone."},
    {"committed-durable", "Every file of a manifest, and of the plan of each rank, exists with its size."},
    {"latest-is-committed", "The latest checkpoint is a committed attempt, or there is none."},
    {"latest-goes-forward", "The latest checkpoint never gets older within a generation."},
    {"bounds", "Messages and slabs in use stay within their bounds."},
    {"slabs-outlive-writes", "No node unmaps a slab of which a write still reads."},
    {"slabs-come-back", "No slab is in use long after all saves are decided."},
    {"staged-is-saved",
     "What every rank has staged is committed, if trainers end and disks are slow at most."},
    {"needless-abort", "No save fails if all failures are ones that a save must survive."},
    {"cause-is-true",
     "The cause that a trainer receives for a save that failed is one that the failures give."},
    {"complete-is-committed", "An attempt all of whose files have long existed is not aborted."},
    {"replicas-are-named",
     "A save whose replicas differ says so and names the tensor. No other save says so."},
    {"commits-again", "A save that begins after all failures are over is committed."},
    {"ends-in-time", "Each living rank is told the outcome of a save within its deadline."},
    {"kept-by-rule", "Nothing is deleted that the rule or the pin of an operator keeps."},
    {"deletes-in-time", "Retention deletes what no rule keeps."},
    {"leases-end", "A checkpoint is held by no lease once no load needs it."},
    {"aborted-is-swept", "The files of aborted attempts are removed."},
    {"goes-quiet", "Nodes send nothing more when all is decided."},
    {"stops-in-time", "A node that is to end has drained before its deadline."},
    {"decides-in-time", "A later run decides what an earlier one left undecided."},
    {"load-is-committed",
     "A load chooses and reads committed checkpoints only, and files as they are listed."},
    {"load-is-newest", "A load of the latest chooses the newest checkpoint that its rule allows."},
    {"load-is-sound", "A load that may fall back chooses no checkpoint that was damaged when it began."},
    {"load-is-one", "All ranks of a load read the same checkpoint."},
    {"load-ends-in-time", "A load ends within its deadline, once failures stop."},
    {"choice-is-final", "What an earlier run began is not committed above the checkpoint that a load chose."},
    {"read-is-committed",
     "A trainer finds only what is committed, what it asked for, and what was not deleted."},
    {"read-finds", "What was committed when a trainer asked is found, unless it was deleted since."},
    {"read-is-whole", "A load that is reported as done has brought every value."},
    {"read-is-sound", "A load that may fall back finds no checkpoint that was damaged before it asked."},
    {"read-is-possible", "No read fails for a reason that the failures do not give."},
    {"open-is-kept", "A checkpoint that a trainer keeps open is not deleted."},
    {"read-ends-in-time", "A trainer whose node serves it receives an answer."},
    {"reader-finds", "A job that only reads finds the newest checkpoint, and all of its ranks the same one."},
    {"reader-is-possible",
     "A load of a job that only reads fails only if its checkpoint was deleted or damaged."},
    {"reader-ends-in-time", "A load of a job that only reads ends."},
    {"audit", "Read by the format alone, every committed attempt holds all bytes of its own step."},
}};

constexpr std::string_view kStyle =
    ":root{--bg:#fff;--fg:#1c1e21;--dim:#6a7078;--grid:#d8dbe0;--msg:#0072b2;--bad:#b3261e;--badbg:#fdecea;"
    "--good:#00734f}"
    "@media(prefers-color-scheme:dark){:root{--bg:#16181c;--fg:#e6e6e6;--dim:#a0a4aa;--grid:#343840;"
    "--msg:#6cb8ee;--bad:#ff8a80;--badbg:#3a1d1b;--good:#5fd3a6}}"
    "body{background:var(--bg);color:var(--fg);font:15px/1.45 system-ui,sans-serif;margin:2em auto;"
    "max-width:76em;padding:0 1em}"
    "h1{font-size:1.3em}h2{font-size:1.05em;margin-top:1.6em}code,pre,svg text{font-family:ui-monospace,"
    "monospace}pre{overflow-x:auto;border:1px solid var(--grid);padding:.6em}"
    ".violation{border-left:4px solid var(--bad);background:var(--badbg);padding:.6em .9em}"
    ".dim{color:var(--dim)}.scroll{overflow:auto;max-height:80vh;border:1px solid var(--grid)}"
    "svg text{font-size:11px;fill:var(--fg)}svg .t{fill:var(--dim)}svg .lane{stroke:var(--grid)}"
    "svg .m{stroke:var(--msg);fill:none}svg .head{fill:var(--msg)}svg .e{fill:var(--dim)}"
    "svg .f{fill:var(--badbg)}svg .ft{fill:var(--bad)}svg .ok{fill:var(--good)}";

size_t x_of(size_t node) {
  return kLeftEdge + kLane / 2 + node * kLane;
}

// What fits between two lanes.
std::string cut(const std::string& text, size_t lanes) {
  const size_t most = std::max<size_t>(1, lanes) * kLane / 7;
  return text.size() <= most ? text : text.substr(0, most - 1) + "…";
}

// Without the time and the place, which the page shows by position.
std::string text_of(const std::string& line) {
  const size_t place = line.find(": ");
  return place == std::string::npos ? line : line.substr(place + 2);
}

}  // namespace

std::string_view meaning_of_oracle(std::string_view oracle) {
  const auto found = std::ranges::find_if(kMeanings, [&](const auto& each) { return each.first == oracle; });
  return found == kMeanings.end() ? std::string_view() : found->second;
}

void ViolationPage::add(Row row) {
  if (row.kind == Row::Kind::message || row.kind == Row::Kind::event) {
    lanes_ = std::max({lanes_, row.node + 1, row.from + 1});
  }
  rows_.push_back(std::move(row));
  if (rows_.size() <= kMostRows) return;
  ++left_out_;
  rows_.pop_front();
}

SimulationListeners ViolationPage::listeners() {
  SimulationListeners listeners;
  listeners.event = [this](actors::TimeNs now, size_t node, actors::RoleKind role, const actors::Event& event,
                           size_t from) {
    const auto kind = from == node ? Row::Kind::event : Row::Kind::message;
    const std::string role_text(actors::role_name(role));
    add({kind, now, node, from, role_text + ": " + text_of(event_line(now, node, role, event, from))});
  };
  listeners.failure = [this](actors::TimeNs now, const Failure& failure) {
    add({Row::Kind::failure, now, 0, 0, to_string(failure)});
  };
  listeners.decided = [this](actors::TimeNs now, Rank rank, const local::Decided& decided) {
    const auto kind = decided.outcome.ok() ? Row::Kind::told_committed : Row::Kind::told_failed;
    add({kind, now, rank, 0, text_of(notified_line(now, rank, decided))});
  };
  return listeners;
}

std::string ViolationPage::svg(const SimulationReport& report) const {
  const uint32_t ranks_per_host = std::max(1u, report.scenario.ranks_per_host);
  const size_t width = x_of(lanes_) + 20;  // the text of the last lane stands to its right
  const size_t height = kHead + (rows_.size() + 2) * kRowHeight;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" role=\"img\" "
      "aria-label=\"Events before the violation\">\n",
      width, height);
  for (size_t node = 0; node < lanes_; ++node) {
    out += fmt::format(
        "<text x=\"{0}\" y=\"20\" text-anchor=\"middle\">node {1}</text>"
        "<line class=\"lane\" x1=\"{0}\" x2=\"{0}\" y1=\"{2}\" y2=\"{3}\"/>\n",
        x_of(node), node, kHead - 8, height);
  }
  size_t y = kHead;
  for (const Row& row : rows_) {
    y += kRowHeight;
    const std::string full = escaped_markup(row.text);
    const auto label = [&](size_t x, size_t lanes, std::string_view kind) {
      return fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>", kind, x, y - 3,
                         escaped_markup(cut(row.text, lanes)));
    };
    out += fmt::format("<g><title>{} s: {}</title>", seconds_text(row.at), full);
    const bool is_failure = row.kind == Row::Kind::failure;
    if (is_failure) {
      out += fmt::format("<rect class=\"f\" x=\"0\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                         y - kRowHeight + 2, width, kRowHeight);
    }
    out += fmt::format("<text class=\"t\" x=\"4\" y=\"{}\">{}</text>", y - 3, seconds_text(row.at));
    if (is_failure) out += label(kLeftEdge, lanes_, "ft");
    if (row.kind == Row::Kind::event) {
      out += fmt::format("<circle class=\"e\" cx=\"{}\" cy=\"{}\" r=\"3\"/>", x_of(row.node), y - 7);
      out += label(x_of(row.node) + 7, 1, "t");
    }
    if (row.kind == Row::Kind::message) {
      const bool goes_right = row.node > row.from;
      const size_t from = x_of(row.from), to = x_of(row.node);
      out += fmt::format(
          "<line class=\"m\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/><path class=\"head\" d=\"M{} {} l{} -4 "
          "v8 "
          "z\"/>",
          from, to, y - 7, y - 7, to, y - 7, goes_right ? -7 : 7);
      out += label(std::min(from, to) + 8, goes_right ? row.node - row.from : row.from - row.node, "");
    }
    if (row.kind == Row::Kind::told_committed || row.kind == Row::Kind::told_failed) {
      out += label(x_of(std::min<size_t>(row.node / ranks_per_host, lanes_ - 1)) + 7, 1,
                   row.kind == Row::Kind::told_committed ? "ok" : "ft");
    }
    out += "</g>\n";
  }
  return out + "</svg>\n";
}

std::string ViolationPage::html(const SimulationReport& report, const std::string& replay_command) const {
  const std::string title =
      report.violation ? "Violation: " + report.violation->oracle : std::string("A run without a violation");
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<meta name=\"viewport\" "
      "content=\"width=device-width\"><style>{1}</style></head><body>\n<h1>{0}</h1>\n",
      escaped_markup(title), kStyle);
  if (report.violation) {
    out += fmt::format("<p class=\"violation\">At {} s: {}</p>\n", seconds_text(report.violation->at),
                       escaped_markup(report.violation->what));
    const std::string_view meaning = meaning_of_oracle(report.violation->oracle);
    if (!meaning.empty()) {
      out += fmt::format("<p>What must hold: {}</p>\n", escaped_markup(std::string(meaning)));
    }
  }
  out += fmt::format(
      "<p>Run it again: <code>{}</code></p>\n<h2>What failed, and what operators did</h2>\n<ul>\n",
      escaped_markup(replay_command));
  for (const Failure& failure : report.scenario.failures) {
    out += fmt::format("<li>{}</li>\n", escaped_markup(to_string(failure)));
  }
  if (report.scenario.failures.empty()) out += "<li>nothing</li>\n";
  out += fmt::format("</ul>\n<h2>The last {} events{}</h2>\n<div class=\"scroll\">\n{}</div>\n", rows_.size(),
                     left_out_ == 0 ? "" : fmt::format(", of {}", rows_.size() + left_out_), svg(report));
  out +=
      "<p class=\"dim\">An arrow is a message, drawn when its receiver handles it. A dot is another event of "
      "a "
      "role. Point at a line for its whole text. Time is virtual, in seconds; rows have no scale.</p>\n";
  out += "<h2>The job</h2>\n<pre>";
  const std::string scenario = scenario_text(report.scenario);
  for (size_t begin = 0; begin < scenario.size();) {
    const size_t end = std::min(scenario.find('\n', begin), scenario.size());
    out += escaped_markup(scenario.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return out + "</pre>\n</body></html>\n";
}

}  // namespace shoal::sim
