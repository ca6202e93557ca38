#include "actors/node/watch/status_page.h"

namespace shoal::actors {

std::string_view status_page_html() {
  // Texts from outside become text nodes, never markup.
  static constexpr std::string_view kPage = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Shoal</title>
<style>
:root {
  color-scheme: light dark;
  --ground: #fbfbfa; --panel: #ffffff; --line: #dfe2e6; --text: #1d2126; --faint: #5d6570;
  --staged: #7fb2e5; --durable: #2f6fb3; --decided: #4b9e5f; --open: #b9bec5; --bad: #b3261e; --warn: #8a5a00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #15181c; --panel: #1d2126; --line: #353b43; --text: #e6e8eb; --faint: #a0a8b3;
    --staged: #3f6f9f; --durable: #6fb0ee; --decided: #63b878; --open: #59616b;
    --bad: #ff8a80; --warn: #e8b45a;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 86rem; background: var(--ground); color: var(--text);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 1.6rem 0 .5rem; }
p { margin: .2rem 0; }
.faint { color: var(--faint); overflow-wrap: anywhere; }
.bad { color: var(--bad); }
.warn { color: var(--warn); }
#notice { display: none; margin: .8rem 0; padding: .5rem .8rem; border: 1px solid var(--bad);
  border-radius: .4rem; color: var(--bad); background: var(--panel); }
#figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .7rem;
  margin-top: 1rem; }
#figures div { padding: .6rem .8rem; border: 1px solid var(--line); border-radius: .4rem;
  background: var(--panel); }
