// Checkpointer, SaveHandle and CheckpointReader.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "python/binding/binding.h"
#include "python/binding/state.h"
#include "shoal/checkpoint_reader.h"
#include "shoal/checkpointer.h"
#include "shoal/dcp/save_planner.h"

namespace shoal::python {

namespace {

// How often a wait looks for signals of Python, such as that of Ctrl-C.
constexpr std::chrono::milliseconds kSignalCheck{100};

using Seconds = std::optional<double>;
std::optional<std::chrono::milliseconds> timeout_of(const Seconds& seconds) {
  if (!seconds) return std::nullopt;
  return std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000));
}

// Owns a value in the process that made it. The threads and locks of the client do not exist in a process
// that fork has made: there, a call is an error and the destructor leaks the value.
template <class T>
class InProcess {
 public:
  explicit InProcess(std::unique_ptr<T> value) : value_(std::move(value)), pid_(::getpid()) {}
  InProcess(InProcess&&) noexcept = default;
  InProcess& operator=(InProcess&&) = delete;
  ~InProcess() {
    if (!value_) return;
    if (::getpid() != pid_) {
      static_cast<void>(value_.release());
    } else {
      const WithoutLock without_lock;
      value_.reset();
    }
  }
  T& get() const {
    if (::getpid() != pid_) {
      throw StatusError(Status(Code::refused,
                               "this process was forked from the one that opened the Checkpointer: open one "
                               "in this process, or use multiprocessing's start method 'spawn'"));
    }
    if (!value_) throw StatusError(Status(Code::refused, "it is closed"));
    return *value_;
  }
  void drop() {
    if (!value_) return;
    get();
    const WithoutLock without_lock;
    value_.reset();
  }

 private:
  std::unique_ptr<T> value_;
  pid_t pid_;
};

using Client = InProcess<Checkpointer>;
using Handle = InProcess<SaveHandle>;
using Reader = InProcess<CheckpointReader>;

// Lets Python handle its signals. False: a handler has raised an exception, such as KeyboardInterrupt.
bool no_signal_is_pending() {
  const PyGILState_STATE state = take_lock([] { return PyGILState_Ensure(); });
  const bool is_none = PyErr_Occurred() == nullptr && PyErr_CheckSignals() == 0;
  PyGILState_Release(state);
  return is_none;
}

// Calls `wait` with short timeouts until it returns something else than deadline_exceeded, or until
// `seconds` have passed. Between them Python handles its signals.
template <class Wait>
auto wait_with_signals(const Seconds& seconds, Wait&& wait) {
  const auto begun = std::chrono::steady_clock::now();
  const std::optional<std::chrono::milliseconds> timeout = timeout_of(seconds);
  while (true) {
    std::chrono::milliseconds slice = kSignalCheck;
    if (timeout) {
      const auto passed =
          std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
      slice = std::clamp(*timeout - passed, std::chrono::milliseconds(0), kSignalCheck);
    }
    auto [decided, result] = unlocked([&] { return wait(slice); });
    if (decided) return result;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (timeout && slice < kSignalCheck) return result;
  }
}

Metadata wait_committed(const Handle& handle, const Seconds& timeout) {
  SaveHandle& save = handle.get();
  return value_of(wait_with_signals(timeout, [&](std::chrono::milliseconds slice) {
    // Before the wait: a save that ends just after it still has an outcome to return.
    const bool was_done = save.done();
    Result<Metadata> result = save.wait_committed(slice);
    const bool decided = result.ok() || result.status().code() != Code::deadline_exceeded || was_done;
    return std::pair(decided, std::move(result));
  }));
}

// wait_all and close: both return deadline_exceeded, and only then, if saves are still undecided.
template <class Wait>
void wait_all_with_signals(const Seconds& timeout, Wait&& wait) {
  check(wait_with_signals(timeout, [&](std::chrono::milliseconds slice) {
    Status status = wait(slice);
    const bool decided = status.code() != Code::deadline_exceeded;
    return std::pair(decided, std::move(status));
  }));
}

Handle handle_of(SaveHandle save) {
  return Handle(std::make_unique<SaveHandle>(std::move(save)));
}

Handle save(const Client& client, uint64_t step, const State& state, UserMetadata user) {
  const SaveAttributes attributes{std::move(user)};
  return handle_of(value_of(unlocked([&] { return client.get().save(step, state.values(), attributes); })));
}

