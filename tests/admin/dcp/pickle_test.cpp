#include "admin/dcp/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "admin/dcp/plain_value.h"
#include "tests/admin/dcp/zip_bytes.h"

namespace shoal::admin {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

PickleRules rules_of(uint32_t values_max = 1000) {
  PickleRules rules;
  rules.where = "here";
  rules.allows = [](std::string_view module, std::string_view) { return module != "os"; };
  rules.values_max = values_max;
  return rules;
}

Result<Pickle> read_pickle(const std::string& bytes, uint32_t values_max = 1000) {
  return Pickle::read(as_view(bytes), rules_of(values_max));
}

// What the Python package stores for a pickle of protocol 4; "not plain" if it is none.
std::string plain(const std::string& body) {
  const std::string bytes = "\x80\x04" + body + ".";
  auto pickle = read_pickle(bytes, 100'000);
  if (!pickle.ok()) return pickle.status().to_string();
  return encode_plain(*pickle, pickle->root(), 10'000).value_or("not plain");
}

TEST(Pickle, ReadsPlainValues) {
  EXPECT_EQ(plain("N"), "null");
  EXPECT_EQ(plain("\x88"), "true");
  EXPECT_EQ(plain("\x89"), "false");
  EXPECT_EQ(plain("K\xff"), "255");
  EXPECT_EQ(plain("M\xff\xff"), "65535");
  EXPECT_EQ(plain("J\xff\xff\xff\xff"), "-1");
  EXPECT_EQ(plain("\x8a\0"s), "0");
  EXPECT_EQ(plain("\x8a\1\x80"), "-128");
  EXPECT_EQ(plain("\x8a\x08\0\0\0\0\0\0\0\x80"s), "-9223372036854775808");
  EXPECT_EQ(plain("\x8a\x09\0\0\0\0\0\0\0\0\1"s), "18446744073709551616");
  EXPECT_EQ(plain("\x8a\x09\0\0\0\0\0\0\0\0\xff"s), "-18446744073709551616");
  EXPECT_EQ(plain("G\x3f\xf0\0\0\0\0\0\0"s), "1.0");
  EXPECT_EQ(plain("G\x3f\xb9\x99\x99\x99\x99\x99\x9a"), "0.1");
  EXPECT_EQ(plain("G\x7f\xf0\0\0\0\0\0\0"s), "{\"float\":\"inf\"}");
  EXPECT_EQ(plain("\x8c\3a\"\n"), "\"a\\\"\\u000a\"");
  EXPECT_EQ(plain("C\2\0\xff"s), "\0\0\xff"s);
  EXPECT_EQ(plain("]"), "[]");
  EXPECT_EQ(plain("](K\1C\1\xff"
                  "e"),
            "[1,{\"bytes\":\"/w==\"}]");
  EXPECT_EQ(plain("K\1K\2\x86"), "{\"tuple\":[1,2]}");
  EXPECT_EQ(plain("}(\x8c\1aK\1K\2Nu"), "{\"dict\":[[\"a\",1],[2,null]]}");
  EXPECT_EQ(plain("ctorch\nbfloat16\n"), "{\"torch.dtype\":\"torch.bfloat16\"}");
  EXPECT_EQ(plain("ctorch\nSize\nK\3\x85\x85R"), "{\"torch.Size\":[3]}");
  EXPECT_EQ(plain("ctorch\ndevice\n\x8c\4cudaK\1\x86R"), "{\"torch.device\":\"cuda:1\"}");
  EXPECT_EQ(plain("c_codecs\nencode\n\x8c\2\xc3\xbf\x8c\6latin1\x86R"), "\0\xff"s);
}

TEST(Pickle, MemoAndFramesMeanWhatPythonMeans) {
  EXPECT_EQ(plain("](\x8c\1a\x94h\0e"s), "[\"a\",\"a\"]");
  EXPECT_EQ(plain("\x95\2\0\0\0\0\0\0\0K\7"s), "7");
  EXPECT_THAT(plain("\x95\xff\0\0\0\0\0\0\0K\7"s), HasSubstr("a frame"));
  EXPECT_THAT(plain("K\1r\xff\xff\xff\xff"), HasSubstr("index of the memo"));
  EXPECT_THAT(plain("h\0"s), HasSubstr("index of the memo"));
}

TEST(Pickle, NamesThatAreNotAllowedAreRejectedByName) {
  for (const std::string& body : {"cos\nsystem\n\x8c\4trueR"s, "\x8c\2os\x8c\6system\x93"s}) {
    const std::string bytes = "\x80\x02" + body + ".";
    auto pickle = read_pickle(bytes);
    ASSERT_FALSE(pickle.ok());
    EXPECT_EQ(pickle.status().code(), Code::invalid_argument);
    EXPECT_THAT(pickle.status().message(), HasSubstr("here names os.system"));
  }
}

TEST(Pickle, CallsAndAttributesAreDataAndNothingElseCanBeCalled) {
  const std::string bytes =
      "\x80\x02"
      "cm\nC\n)\x81}\x8c\1xK\5sb.";
  auto pickle = read_pickle(bytes);
  ASSERT_TRUE(pickle.ok()) << pickle.status().to_string();
  EXPECT_TRUE(pickle->is_named(pickle->root(), "m", "C"));
  ASSERT_EQ(pickle->entries(pickle->state(pickle->root())).size(), 2u);
  for (const std::string& body :
       {"K\1)R"s, "cm\nC\nK\1R"s, "cm\nC\n)\x81)R"s, "K\1}b"s, "cm\nC\n}b"s, "cm\nC\n)\x81}b}b"s}) {
    EXPECT_FALSE(read_pickle("\x80\x02" + body + ".").ok()) << body;
  }
}

TEST(Pickle, OpcodesThatPyTorchDoesNotNeedAreRejected) {
  for (const char opcode : "\x82\x83\x84\x92\x97\x98iopPSUTVILFg"s) {
    const std::string bytes = "\x80\x04N"s + opcode + std::string(20, '\0') + ".";
    EXPECT_EQ(read_pickle(bytes).status().code(), Code::corrupt) << opcode;
  }
  EXPECT_THAT(read_pickle("\x80\x04NQ.").status().message(), HasSubstr("outside of the pickle"));
  EXPECT_EQ(read_pickle("\x80\x06N.").status().code(), Code::version);
  EXPECT_EQ(read_pickle("(dp0\n.").status().code(), Code::corrupt);  // protocol 0
}

TEST(Pickle, EveryTruncationAndEveryByteInEachPlaceEnds) {
  const std::string good =
      "\x80\x04\x95\x30\0\0\0\0\0\0\0}\x94(\x8c\1a\x94](K\1\x8a\1\1G\x3f\xf0\0\0\0\0\0\0e\x8c\1b\x94"
      "cm\nC\n)\x81}\x8c\1xK\5sb\x8c\1ch\1\x8f(K\1\x90u."s;
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(read_pickle(good.substr(0, size)).ok());
  for (size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(value);
      auto pickle = read_pickle(bytes);
      if (pickle.ok()) (void)encode_plain(*pickle, pickle->root(), 10'000);
    }
  }
}

TEST(Pickle, MemoryIsBoundedWhateverCountsItNames) {
  EXPECT_THAT(plain("X\xff\xff\xff\xff"
                    "abc"),
              HasSubstr("ends too early"));
  EXPECT_THAT(plain("\x8d" + std::string(8, '\xff') + "abc"), HasSubstr("ends too early"));
  EXPECT_THAT(plain("\x8b\xff\xff\xff\x7f"
                    "abc"),
              HasSubstr("ends too early"));
  EXPECT_EQ(read_pickle("\x80\x04" + std::string(2000, ']') + ".").status().code(), Code::too_large);
}

TEST(Pickle, DeepAndRepeatedContainersAreNotPlain) {
  std::string deep(5000, ']');
  deep += std::string(4999, 'a');
  EXPECT_EQ(plain(deep), "not plain");
  EXPECT_EQ(plain("]\x94h\0a"s), "not plain");  // contains itself
  std::string doubled = "]\x94";                // each list contains the one before it twice
  for (int i = 0; i < 60; ++i) {
    doubled += "0](h"s + static_cast<char>(i) + "h" + static_cast<char>(i) + "e\x94";
  }
  EXPECT_EQ(plain(doubled), "not plain");
}

}  // namespace
}  // namespace shoal::admin
