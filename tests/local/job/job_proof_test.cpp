#include "local/job/job_proof.h"

#include <gtest/gtest.h>

namespace shoal::local {
namespace {

JobProof proof(std::string_view key, std::string_view label, std::initializer_list<ByteView> parts) {
  return job_proof(as_view(key), label, parts);
}

TEST(JobProof, IsOfItsKeyItsPurposeAndEachPart) {
  const JobProof one = proof("token", "question", {as_view("ab"), as_view("c")});
  EXPECT_TRUE(is_same_proof(one, proof("token", "question", {as_view("ab"), as_view("c")})));
  EXPECT_FALSE(is_same_proof(one, proof("another", "question", {as_view("ab"), as_view("c")})));
  EXPECT_FALSE(is_same_proof(one, proof("token", "answer", {as_view("ab"), as_view("c")})));
  EXPECT_FALSE(is_same_proof(one, proof("token", "question", {as_view("a"), as_view("bc")})));
  EXPECT_FALSE(is_same_proof(one, proof("token", "question", {as_view("abc")})));
}

TEST(JobProof, NoncesDiffer) {
  EXPECT_NE(random_job_nonce(), random_job_nonce());
}

}  // namespace
}  // namespace shoal::local
