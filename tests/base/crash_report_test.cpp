// The message of a program that ends because of a lack of memory or threads, from any thread.
#include "base/crash_report.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "shoal/check.h"

namespace shoal::base {
namespace {

constexpr int kStatus = 7;
constexpr const char* kMemory = "^name: out of memory: raise the limit \\(ulimit -v";
constexpr const char* kThreads =
    "^name: out of memory or threads \\(.*\\): raise the limit \\(ulimit -v, ulimit -u";
constexpr const char* kOther = "^name: unhandled error, the process ends: the cause\n";

const std::system_error kNoThread(std::make_error_code(std::errc::resource_unavailable_try_again));

template <class Exception>
void raise_error(const Exception& exception) {
  throw exception;
}

template <class Exception>
void end_by(const Exception& exception) noexcept {  // else the death test catches it
  install_crash_report("name", kStatus);
  raise_error(exception);
}

template <class Exception>
void end_thread_by(const Exception& exception) {
  install_crash_report("name", kStatus);
  std::thread([&] { throw exception; }).join();
}

class CrashReport : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using CrashReportDeathTest = CrashReport;

TEST_F(CrashReportDeathTest, NameTheLimitsWhereMemoryOrThreadsAreShort) {
  EXPECT_EXIT(end_by(std::bad_alloc()), ::testing::ExitedWithCode(kStatus), kMemory);
  EXPECT_EXIT(end_thread_by(std::bad_alloc()), ::testing::ExitedWithCode(kStatus), kMemory);
  EXPECT_EXIT(end_by(kNoThread), ::testing::ExitedWithCode(kStatus), kThreads);
  EXPECT_EXIT(end_thread_by(kNoThread), ::testing::ExitedWithCode(kStatus), kThreads);
}

[[noreturn]] void fail_with_a_note(const std::string& file) {
  install_crash_report("name", kStatus);
  std::thread([] { const CrashNote other("of another thread"); }).join();
  const CrashNote note("seed 7; run it again", file, "seed = 7\n");
  check_failed("a/file.cpp", 12, "it");
}

TEST_F(CrashReportDeathTest, WriteTheNoteOfTheThreadThatCrashes) {
  const std::string file = ::testing::TempDir() + "/crash_note.toml";
  EXPECT_EXIT(fail_with_a_note(file), ::testing::KilledBySignal(SIGABRT),
              "internal error at a/file.cpp:12: it is false\nseed 7; run it again\n");
  std::ifstream written(file);
  std::string text((std::istreambuf_iterator<char>(written)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, "seed = 7\n");
  EXPECT_EXIT(
      {
        const CrashNote note("seed 8");
        std::raise(SIGSEGV);
      },
      ::testing::KilledBySignal(SIGSEGV), "seed 8\n");
}

TEST_F(CrashReportDeathTest, NameTheCauseOfAnotherErrorWhichLeavesACoreFile) {
  const std::runtime_error other("the cause");
  EXPECT_EXIT(end_by(other), ::testing::KilledBySignal(SIGABRT), kOther);
  EXPECT_EXIT(end_thread_by(other), ::testing::KilledBySignal(SIGABRT), kOther);
  EXPECT_EXIT(end_by(7), ::testing::KilledBySignal(SIGABRT),
              "^name: unhandled error of unknown type, the process ends\n");
}

// A thread that was not waited for while an error passed by.
TEST_F(CrashReportDeathTest, AreSaidWhereTheErrorCannotBeLookedAt) {
  auto leave_a_thread = [] {
    install_crash_report("name", kStatus);
    try {
      std::thread left([] {
        for (;;) ::pause();
      });
      throw std::bad_alloc();
    } catch (const std::bad_alloc&) {
    }
  };
  EXPECT_EXIT(leave_a_thread(), ::testing::KilledBySignal(SIGABRT), "memory or threads may be short");
}

#if !defined(SHOAL_ADDRESS_SANITIZER) && \
    !defined(SHOAL_THREAD_SANITIZER)  // which take terabytes of addresses
// As libraries do that cannot throw.
TEST_F(CrashReportDeathTest, NameTheLimitWhereALibraryAbortsNearIt) {
  auto abort_near_limit = [](auto resource) {
    install_crash_report("name", kStatus);
    const rlimit nothing{0, 0};
    setrlimit(resource, &nothing);
    std::abort();
  };
  EXPECT_EXIT(abort_near_limit(RLIMIT_AS), ::testing::ExitedWithCode(kStatus), kMemory);
  EXPECT_EXIT(abort_near_limit(RLIMIT_DATA), ::testing::ExitedWithCode(kStatus), kMemory);
}
#endif

TEST_F(CrashReportDeathTest, LeaveOtherAbortsAlone) {
  auto abort_with_room = [] {
    install_crash_report("name", kStatus);
    std::abort();
  };
  EXPECT_EXIT(abort_with_room(), ::testing::KilledBySignal(SIGABRT), "^$");
}

TEST_F(CrashReportDeathTest, OfSeveralThreadsAreSaidOnce) {
  auto end_by_many = [] {
    install_crash_report("name", kStatus);
    std::thread others[8];
    for (std::thread& other : others) other = std::thread([] { throw std::bad_alloc(); });
    for (std::thread& other : others) other.join();
  };
  EXPECT_EXIT(end_by_many(), ::testing::ExitedWithCode(kStatus), "^name: out of memory: [^\n]*\n$");
}

TEST_F(CrashReport, OfAnErrorThatMainHasCaughtGiveTheStatus) {
  const std::terminate_handler before = std::get_terminate();
  struct sigaction abort_before {};
  sigaction(SIGABRT, nullptr, &abort_before);
  install_crash_report("name", kStatus);
  ::testing::internal::CaptureStderr();
  int status = 0;
  try {
    throw std::bad_alloc();
  } catch (const std::exception&) {
    status = write_crash_report();
  }
  EXPECT_EQ(status, kStatus);
  EXPECT_EQ(::testing::internal::GetCapturedStderr().substr(0, 20), "name: out of memory:");
  std::set_terminate(before);
  sigaction(SIGABRT, &abort_before, nullptr);
}

}  // namespace
}  // namespace shoal::base