#figures b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .4rem; background: var(--panel); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th { font-weight: 600; color: var(--faint); white-space: nowrap; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.name { white-space: nowrap; }
td.text { min-width: 12rem; overflow-wrap: anywhere; }
.bar { display: flex; width: 11rem; height: .8rem; margin-top: .3rem; }
.bar i { height: 100%; min-width: 1px; }
.key { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 .9rem; vertical-align: -.1rem; }
.staged { background: var(--staged); } .durable { background: var(--durable); }
.decided { background: var(--decided); } .open { background: var(--open); }
.failed { background: var(--bad); }
</style>
</head>
<body>
<h1 id="title">Shoal</h1>
<p class="faint" id="where"></p>
<div id="notice" role="status"></div>
<div id="figures"></div>
<h2>Hosts</h2>
<p class="faint" id="hosts-note"></p>
<div class="scroll"><table id="hosts"></table></div>
<h2>Saves <span class="faint"><span class="key staged"></span>staged<span
class="key durable"></span>durable<span class="key decided"></span>committed<span
class="key failed"></span>aborted<span class="key open"></span>in flight</span></h2>
<div class="scroll"><table id="saves"></table></div>
<h2>Aborted saves by cause</h2>
<div class="scroll"><table id="causes"></table></div>
<h2>Warnings and errors of the coordinator's node</h2>
<div class="scroll"><table id="errors"></table></div>
<noscript>
<p>This page needs JavaScript. <a href="status.json">status.json</a> has the same content.</p>
</noscript>
<script>
"use strict";
const kRefreshMs = 2000, kSavesShown = 60;
const byId = id => document.getElementById(id);
function element(name, text, className) {
  const out = document.createElement(name);
  if (text !== undefined) out.textContent = text;
  if (className) out.className = className;
  return out;
}
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; n >= 1024 && unit + 1 < units.length; ++unit) n /= 1024;
  return (unit === 0 ? n : n.toFixed(1)) + " " + units[unit];
}
function span(ms) {
  if (ms < 1000) return (ms < 10 ? ms.toFixed(1) : Math.round(ms)) + " ms";
  const s = ms / 1000;
  if (s < 60) return s.toFixed(1) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.round(s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.round(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.round(s % 86400 / 3600) + " h";
}
const attempt = key => "g" + key.generation + "a" + key.attempt;
function ranks(list, count) {
  const runs = [];
  for (let i = 0; i < list.length;) {
    let last = i;
    while (last + 1 < list.length && list[last + 1] === list[last] + 1) ++last;
    runs.push(i === last ? "" + list[i] : list[i] + "-" + list[last]);
    i = last + 1;
  }
  const more = count - list.length;
  return (runs.length ? runs.join(", ") : "none") + (more > 0 ? " and " + more + " more" : "");
}
// columns: [title, function of a row that returns a text or a node, class]
function fill(table, columns, rows, empty) {
  table.replaceChildren();
  if (rows.length === 0) {
    table.append(element("tbody"));
    table.firstChild.append(element("tr"));
    table.firstChild.firstChild.append(element("td", empty, "faint"));
    return;
  }
  const head = element("tr"), body = element("tbody");
  for (const [title, , className] of columns) head.append(element("th", title, className));
  for (const row of rows) {
    const line = element("tr");
    for (const [, show, className] of columns) {
      const cell = element("td", undefined, className), content = show(row);
      cell.append(content === undefined || content === null ? "" : content);
      line.append(cell);
    }
    body.append(line);
  }
  table.append(element("thead"), body);
  table.firstChild.append(head);
}
function bar(save, longest, now) {
  const out = element("div", undefined, "bar");
  const end = save.decided_ms ?? Math.max(0, now - save.began_unix_ms);
  let at = 0;
  const part = (until, className) => {
    if (until === undefined || until <= at) return;
    const piece = element("i", undefined, className);
    piece.style.width = 100 * (until - at) / longest + "%";
    out.append(piece);
    at = until;
  };
  const limit = ms => ms === undefined ? undefined : Math.min(ms, end);
  part(limit(save.staged_ms), "staged");
  part(limit(save.durable_ms), "durable");
  part(end, save.state === "committed" ? "decided" : save.state === "aborted" ? "failed" : "open");
  const at_ms = (name, ms) => ms === undefined ? "" : name + " " + span(ms) + "; ";
  out.title = at_ms("staged", save.staged_ms) + at_ms("durable", save.durable_ms) +
    save.state.replace("_", " ") + " " + span(end);
  return out;
}
const kReasons = { staging: "has not staged", writing: "writes", reporting: "has written and not reported",
  silent: "its node does not answer", lost: "its node is not connected", deciding: "decides" };
function waits(job) {
  const out = new Map();
  for (const save of job.saves) {
    for (const wait of save.waits_for) {
      const who = wait.ranks_count ? "rank " + ranks(wait.ranks, wait.ranks_count) + ", " : "";
      const line = "step " + save.step + ": " + who + kReasons[wait.reason] +
        (wait.detail ? "; " + wait.detail : "");
      out.set(wait.host, (out.get(wait.host) ?? []).concat(line));
    }
  }
  return out;
}
function showHosts(job) {
  const note = byId("hosts-note");
  note.textContent = "";
  if (job === null) return fill(byId("hosts"), [], [], "The status of the hosts is being gathered.");
  const waiting = waits(job), unknown = waiting.get(null);
  const parts = [job.hosts_count + (job.hosts_count === 1 ? " host" : " hosts")];
  if (job.hosts_silent) parts.push(job.hosts_silent + " without an answer");
  if (job.hosts_lost) parts.push(job.hosts_lost + " not connected");
  if (job.hosts_count > job.hosts.length) parts.push("the first " + job.hosts.length + " are shown");
  if (unknown) parts.push(unknown.join("; ") + " (on no known host)");
  note.textContent = parts.join(", ");
  const state = host => {
    if (host.state === "silent") return element("span", "does not answer", "bad");
    if (host.state === "lost") return element("span", "not connected", "bad");
    return host.coordinates ? "coordinates" : host.is_stopping ? "is stopping" : "ok";
  };
  const doing = host => {
    const lines = (waiting.get(host.host) ?? []).map(line => element("div", line, "warn"));
    for (const call of host.slow_calls) {
      if (lines.some(line => line.textContent.includes(call.what))) continue;
      const line = call.what + " has taken " + span(call.age_ms) + " and has not returned";
      lines.push(element("div", line, "bad"));
    }
    const out = element("div");
    out.append(...lines);
    return out;
  };
  fill(byId("hosts"), [
    ["Host", host => host.host, "name"], ["State", state],
    ["Ranks", host => ranks(host.ranks, host.ranks_count)],
    ["Up", host => host.uptime_ms ? span(host.uptime_ms) : "", "number"],
    ["Restarts", host => "" + host.restarts, "number"],
    ["Staged", host => bytes(host.bytes_staged), "number"],
    ["Written", host => bytes(host.bytes_written), "number"],
    ["Read", host => bytes(host.bytes_read), "number"],
    ["Last commit", host => host.last_commit ? "step " + host.last_commit.step : "", "number"],
    ["A save waits for", doing, "text"]], job.hosts, "No host is known.");
}
function figure(name, value, more) {
  const out = element("div");
  out.append(element("span", name, "faint"), element("b", value), element("span", more ?? "", "faint"));
  return out;
}
const mean = of => of.count ? span(1000 * of.seconds / of.count) : "–";
function show(data) {
  document.title = "Shoal: " + data.job_id;
  byId("title").textContent = "Job " + data.job_id;
  byId("where").textContent = data.root + ", generation " + data.generation + ", epoch " + data.epoch + ", " +
    data.world_size + " ranks, coordinated by " + data.host + " for " + span(data.uptime_ms) +
    (data.is_stopping ? ", is stopping" : "") + ", Shoal " + data.version;
  const newest = data.newest, figures = [];
  figures.push(newest
    ? figure("Last commit", "step " + newest.step,
        span(Math.max(0, data.now_unix_ms - newest.unix_time_ns / 1e6)) + " ago, " +
        bytes(newest.payload_bytes))
    : figure("Last commit", "none yet"));
  figures.push(figure("Saves", data.saves_committed + " committed", data.saves_aborted + " aborted"));
  figures.push(figure("Mean time to commit", mean(data.commit_seconds)));
  figures.push(figure("Mean stall of a save", mean(data.blocked_seconds),
    "trainers of the coordinator's host"));
  if (data.bytes_free !== undefined) {
    const fit = data.checkpoints_fit;
    figures.push(figure("Space in the root", bytes(data.bytes_free),
      fit === undefined ? "" : fit + " more of the size of the last"));
  }
  byId("figures").replaceChildren(...figures);
  const saves = data.saves.slice(-kSavesShown).reverse();
  const length = save => save.decided_ms ?? data.now_unix_ms - save.began_unix_ms;
  const longest = Math.max(1, ...saves.map(length));
  fill(byId("saves"), [
    ["Step", save => "" + save.step, "number"], ["Attempt", attempt],
    ["Began", save => new Date(save.began_unix_ms).toLocaleTimeString(), "number"],
    ["State", save => save.state === "aborted" ? element("span", "aborted", "bad")
      : save.state.replace("_", " ")],
    ["Course", save => bar(save, longest, data.now_unix_ms)],
    ["Staged", save => save.staged_ms === undefined ? "" : span(save.staged_ms), "number"],
    ["Durable", save => save.durable_ms === undefined ? "" : span(save.durable_ms), "number"],
    ["Decided", save => save.decided_ms === undefined ? "" : span(save.decided_ms), "number"],
    ["Stall", save => save.blocked_ms ? span(save.blocked_ms) : "", "number"],
    ["Bytes", save => save.payload_bytes ? bytes(save.payload_bytes) : "", "number"],
    ["Cause", save => save.cause, "text"]], saves, "No save yet.");
  showHosts(data.job);
  fill(byId("causes"), [
    ["Cause", row => row[0].replaceAll("_", " ")], ["Saves", row => "" + row[1], "number"]],
    Object.entries(data.aborted).filter(row => row[1] > 0), "None.");
  fill(byId("errors"), [["Ago", error => span(error.age_ms), "number"], ["", error => error.line, "text"]],
    data.errors.slice().reverse(), "None.");
}
async function refresh() {
  const notice = byId("notice");
  try {
    const answer = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    show(await answer.json());
    notice.style.display = "none";
  } catch (error) {
    notice.textContent = "The node does not answer (" + error.message + "). What is shown may be old.";
    notice.style.display = "block";
  }
  setTimeout(refresh, kRefreshMs);
}
refresh();
</script>
</body>
</html>
)html";
  return kPage;
}

}  // namespace shoal::actors