// Raises what Python has raised before it could call save. The client then counts the save, as the other
// ranks do, and aborts it for them with this cause.
class RaisingPlanner final : public dcp::LocalSavePlanner {
 public:
  explicit RaisingPlanner(std::string why) : why_(std::move(why)) {}
  Status set_up_planner(const StateDict& /*state_dict*/, const dcp::StorageMeta& /*storage_meta*/,
                        const dcp::Role& /*role*/) override {
    throw std::runtime_error(why_);
  }
  Result<dcp::SavePlan> create_local_plan() override { throw std::runtime_error(why_); }
  Result<dcp::Data> resolve_data(const dcp::WriteItem& /*write_item*/) override {
    throw std::runtime_error(why_);
  }

 private:
  std::string why_;
};

void fail_save(const Client& client, uint64_t step, std::string why) {
  Checkpointer& checkpointer = client.get();
  RaisingPlanner planner(std::move(why));
  unlocked([&] {
    try {
      static_cast<void>(checkpointer.save(step, StateDict{}, planner));
    } catch (const std::exception&) {  // the planner's own
    }
  });
}

std::optional<Handle> last_save(const Client& client) {
  const std::optional<SaveHandle> save = client.get().last_save();
  if (!save) return std::nullopt;
  return handle_of(*save);
}

// (step, generation, attempt, phase, bytes done, bytes in all)
using ProgressTuple = std::tuple<uint64_t, uint32_t, uint32_t, std::string, uint64_t, uint64_t>;

std::optional<ProgressTuple> progress_tuple(const std::optional<Progress>& progress) {
  if (!progress) return std::nullopt;
  return ProgressTuple{progress->key.step,    progress->key.generation,
                       progress->key.attempt, std::string(progress_phase_name(progress->phase)),
                       progress->bytes_done,  progress->bytes_total};
}

using PolicyNames = std::map<std::string, std::string>;  // by subtree; "": the root

KeyPolicies policies_of(const PolicyNames& names) {
  static const std::map<std::string, KeyPolicy> kByName{{"strict", KeyPolicy::strict},
                                                        {"allow_missing", KeyPolicy::allow_missing},
                                                        {"allow_unexpected", KeyPolicy::allow_unexpected},
                                                        {"lenient", KeyPolicy::lenient},
                                                        {"skip", KeyPolicy::skip}};
  KeyPolicies policies;
  for (const auto& [subtree, name] : names) {
    const auto found = kByName.find(name);
    if (found == kByName.end()) {
      throw StatusError(Status(Code::invalid_argument,
                               "the policy '" + name + "' of '" + subtree +
                                   "' does not exist: strict, allow_missing, allow_unexpected, lenient or "
                                   "skip is needed"));
    }
    (subtree.empty() ? policies.root : policies.subtrees[subtree]) = found->second;
  }
  return policies;
}

LoadFallback fallback_of(const std::string& name) {
  if (name == "none") return LoadFallback::none;
  if (name == "previous") return LoadFallback::previous;
  throw StatusError(Status(Code::invalid_argument, "fallback is '" + name + "': none or previous is needed"));
}

LoadResult load(const Client& client, const State& state, std::optional<uint64_t> step,
                const PolicyNames& policies, const std::optional<std::string>& fallback,
                const std::string& method) {
  LoadOptions options;
  options.step = step;
  options.policies = policies_of(policies);
  if (fallback) options.fallback = fallback_of(*fallback);
  const std::optional<LoadMethod> known = load_method_of_name(method);
  if (!known) {
    throw StatusError(Status(Code::invalid_argument,
                             "method is '" + method + "': automatic, direct or two-stage is needed"));
  }
  options.method = *known;
  return value_of(unlocked([&] { return client.get().load(state.values(), options); }));
}

Reader open_checkpoint(const Client& client, std::optional<uint64_t> step,
                       const std::optional<std::string>& fallback) {
  std::optional<LoadFallback> wanted;
  if (fallback) wanted = fallback_of(*fallback);
  auto reader = value_of(unlocked([&] { return client.get().open_checkpoint(step, wanted); }));
  return Reader(std::make_unique<CheckpointReader>(std::move(reader)));
}

