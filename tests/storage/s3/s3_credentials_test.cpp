// Credentials of the services from which AWS's tools take them, each a small server here.
#include "storage/s3/s3_credentials.h"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/storage/s3/small_http_server.h"
#include "tests/storage/test_support.h"

namespace shoal::storage {
namespace {

using shoal::testing::SmallHttpServer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Values = std::map<std::string, std::string>;

constexpr const char* kJson =
    R"({"AccessKeyId": "K", "SecretAccessKey": "S", "Token": "T", "Expiration": "2026-11-21T04:56:44Z"})";

CredentialSources sources_of(Values values, Values profile = {}) {
  values.emplace("AWS_EC2_METADATA_DISABLED", "true");
  const Variables variables = [values](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
  return {variables, std::move(profile), "default", "eu-west-1", ""};
}

TEST(S3Time, IsReadAsUtc) {
  EXPECT_EQ(parse_utc_time("2026-11-21T04:56:44Z"), 1795237004);
  EXPECT_EQ(parse_utc_time("2026-11-21T04:56:44.123Z"), 1795237004);
  EXPECT_EQ(parse_utc_time("soon"), 0);
}

TEST(S3Credentials, OfTheEnvironmentComeFirst) {
  auto found = find_s3_credentials(sources_of({{"AWS_ACCESS_KEY_ID", "A"},
                                               {"AWS_SECRET_ACCESS_KEY", "B"},
                                               {"AWS_WEB_IDENTITY_TOKEN_FILE", "/none"},
                                               {"AWS_ROLE_ARN", "role"}},
                                              {{"aws_access_key_id", "P"}, {"aws_secret_access_key", "Q"}}));
  ASSERT_OK(found.status());
  EXPECT_EQ(found->access_key, "A");
  EXPECT_EQ(found->expires_unix_s, 0);
}

TEST(S3Credentials, OfAWebIdentityAreThoseOfTheRole) {
  const TemporaryFolder folder;
  const std::string token = folder.path() + "/token";
  std::ofstream(token) << "a.b=c\n";
  SmallHttpServer sts([](const std::string&) {
    return SmallHttpServer::Answer{
        200,
        "<AssumeRoleWithWebIdentityResponse xmlns=\"x\"><AssumeRoleWithWebIdentityResult><Credentials>"
        "<AccessKeyId>K</AccessKeyId><SecretAccessKey>S</SecretAccessKey><SessionToken>T</SessionToken>"
        "<Expiration>2026-11-21T04:56:44Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
        "</AssumeRoleWithWebIdentityResponse>"};
  });
  const CredentialSources from = sources_of({{"AWS_WEB_IDENTITY_TOKEN_FILE", token},
                                             {"AWS_ROLE_ARN", "arn:aws:iam::1:role/ckpt"},
                                             {"AWS_ROLE_SESSION_NAME", "run7"},
                                             {"AWS_ENDPOINT_URL_STS", sts.url()}},
                                            {{"aws_access_key_id", "P"}, {"aws_secret_access_key", "Q"}});
  auto found = find_s3_credentials(from);
  ASSERT_OK(found.status());
  EXPECT_EQ(found->access_key, "K");
  EXPECT_EQ(found->secret_key, "S");
  EXPECT_EQ(found->session_token, "T");
  EXPECT_EQ(found->expires_unix_s, 1795237004);
  ASSERT_THAT(sts.requests(), SizeIs(1));
  EXPECT_THAT(
      sts.requests()[0],
      AllOf(StartsWith("POST / "), HasSubstr("Action=AssumeRoleWithWebIdentity"),
            HasSubstr("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fckpt"), HasSubstr("RoleSessionName=run7"),
            HasSubstr("WebIdentityToken=a.b%3Dc"), HasSubstr("Version=2011-06-15")));
  std::ofstream(token) << "renewed";
  ASSERT_OK(find_s3_credentials(from).status());
  EXPECT_THAT(sts.requests()[1], HasSubstr("WebIdentityToken=renewed")) << "the file is read again";
}

TEST(S3Credentials, OfAWebIdentityThatIsRefusedNameTheServiceAndNotTheToken) {
  const TemporaryFolder folder;
  const std::string token = folder.path() + "/token";
  std::ofstream(token) << "secret-token";
  SmallHttpServer sts([](const std::string&) {
    return SmallHttpServer::Answer{403,
                                   "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"};
  });
  const Values values = {
      {"AWS_WEB_IDENTITY_TOKEN_FILE", token}, {"AWS_ROLE_ARN", "role"}, {"AWS_ENDPOINT_URL_STS", sts.url()}};
  const Status refused = find_s3_credentials(sources_of(values)).status();
  EXPECT_EQ(refused.code(), Code::refused);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("STS"), HasSubstr(sts.url()), HasSubstr("AccessDenied"),
                                       Not(HasSubstr("secret-token"))));
  EXPECT_THAT(sts.requests(), SizeIs(1)) << "a refusal is not repeated";
  Values absent = values;
  absent["AWS_WEB_IDENTITY_TOKEN_FILE"] = folder.path() + "/absent";
  EXPECT_THAT(find_s3_credentials(sources_of(absent)).status().message(), HasSubstr("/absent"));
}

TEST(S3Credentials, OfAContainerNeedItsToken) {
  const TemporaryFolder folder;
  const std::string token = folder.path() + "/token";
  std::ofstream(token) << "pod-token\n";
  int asked = 0;
  SmallHttpServer container([&](const std::string&) {
    return ++asked == 1 ? SmallHttpServer::Answer{503, "busy"} : SmallHttpServer::Answer{200, kJson};
  });
  auto found = find_s3_credentials(
      sources_of({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", container.url() + "/v1/credentials?x=1"},
                  {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token}}));
  ASSERT_OK(found.status());
  EXPECT_EQ(found->access_key, "K");
  EXPECT_EQ(found->session_token, "T");
  EXPECT_EQ(found->expires_unix_s, 1795237004);
  ASSERT_THAT(container.requests(), SizeIs(2)) << "a service that is busy is asked again";
  EXPECT_THAT(container.requests()[1],
              AllOf(StartsWith("GET /v1/credentials?x=1 "), HasSubstr("Authorization: pod-token\r\n")));
}

TEST(S3Credentials, OfAContainerAreNotRequestedInClearFromElsewhere) {
  for (const char* url : {"http://example.com/x", "http://127.0.0.1.example.com/", "ftp://localhost/",
                          "http://localhost@example.com/", "http://[::2]/"}) {
    const Status status =
        find_s3_credentials(sources_of({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url}})).status();
    EXPECT_EQ(status.code(), Code::refused) << url;
    EXPECT_THAT(status.message(), HasSubstr("AWS_CONTAINER_CREDENTIALS_FULL_URI must be")) << url;
  }
}

