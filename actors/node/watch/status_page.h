// The status page that the coordinator's node serves: one HTML file, which reads /status.json and refreshes
// itself. It loads nothing from elsewhere, and changes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/node/watch/activity.h"
#include "actors/node/watch/save_record.h"
#include "local/status/job_status.h"

namespace shoal::actors {

inline constexpr const char* kHtmlContentType = "text/html; charset=utf-8";
inline constexpr const char* kJsonContentType = "application/json";
// The page holds texts from outside (names of jobs and hosts, paths, errors). Its script only ever inserts
// them as text, and this forbids everything but itself.
inline constexpr std::string_view kPageHeaders =
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n";

struct PageFacts {
  local::NodeStatus node;
  std::shared_ptr<const local::JobStatus> job;  // null: not gathered yet
  std::vector<SaveRecord> saves;                // oldest first
  ActivityCounts counts;
  std::optional<uint64_t> bytes_free;  // in the root
  int64_t now_unix_ms = 0;
};

std::string_view status_page_html();
std::string status_page_json(const PageFacts& facts);  // docs/reference/json.md

}  // namespace shoal::actors