nb::bytes read_all(const Reader& reader, const std::string& fqn) {
  const Bytes bytes = value_of(unlocked([&] { return reader.get().read(fqn); }));
  return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void read_into(const Reader& reader, const std::string& fqn, const std::optional<BoxPair>& box,
               uintptr_t address, uint64_t bytes) {
  void* data = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  check(unlocked([&] {
    if (box) return reader.get().read(fqn, Box{box->first, box->second}, data, bytes);
    return reader.get().read(fqn, data, bytes);
  }));
}

void bind_handle(nb::module_& module) {
  nb::class_<Handle>(module, "SaveHandle", "One save in flight.")
      .def_prop_ro("step", [](const Handle& it) { return it.get().key().step; })
      .def_prop_ro("generation", [](const Handle& it) { return it.get().key().generation; })
      .def_prop_ro("attempt", [](const Handle& it) { return it.get().key().attempt; })
      .def_prop_ro("stats", [](const Handle& it) { return it.get().stats(); })
      .def_prop_ro("unchanged_since", [](const Handle& it) { return it.get().unchanged_since(); })
      .def_prop_ro("warning", [](const Handle& it) { return it.get().warning(); })
      .def_prop_ro("seconds_to_decision", [](const Handle& it) { return it.get().seconds_to_decision(); })
      .def("done", [](const Handle& it) { return it.get().done(); })
      .def("wait_committed", &wait_committed, nb::arg("timeout").none());
}

void bind_reader(nb::module_& module) {
  nb::class_<Reader>(module, "CheckpointReader", "A checkpoint that is open to be examined.")
      .def_prop_ro("metadata", [](const Reader& it) { return it.get().metadata(); })
      .def("has", [](const Reader& it, const std::string& fqn) { return it.get().find(fqn) != nullptr; })
      .def("read", &read_all, nb::arg("fqn"))
      .def(
          "read_state",
          [](const Reader& it, const State& state) {
            check(unlocked([&] { return it.get().read(state.values()); }));
          },
          nb::arg("state"))
      .def("read_into", &read_into, nb::arg("fqn"), nb::arg("box").none(), nb::arg("address"),
           nb::arg("bytes"))
      .def(
          "load",
          [](const Reader& it, const State& state, const PolicyNames& policies) {
            const KeyPolicies known = policies_of(policies);
            return value_of(unlocked([&] { return it.get().load(state.values(), known); }));
          },
          nb::arg("state"), nb::arg("policies"))
      .def("close", &Reader::drop);
}

}  // namespace

void bind_checkpointer(nb::module_& module) {
  bind_handle(module);
  bind_reader(module);
  nb::class_<Client>(module, "Checkpointer", "The C++ Checkpointer. One thread at a time may call it.")
      .def_static(
          "open",
          [](CheckpointerOptions options) {
            options.keep_waiting = no_signal_is_pending;
            return Client(value_of(unlocked([&] { return Checkpointer::open(options); })));
          },
          nb::arg("options"))
      .def_prop_ro("generation", [](const Client& it) { return it.get().generation(); })
      .def_prop_ro("options", [](const Client& it) { return it.get().options(); })
      .def("save", &save, nb::arg("step"), nb::arg("state"), nb::arg("metadata"))
      .def("fail_save", &fail_save, nb::arg("step"), nb::arg("why"))
      .def("last_save", &last_save)
      .def(
          "save_progress",
          [](const Client& it) { return progress_tuple(unlocked([&] { return it.get().save_progress(); })); })
      .def("load_progress", [](const Client& it) { return progress_tuple(it.get().load_progress()); })
      .def(
          "prepare",
          [](const Client& it, const State& state) {
            check(unlocked([&] { return it.get().prepare(state.values()); }));
          },
          nb::arg("state"))
      .def("load", &load, nb::arg("state"), nb::arg("step").none(), nb::arg("policies"),
           nb::arg("fallback").none(), nb::arg("method"))
      .def("load_report", [](const Client& it) { return it.get().load_report(); })
      .def("open_checkpoint", &open_checkpoint, nb::arg("step").none(), nb::arg("fallback").none(),
           nb::keep_alive<0, 1>())
      .def("latest", [](const Client& it) { return value_of(unlocked([&] { return it.get().latest(); })); })
      .def(
          "list",
          [](const Client& it, uint32_t newest) {
            return value_of(unlocked([&] { return it.get().list(newest); })).attempts;
          },
          nb::arg("newest"))
      .def(
          "wait_all",
          [](const Client& it, const Seconds& timeout) {
            wait_all_with_signals(timeout, [&](auto slice) { return it.get().wait_all(slice); });
          },
          nb::arg("timeout").none())
      .def(
          "close",
          [](const Client& it, const Seconds& timeout) {
            wait_all_with_signals(timeout, [&](auto slice) { return it.get().close(slice); });
          },
          nb::arg("timeout").none())
      .def("abandon", [](const Client& it) { unlocked([&] { it.get().abandon(); }); });
}

}  // namespace shoal::python
