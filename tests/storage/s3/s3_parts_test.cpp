// What S3Storage is made of, without a store.
#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <thread>

#include "base/root_name.h"
#include "storage/s3/s3_client.h"
#include "storage/s3/s3_settings.h"
#include "storage/s3/s3_storage.h"
#include "storage/s3/stream_limit.h"
#include "storage/s3/xml.h"
#include "tests/storage/test_support.h"

namespace shoal::storage {
namespace {

using ::testing::HasSubstr;

Variables variables_of(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> std::optional<std::string> {
    auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

TEST(Xml, ReadsElementsTextAndEntities) {
  auto root = parse_xml(
      "<?xml version=\"1.0\"?>\n<a:List xmlns:a=\"x\"><Key>one &amp; &#x65;&#108;</Key><Empty/>"
      "<!-- no --><Key>two</Key></a:List>\n");
  ASSERT_OK(root.status());
  EXPECT_EQ(root->name, "List");
  EXPECT_EQ(root->text_of("Key"), "one & el");
  ASSERT_EQ(root->children.size(), 3u);
  EXPECT_EQ(root->children[2].text, "two");
  EXPECT_EQ(root->text_of("Absent"), "");
  EXPECT_EQ(xml_escape("\"a\"<&>"), "&quot;a&quot;&lt;&amp;&gt;");
}

TEST(Xml, RejectsWhatIsNoneOrTooDeep) {
  std::string deep;
  for (size_t i = 0; i <= kMaxXmlDepth; ++i) deep += "<a>";
  for (const std::string& text :
       {std::string(""), std::string("text"), std::string("<a>"), std::string("<a></b>"),
        std::string("<a>&unknown;</a>"), std::string("<!DOCTYPE a><a/>"), std::string("<a/><b/>"),
        std::string("<a>&#x110000;</a>"), deep}) {
    EXPECT_EQ(parse_xml(text).status().code(), Code::corrupt) << text;
  }
}

TEST(S3Query, IsSortedAndEscapedWithAnEqualsSignEach) {
  EXPECT_EQ(canonical_query({}), "");
  EXPECT_EQ(canonical_query({{"uploads", ""}}), "?uploads=");
  EXPECT_EQ(canonical_query({{"prefix", "a b/ü"}, {"delimiter", "/"}, {"list-type", "2"}}),
            "?delimiter=%2F&list-type=2&prefix=a%20b%2F%C3%BC");
  EXPECT_EQ(uri_encode("run-7/step.1_~+", true), "run-7/step.1_~%2B");
}

TEST(S3Settings, OfAmazonNeedNoEndpoint) {
  auto settings =
      find_s3_settings("s3://my-bucket//runs/7/",
                       variables_of({{"AWS_REGION", "eu-west-1"}, {"AWS_EC2_METADATA_DISABLED", "true"}}));
  ASSERT_OK(settings.status());
  EXPECT_EQ(settings->endpoint, "https://s3.eu-west-1.amazonaws.com");
  EXPECT_FALSE(settings->is_path_style);
  EXPECT_EQ(settings->root(), "s3://my-bucket/runs/7");
  EXPECT_EQ(settings->credentials().status().code(), Code::refused);
  EXPECT_THAT(settings->credentials().status().message(), HasSubstr("AWS_ACCESS_KEY_ID"));
}

TEST(S3Settings, OfAnotherStoreHaveTheBucketInThePath) {
  auto settings = find_s3_settings("s3://bucket", variables_of({{"AWS_ENDPOINT_URL", "http://minio:9000/"}}));
  ASSERT_OK(settings.status());
  EXPECT_EQ(settings->endpoint, "http://minio:9000");
  EXPECT_TRUE(settings->is_path_style);
}

// Regression: an error showed the password.
TEST(S3Settings, RejectAnEndpointWithAPasswordAndARegionThatIsNone) {
  const Status with_password =
      find_s3_settings("s3://bucket", variables_of({{"AWS_ENDPOINT_URL", "http://joe:secret@host"}}))
          .status();
  EXPECT_EQ(with_password.code(), Code::invalid_argument);
  EXPECT_THAT(with_password.message(), ::testing::Not(HasSubstr("secret")));
  const Status no_region =
      find_s3_settings("s3://bucket", variables_of({{"AWS_REGION", "x.example.com/"}})).status();
  EXPECT_EQ(no_region.code(), Code::invalid_argument);
}

TEST(S3Settings, ComeFromTheProfileThatIsNamed) {
  const TemporaryFolder folder;
  const std::string credentials = folder.path() + "/credentials", config = folder.path() + "/config";
  std::ofstream(credentials) << "[default]\naws_access_key_id = A\n[ckpt]\n# a comment\naws_access_key_id=B\n"
                                "aws_secret_access_key = s=c\n";
  std::ofstream(config) << "[profile ckpt]\nregion = eu-north-1\nendpoint_url = https://store\ns3 =\n"
                           "  addressing_style = virtual\n";
  auto settings =
      find_s3_settings("s3://bucket/x", variables_of({{"AWS_PROFILE", "ckpt"},
                                                      {"AWS_SHARED_CREDENTIALS_FILE", credentials},
                                                      {"AWS_CONFIG_FILE", config}}));
  ASSERT_OK(settings.status());
  EXPECT_EQ(settings->region, "eu-north-1");
  EXPECT_EQ(settings->endpoint, "https://store");
  EXPECT_FALSE(settings->is_path_style);
  auto keys = settings->credentials();
  ASSERT_OK(keys.status());
  EXPECT_EQ(keys->access_key, "B");
  EXPECT_EQ(keys->secret_key, "s=c");
  std::ofstream(credentials) << "[ckpt]\naws_access_key_id=C\naws_secret_access_key=d\n";
  EXPECT_EQ(settings->credentials()->access_key, "C") << "a file that was renewed is read again";
}

TEST(S3Settings, RejectRootsThatNameNoBucketOrLeaveIt) {
  for (const char* root :
       {"s3://", "s3:///", "s3://B", "s3://bucket/../x", "s3://bucket/a b", "s3://bucket/é"}) {
    EXPECT_EQ(find_s3_settings(root, variables_of({})).status().code(), Code::invalid_argument) << root;
  }
}

TEST(S3Parts, AreLargeEnoughForTheirNumber) {
  EXPECT_EQ(part_bytes_for(0), kPartBytesDefault);
  EXPECT_EQ(part_bytes_for(uint64_t{16} << 30), kPartBytesDefault);
  for (uint64_t bytes : {uint64_t{200} << 30, uint64_t{1} << 40, kS3ObjectBytesMax}) {
    EXPECT_LE(bytes / part_bytes_for(bytes), kS3PartsMax / 2) << bytes;
    EXPECT_LE(part_bytes_for(bytes), kS3PutBytesMax);
  }
}

TEST(StreamLimit, HalvesTheStreamsInFlightOnceARoundAndGrowsAgain) {
  StreamLimit limit;
  {
    std::vector<std::unique_ptr<StreamLimit::Stream>> streams;
    for (int i = 0; i < 16; ++i) streams.push_back(std::make_unique<StreamLimit::Stream>(limit));
    for (auto& stream : streams) stream->was_slowed();
    EXPECT_EQ(limit.most(), 8) << "those that were begun under one limit lower it once";
  }
  for (int i = 0; i < 3; ++i) {
    StreamLimit::Stream stream(limit);
    stream.was_slowed();
  }
  EXPECT_EQ(limit.most(), 1) << "one is always allowed";
  for (int i = 0; i < 20; ++i) StreamLimit::Stream(limit).succeeded();
  EXPECT_GT(limit.most(), 5);
  EXPECT_LT(limit.most(), 8);
}

TEST(StreamLimit, LetsAStreamWaitForAnother) {
  StreamLimit limit;
  auto first = std::make_unique<StreamLimit::Stream>(limit);
  first->was_slowed();
  std::atomic<bool> has_begun{false};
  std::thread other([&] {
    const StreamLimit::Stream second(limit);
    has_begun = true;
  });
  EXPECT_FALSE(has_begun);
  first.reset();
  other.join();
  EXPECT_TRUE(has_begun);
}

TEST(RootName, HasOneSpellingForEachBucketAndPrefix) {
  EXPECT_EQ(base::normal_root("s3://b//x/y//").value(), "s3://b/x/y");
  EXPECT_EQ(base::normal_root("s3://b").value(), "s3://b");
  EXPECT_EQ(base::absolute_root("s3://b/x"), "s3://b/x");
  EXPECT_FALSE(base::is_in_object_store("/s3://b"));
}

}  // namespace
}  // namespace shoal::storage
