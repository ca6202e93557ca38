// S3Storage over TLS, with certificates that are trusted and others.
#include <gmock/gmock.h>

#include <fstream>

#include "storage/root/run_root.h"
#include "storage/s3/s3_credentials.h"
#include "storage/s3/s3_storage.h"
#include "tests/storage/s3/object_store.h"
#include "tests/storage/test_support.h"

namespace shoal::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class OverTls : public ::testing::Test {
 protected:
  void start(const std::string& certificate) {
    store_ = testing::ObjectStore::start({"--certificate", certificate});
    SHOAL_NEEDS_OBJECT_STORE(store_);
  }
  // `ca_file`: AWS_CA_BUNDLE; "": not set.
  Variables variables(const std::string& ca_file, const std::string& endpoint = "") {
    return [=, this](const char* name) {
      const std::string_view wanted = name;
      if (wanted == "AWS_CA_BUNDLE") return std::optional(ca_file);
      if (wanted == "AWS_ENDPOINT_URL" && !endpoint.empty()) return std::optional(endpoint);
      return store_->variables()(name);
    };
  }
  // Opens a root, and counts the pauses between tries.
  Result<std::unique_ptr<S3Storage>> opened(const Variables& variables) {
    S3Retries retries;
    retries.pause = [&](int64_t) { ++pauses_; };
    return S3Storage::open(*find_s3_settings("s3://bucket/runs/7", variables), retries);
  }
  // A store that is not trusted is not asked ten times, and the error is one line.
  void expect_untrusted(const Variables& variables, const std::string& what, const std::string& remedy) {
    pauses_ = 0;
    const Status status = opened(variables).status();
    EXPECT_EQ(status.code(), Code::unavailable);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("s3://bucket"), HasSubstr(what), HasSubstr(remedy)));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    EXPECT_EQ(pauses_, 2);
  }

  std::unique_ptr<testing::ObjectStore> store_;
  int pauses_ = 0;
};

#define START_STORE(...) \
  start(__VA_ARGS__);    \
  if (HasFatalFailure() || IsSkipped()) return

TEST_F(OverTls, AStoreOfATrustedCaHoldsARoot) {
  START_STORE("good");
  auto storage = opened(variables(store_->fact("ca_file")));
  ASSERT_OK(storage.status());
  EXPECT_OK(probe_storage(**storage, random_128()));
  EXPECT_EQ(pauses_, 0);
}

TEST_F(OverTls, TheCaMayBeNamedInTheProfile) {
  START_STORE("good");
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/config") << "[default]\nca_bundle = " << store_->fact("ca_file") << "\n";
  const Variables without = variables("");
  auto storage = opened([&](const char* name) {
    return std::string_view(name) == "AWS_CONFIG_FILE" ? std::optional(folder.path() + "/config")
                                                       : without(name);
  });
  EXPECT_OK(storage.status());
}

TEST_F(OverTls, AStoreOfAnotherCaIsRejected) {
  START_STORE("good");
  const std::string other = store_->fact("other_ca_file");
  expect_untrusted(variables(other), "certificate", "its CA is not in " + other);
  expect_untrusted(variables(""), "certificate", "set AWS_CA_BUNDLE");
}

TEST_F(OverTls, ACertificateThatHasExpiredIsRejected) {
  START_STORE("expired");
  expect_untrusted(variables(store_->fact("ca_file")), "expired", "renew that certificate");
}

TEST_F(OverTls, ACertificateOfAnotherHostIsRejected) {
  START_STORE("other-host");
  expect_untrusted(variables(store_->fact("ca_file")), "127.0.0.1", "must name the host");
}

TEST_F(OverTls, AFileWithoutCertificatesIsNamed) {
  START_STORE("good");
  const TemporaryFolder folder;
  const std::string absent = folder.path() + "/absent", text = folder.path() + "/text";
  std::ofstream(text) << "no certificate\n";
  for (const std::string& file : {absent, text}) {
    expect_untrusted(variables(file), file, "AWS_CA_BUNDLE or ca_bundle must name");
  }
}

TEST_F(OverTls, AnEndpointWithoutTlsIsNoted) {
  store_ = testing::ObjectStore::start();
  SHOAL_NEEDS_OBJECT_STORE(store_);
  const std::string endpoint = "https" + store_->endpoint().substr(4);
  EXPECT_THAT(opened(variables("", endpoint)).status().message(), HasSubstr("may be one of http://"));
}

TEST_F(OverTls, AServiceOfCredentialsIsTrustedByTheSameFile) {
  START_STORE("good");
  const auto requested = [&](const std::string& ca_file) {
    return find_s3_credentials({[&](const char* name) -> std::optional<std::string> {
                                  const std::string_view wanted = name;
                                  if (wanted.ends_with("_FULL_URI"))
                                    return store_->endpoint() + "/bucket/absent";
                                  return std::nullopt;
                                },
                                {},
                                "default",
                                "us-east-1",
                                ca_file})
        .status();
  };
  EXPECT_THAT(requested("").message(), HasSubstr("set AWS_CA_BUNDLE"));
  EXPECT_THAT(requested(store_->fact("ca_file")).message(), HasSubstr("answered with status"));
}

}  // namespace
}  // namespace shoal::storage
