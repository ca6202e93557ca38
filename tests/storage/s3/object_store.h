// An object store for a test: tests/storage/s3/object_store.py, ended with this object.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "shoal/check.h"
#include "storage/s3/s3_settings.h"

namespace shoal::testing {

class ObjectStore {
 public:
  // nullptr: moto is not installed (tools/python_environment).
  static std::unique_ptr<ObjectStore> start(std::vector<std::string> arguments = {}) {
    std::unique_ptr<ObjectStore> store(new ObjectStore());
    int input[2], output[2];
    SHOAL_CHECK(::pipe2(input, O_CLOEXEC) == 0 && ::pipe2(output, O_CLOEXEC) == 0);
    arguments.insert(arguments.begin(), {SHOAL_TEST_PYTHON, SHOAL_OBJECT_STORE});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    store->pid_ = ::fork();
    SHOAL_CHECK(store->pid_ >= 0);
    if (store->pid_ == 0) {
      ::dup2(input[0], 0);
      ::dup2(output[1], 1);
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(input[0]);
    ::close(output[1]);
    store->input_ = base::OwnedFd(input[1]);
    const base::OwnedFd from(output[0]);
    std::string line;
    for (char c = 0; ::read(from.get(), &c, 1) == 1 && c != '\n';) line.push_back(c);
    store->facts_ = nlohmann::json::parse(line, nullptr, false);
    return store->facts_.is_object() ? std::move(store) : nullptr;
  }
  ~ObjectStore() {
    input_.reset();  // the end of its input ends it
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  ObjectStore(const ObjectStore&) = delete;

  std::string fact(const char* name) const { return facts_.at(name).get<std::string>(); }
  // Of --keys-last.
  storage::S3Credentials further_key(size_t number) const {
    const nlohmann::json& pair = facts_.at("keys").at(number);
    return {pair.at(0).get<std::string>(), pair.at(1).get<std::string>()};
  }
  std::string endpoint() const { return fact("endpoint"); }
  storage::Variables variables() const {
    std::map<std::string, std::string> values = {{"AWS_ENDPOINT_URL", endpoint()},
                                                 {"AWS_ACCESS_KEY_ID", fact("access_key")},
                                                 {"AWS_SECRET_ACCESS_KEY", fact("secret_key")},
                                                 {"AWS_REGION", "us-east-1"}};
    if (facts_.contains("ca_file")) values["AWS_CA_BUNDLE"] = fact("ca_file");
    return [values](const char* name) -> std::optional<std::string> {
      auto found = values.find(name);
      return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
    };
  }
  // For this process and those that it starts.
  void set_environment() const {
    for (const char* name :
         {"AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"}) {
      ::setenv(name, variables()(name)->c_str(), 1);
    }
    const auto ca_file = variables()("AWS_CA_BUNDLE");
    if (ca_file) ::setenv("AWS_CA_BUNDLE", ca_file->c_str(), 1);
    if (!ca_file) ::unsetenv("AWS_CA_BUNDLE");
  }

 private:
  ObjectStore() = default;
  pid_t pid_ = -1;
  base::OwnedFd input_;
  nlohmann::json facts_;
};

// Ends the test if there is no object store: it is skipped, or fails where every peer is required.
#define SHOAL_NEEDS_OBJECT_STORE(store)                                                   \
  if ((store) == nullptr) {                                                               \
    if (std::getenv("SHOAL_REQUIRE_PEERS") != nullptr) FAIL() << "moto is not installed"; \
    GTEST_SKIP() << "moto is not installed: run tools/python_environment";                \
  }

}  // namespace shoal::testing
