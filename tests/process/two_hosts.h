// A job on two hosts with a rank each.
#pragma once

#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/process/trainer.h"

namespace shoal::testing {

struct TwoHosts {
  std::vector<std::unique_ptr<NodeChild>> nodes;
  std::vector<std::unique_ptr<Trainer>> trainers;

  // `more`: further arguments of the node of host i. `change` changes the options of the trainers.
  void start(const Scratch& scratch, const std::string& name,
             const std::function<std::vector<std::string>(uint32_t i)>& more = nullptr,
             const std::function<void(CheckpointerOptions&)>& change = nullptr) {
    std::string coordinator;
    for (uint32_t i = 0; i < 2; ++i) {
      const std::string host = name + (i == 0 ? "-a" : "-b");
      std::vector<std::string> arguments = {"root=" + scratch.root(),
                                            "job=" + name,
                                            "world=2",
                                            "name=" + host,
                                            "abandoned_after_ms=200",
                                            "log=" + scratch.file(host + ".log")};
      if (more) {
        for (std::string& argument : more(i)) arguments.push_back(std::move(argument));
      }
      if (i == 1) arguments.push_back("coordinator=" + coordinator);
      nodes.push_back(std::make_unique<NodeChild>(scratch.host(host), arguments));
      if (i == 0) coordinator = nodes.back()->address();
      ASSERT_THAT(nodes.back()->first_line(), ::testing::HasSubstr("ready"));
    }
    for (uint32_t i = 0; i < 2; ++i) {
      trainers.push_back(std::make_unique<Trainer>(scratch, name + (i == 0 ? "-a" : "-b"), i, 2, name,
                                                   [&](CheckpointerOptions& options) {
                                                     options.attach_timeout = std::chrono::seconds(5);
                                                     if (change) change(options);
                                                   }));
      ASSERT_TRUE(trainers.back()->opened.ok()) << trainers.back()->opened.status().to_string();
    }
  }
  void kill_nodes() {
    for (auto& node : nodes) node->signal(SIGKILL);
    for (auto& node : nodes) node->wait();
  }
};

}  // namespace shoal::testing