TEST(S3Credentials, OfAnInstanceComeByATokenOfItsService) {
  SmallHttpServer instance([](const std::string& request) {
    if (request.starts_with("PUT /latest/api/token ")) return SmallHttpServer::Answer{200, "imds"};
    if (request.find("X-aws-ec2-metadata-token: imds\r\n") == std::string::npos) {
      return SmallHttpServer::Answer{401, ""};
    }
    if (request.starts_with("GET /latest/meta-data/iam/security-credentials/ckpt-role ")) {
      return SmallHttpServer::Answer{200, kJson};
    }
    const bool lists = request.starts_with("GET /latest/meta-data/iam/security-credentials/ ");
    return lists ? SmallHttpServer::Answer{200, "ckpt-role"} : SmallHttpServer::Answer{404, ""};
  });
  Values values = {{"AWS_EC2_METADATA_SERVICE_ENDPOINT", instance.url() + "/"},
                   {"AWS_EC2_METADATA_DISABLED", "false"}};
  auto found = find_s3_credentials(sources_of(values));
  ASSERT_OK(found.status());
  EXPECT_EQ(found->access_key, "K");
  EXPECT_EQ(found->expires_unix_s, 1795237004);
  const size_t asked = instance.requests().size();
  EXPECT_EQ(asked, 3u);
  values["AWS_EC2_METADATA_DISABLED"] = "TRUE";
  const Status none = find_s3_credentials(sources_of(values)).status();
  EXPECT_EQ(none.code(), Code::refused);
  EXPECT_THAT(none.message(), AllOf(HasSubstr("AWS_ACCESS_KEY_ID"), HasSubstr("AWS_EC2_METADATA_DISABLED")));
  EXPECT_EQ(instance.requests().size(), asked);
}

TEST(S3Credentials, ThatAreNoneAreRejected) {
  for (const char* body : {"", "[]", "{\"AccessKeyId\": 1}", "{\"AccessKeyId\": \"K\"}", "<a/>"}) {
    SmallHttpServer container([&](const std::string&) { return SmallHttpServer::Answer{200, body}; });
    const Status status =
        find_s3_credentials(sources_of({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", container.url()}})).status();
    EXPECT_EQ(status.code(), Code::refused) << body;
    EXPECT_THAT(status.message(), HasSubstr("without credentials")) << body;
  }
}

}  // namespace
}  // namespace shoal::storage
