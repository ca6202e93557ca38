// Judges what was measured of a root in an object store.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "cli/doctor/checks.h"
#include "shoal/bytes.h"

namespace shoal::cli {

namespace {

constexpr const char* kBucketPage = "docs/how-to/object-storage.md";
constexpr int64_t kClockWarnedS = 60;  // the store states whole seconds, and the request took some time

bool has_text(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

// What to do about a request that the store rejected.
std::string remedy_for(const Status& status, std::string_view right) {
  if (has_text(status, "AccessDenied") || has_text(status, "status 403")) {
    return fmt::format("give the credentials the right {} on this bucket and prefix", right);
  }
  if (has_text(status, "NoSuchBucket")) return "create the bucket, or correct its name";
  if (has_text(status, "set AWS_REGION")) return "set AWS_REGION to the region of the bucket";
  if (has_text(status, "RequestTimeTooSkewed")) return "synchronise the clock of this host (chrony, ntpd)";
  if (has_text(status, "SignatureDoesNotMatch")) return "correct the secret key or AWS_REGION";
  if (status.code() == Code::unavailable) return "correct the endpoint (AWS_ENDPOINT_URL), or the network";
  return fmt::format("see {}", kBucketPage);
}

Finding check_bucket_place(const BucketFacts& facts) {
  if (!facts.settings.ok()) {
    return found_error("root", facts.settings.message(), fmt::format("see {}, Settings", kBucketPage));
  }
  if (!facts.credentials.ok()) {
    return found_error("root", facts.credentials.message(), fmt::format("see {}, Credentials", kBucketPage));
  }
  if (!facts.listing.ok()) {
    return found_error("root", facts.listing.message(), remedy_for(facts.listing, "s3:ListBucket"));
  }
  if (facts.identity.ok()) {
    return found_ok("root", fmt::format("{} at {} (region {}) holds run {}", facts.root, facts.endpoint,
                                        facts.region, facts.run));
  }
  if (facts.identity.code() == Code::not_found) {
    return found_ok("root", fmt::format("{} at {} (region {}) can be listed and holds no run yet: start the "
                                        "job with --create",
                                        facts.root, facts.endpoint, facts.region));
  }
  return found_error("root", facts.identity.message(), remedy_for(facts.identity, "s3:GetObject"));
}

Finding check_bucket_endpoint(const BucketFacts& facts) {
  constexpr const char* kCheck = "endpoint";
  if (!facts.endpoint.starts_with("http://")) return found_ok(kCheck, facts.endpoint + " is encrypted");
  const std::string_view host = std::string_view(facts.endpoint).substr(7);
  for (const std::string_view here : {"127.", "localhost", "[::1]"}) {
    if (host.starts_with(here)) return found_ok(kCheck, facts.endpoint + " is this host");
  }
  return found_warning(kCheck, facts.endpoint + " sends checkpoints in clear",
                       "use https:// outside a network that you trust");
}

Finding check_bucket_creation(const BucketFacts& facts) {
  constexpr const char* kCheck = "creation";
  const RootFacts::Race& race = facts.race;
  if (!facts.probe.ok()) {
    const bool ignores = has_text(facts.probe, "If-None-Match");
    return found_error(kCheck, facts.probe.message(),
                       ignores ? fmt::format("use a store with conditional writes: {}", kBucketPage)
                               : remedy_for(facts.probe,
                                            "s3:PutObject, s3:DeleteObject and "
                                            "s3:AbortMultipartUpload"));
  }
  if (!race.failed.ok()) {
    return found_error(kCheck, race.failed.message(), remedy_for(race.failed, "s3:DeleteObject"));
  }
  if (race.with_two_creators + race.without_creator > 0) {
    return found_error(kCheck,
                       fmt::format("of {} names that two threads created, {} had two creators and {} none",
                                   race.names, race.with_two_creators, race.without_creator),
                       fmt::format("use a store whose conditional writes hold: {}", kBucketPage));
  }
  return found_ok(kCheck, fmt::format("conditional writes, uploads in parts, listings and removals work; {} "
                                      "names had one creator each",
                                      race.names));
}

Finding check_bucket_rate(const RootFacts::Rate& rate) {
  constexpr const char* kCheck = "rate";
  if (!rate.failed.ok()) {
    return found_error(kCheck, rate.failed.message(), remedy_for(rate.failed, "s3:PutObject"));
  }
  if (rate.bytes == 0) return found_skipped(kCheck, "no object could be made");
  const auto per_second = [&](double seconds) {
    return human_bytes(static_cast<uint64_t>(static_cast<double>(rate.bytes) / std::max(seconds, 1e-6)));
  };
  return found_ok(kCheck, fmt::format("one object of {}: written at {}/s, read at {}/s by one stream",
                                      human_bytes(rate.bytes), per_second(rate.write_seconds),
                                      per_second(rate.read_seconds)));
}

Finding check_bucket_clock(const BucketFacts& facts) {
  constexpr const char* kCheck = "server-clock";
  if (!facts.clock_ahead_s) return found_skipped(kCheck, "the store has not stated its time");
  const int64_t ahead_s = *facts.clock_ahead_s;
  const std::string measured = fmt::format("the store's clock is {} s {} this host's", std::abs(ahead_s),
                                           ahead_s < 0 ? "behind" : "ahead of");
  if (std::abs(ahead_s) < kClockWarnedS) return found_ok(kCheck, measured);
  return found_warning(
      kCheck, measured,
      "synchronise the clock of this host: a store rejects requests that differ by 15 minutes");
}

}  // namespace

Findings check_bucket(const BucketFacts& facts) {
  Findings out{check_bucket_place(facts)};
  if (!facts.endpoint.empty()) out.push_back(check_bucket_endpoint(facts));
  const bool could_open = facts.settings.ok() && facts.credentials.ok() && facts.listing.ok();
  if (!could_open) {
    for (const char* check : {"creation", "rate", "server-clock"}) {
      out.push_back(found_skipped(check, "the bucket could not be listed"));
    }
    return out;
  }
  out.push_back(check_bucket_creation(facts));
  out.push_back(check_bucket_rate(facts.rate));
  out.push_back(check_bucket_clock(facts));
  return out;
}

}  // namespace shoal::cli
