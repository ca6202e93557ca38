#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "client/checkpointer.h"
#include "client/launch/checkpointer_options.h"
#include "client/staging/memory_budget.h"
#include "shoal/checkpoint_reader.h"
#include "shoal/checkpointer.h"

namespace shoal {

namespace {

Status newer_decided(const AttemptKey& now, const AttemptKey& chosen) {
  return Status(Code::aborted, fmt::format("{} was committed during the load of {}: load again",
                                           to_string(now), to_string(chosen)));
}

Status check_no_step(const LoadOptions& options) {
  if (!options.step) return ok_status();
  return Status(Code::invalid_argument, fmt::format("load_or_start loads the latest checkpoint or none, and "
                                                    "LoadOptions::step is {}: use load for a step",
                                                    *options.step));
}

client::WantedKeys keys_of(const client::BoundState& state) {
  return {state.values().size(), [&state](uint32_t at, client::WantedKey& key) {
            const LayoutEntry& entry = state.layout()->entries()[at];
            key.stored_fqn = state.fqn_of(at);
            key.value.fqn = key.stored_fqn;
            key.value.kind = entry.kind;
            key.value.dtype = entry.dtype;
            key.value.shape = entry.shape;
          }};
}

}  // namespace

Result<local::Found> Checkpointer::Impl::found_in(Result<local::LocalMessage> answer) {
  if (!answer.ok()) return answer.status();
  auto* found = std::get_if<local::Found>(&*answer);
  if (!found) return Status(Code::corrupt, "the node answered a request with another type of message");
  choice.is_none = found->outcome.code() == Code::not_found && !choice.found;
  if (!found->outcome.ok()) return found->outcome;
  choice.found = found->checkpoint.key;
  if (found->passed_over) choice.passed_over = found->passed_over;
  return std::move(*found);
}

std::string Checkpointer::Impl::name_load(const std::string& what) const {
  return fmt::format("rank {}, load of {}", client::rank_in_world(options), what);
}

Result<Metadata> Checkpointer::latest() {
  SHOAL_RETURN_IF_ERROR(impl_->check_open());
  const client::LoadingThread::Turn turn(impl_->loading_thread);
  SHOAL_RETURN_IF_ERROR(turn.status());
  impl_->begin_choice();
  return impl_->end_choice(impl_->with_patience([this]() -> Result<Metadata> {
    SHOAL_ASSIGN_OR_RETURN(uint32_t id, impl_->session->begin_request());
    client::RequestScope request(*impl_->session);
    impl_->session->ask(local::Latest{id});
    SHOAL_ASSIGN_OR_RETURN(local::Found found, impl_->found_in(impl_->session->next_answer()));
    return std::move(found.checkpoint);
  }));
}

Result<CheckpointList> Checkpointer::list(uint32_t newest) {
  SHOAL_RETURN_IF_ERROR(impl_->check_open());
  const client::LoadingThread::Turn turn(impl_->loading_thread);
  SHOAL_RETURN_IF_ERROR(turn.status());
  return impl_->with_patience([this, newest]() -> Result<CheckpointList> {
    SHOAL_ASSIGN_OR_RETURN(uint32_t id, impl_->session->begin_request());
    client::RequestScope request(*impl_->session);
    impl_->session->ask(local::List{id, std::min(newest, kMaxListedCheckpoints)});
    SHOAL_ASSIGN_OR_RETURN(local::LocalMessage answer, impl_->session->next_answer());
    const auto* listing = std::get_if<local::Listing>(&answer);
    if (listing == nullptr) {
      return Status(Code::corrupt, "the node answered a request with another type of message");
    }
    SHOAL_RETURN_IF_ERROR(listing->outcome);
    return *listing->list;
  });
}

Status Checkpointer::Impl::check_load_options(const LoadOptions& load_options) const {
  if (load_options.fallback && *load_options.fallback > LoadFallback::previous) {
    return Status(Code::invalid_argument, fmt::format("LoadOptions::fallback has the unknown value {}",
                                                      static_cast<unsigned>(*load_options.fallback)));
  }
  if (load_options.step && load_options.fallback == LoadFallback::previous) {
    return Status(Code::invalid_argument,
                  fmt::format("LoadOptions::fallback applies to the latest checkpoint only, and "
                              "LoadOptions::step names step {}: set only one of them",
                              *load_options.step));
  }
  return check_sharing(load_options);
}

Checkpointer::Impl::WantedCheckpoint Checkpointer::Impl::wanted_by(const LoadOptions& load_options) const {
  if (load_options.step) return {load_options.step, LoadFallback::none};
  return {std::nullopt, load_options.fallback.value_or(options.load_fallback)};
}

void Checkpointer::Impl::report_passed_over(const AttemptKey& loaded, const PassedOver& passed_over) {
  if (options.rank != 0 || passed_over.named.empty()) return;
  if (reported_passed_over == passed_over.named.front().key) return;
  reported_passed_over = passed_over.named.front().key;
  fmt::print(stderr, "shoal: warning: loaded {}, and passed over {} newer {}: {}\n", to_string(loaded),
             passed_over.count, passed_over.count == 1 ? "attempt" : "attempts", to_string(passed_over));
}

Result<LoadResult> Checkpointer::Impl::notified(Result<LoadResult> loaded) {
  if (loaded.ok()) report_passed_over(loaded->metadata.key, loaded->passed_over);
  return loaded;
}

Status Checkpointer::Impl::check_sharing(const LoadOptions& load_options) const {
  if (!load_options.cpu_transfer) {
    return Status(Code::invalid_argument,
                  "cpu_transfer = false is not supported: hosts exchange bytes through host memory only");
  }
  if (load_options.method > LoadMethod::two_stage) {
    return Status(Code::invalid_argument, fmt::format("LoadOptions::method has the unknown value {}",
                                                      static_cast<unsigned>(load_options.method)));
  }
  const std::vector<Rank>& group = load_options.data_parallel_group;
  if (group.empty()) return ok_status();
  const bool ascends = std::adjacent_find(group.begin(), group.end(), std::greater_equal<>()) == group.end();
  if (!ascends || group.back() >= options.world_size ||
      !std::binary_search(group.begin(), group.end(), options.rank)) {
    if (options.process_group.empty()) {
      return Status(
          Code::invalid_argument,
          fmt::format(
              "data_parallel_group must have ascending ranks of a world of {}, including this rank, {}",
              options.world_size, options.rank));
    }
    return Status(Code::invalid_argument,
                  fmt::format("data_parallel_group must have ascending positions in the process group of {} "
                              "ranks, including this rank's, {} (this is rank {} of the world)",
                              options.world_size, options.rank, client::rank_in_world(options)));
  }
  return ok_status();
}

void Checkpointer::Impl::end_of_latest(const Status& outcome) {
  const Code code = outcome.code();
  const bool was_received =
      code != Code::unavailable && code != Code::deadline_exceeded && code != Code::busy;
  if (options.read_only && was_received) counts->begin_next();
}

local::Load Checkpointer::Impl::choice_of(const WantedCheckpoint& which) const {
  local::Load load;
  load.latest = !which.step;
  load.step = which.step.value_or(counts->last_save.step);
  if (load.latest) load.attempt = counts->last_save.attempt;
  // All ranks call save equally often. Loads of all ranks after the same call of save use one load choice,
  // even if some ranks load several times.
  load.ordinal = load.latest ? 1 + counts->saves : 0;
  if (which.fallback == LoadFallback::previous) load.ordinal |= kFallbackOrdinal;
  return load;
}

Result<client::OpenedCheckpoint> Checkpointer::Impl::open(const WantedCheckpoint& which, bool wants_layouts) {
  auto opened = open_chosen(which, wants_layouts);
  if (!which.step) end_of_latest(opened.status());
  return opened;
}

Result<client::OpenedCheckpoint> Checkpointer::Impl::open_chosen(const WantedCheckpoint& which,
                                                                 bool wants_layouts) {
  SHOAL_RETURN_IF_ERROR(session->wait_all_decided());  // before the node chooses the newest attempt
  local::Load load = choice_of(which);
  load.keeps_open = true;
  load.wants_layouts = wants_layouts;
  client::OpenedCheckpoint opened;
  SHOAL_ASSIGN_OR_RETURN(load.request_id, session->begin_request(&opened.link));
  client::RequestScope request(*session);
  opened.request_id = load.request_id;
  session->ask(load);
  const auto next_answer = [&] {
    auto answer = session->next_answer();
    if (!answer.ok()) close(opened);  // else the node would keep it open for nobody
    return answer;
  };
  SHOAL_ASSIGN_OR_RETURN(local::Found found, found_in(next_answer()));
  SHOAL_ASSIGN_OR_RETURN(local::LocalMessage last, next_answer());
  const auto* done = std::get_if<local::LoadDone>(&last);
  if (!done) return Status(Code::corrupt, "the node sent pieces that this load did not request");
  SHOAL_RETURN_IF_ERROR(done->outcome);
  opened.metadata = std::move(found.checkpoint);
  opened.layouts = std::move(found.layouts);
  if (choice.passed_over) opened.passed_over = *choice.passed_over;
  return opened;
}

// Opens by step, because a client cannot name an attempt.
Status Checkpointer::Impl::reopen(client::OpenedCheckpoint& opened) {
  auto again = with_patience([&] { return open({opened.metadata.key.step}, false); });
  if (!again.ok()) {
    if (again.status().code() != Code::not_found) return again.status();
    return Status(Code::unavailable, fmt::format("{} was deleted while this reader had it open",
                                                 to_string(opened.metadata.key)));
  }
  if (again->metadata.key != opened.metadata.key) {
    close(*again);
    return newer_decided(again->metadata.key, opened.metadata.key);
  }
  opened.request_id = again->request_id;
  opened.link = again->link;
  return ok_status();
}

void Checkpointer::Impl::close(const client::OpenedCheckpoint& opened) {
  if (opened.request_id != 0) session->send_to_node(opened.link, local::Close{opened.request_id});
}

// Makes a window for a load of `bytes` bytes: that size, within the bounds. The node decides how much of it
// is used, and thus gets memory, because it knows the other windows of this host.
Status Checkpointer::Impl::prepare_window(uint64_t bytes) {
  const uint64_t wanted = std::clamp(client::slab_bytes_for(bytes), client::kMinWindowBytes,
                                     std::max(client::kMinWindowBytes, options.load_window_bytes));
  if (window.bytes() >= wanted) return ok_status();
  window = client::MemorySlab();
  window_link = 0;
  Status fits = client::check_budget(wanted, held_bytes(), options.staging_bytes_max);
  if (!fits.ok()) {
    drop_free_slabs();
    fits = client::check_budget(wanted, held_bytes(), options.staging_bytes_max);
  }
  SHOAL_RETURN_IF_ERROR(fits);
  SHOAL_ASSIGN_OR_RETURN(window, client::MemorySlab::make_empty(wanted));
  return ok_status();
}

Result<Metadata> Checkpointer::Impl::load_targets(client::Placer& placer, local::Load load,
                                                  client::OpenedCheckpoint* opened, const OnFound& on_found) {
  load.slab_id = options.max_in_flight;  // slots of slabs have smaller numbers
  load.targets = placer.targets();
  load.reads_files = options.load_threads > 0;
  const bool reads = !load.targets.empty();
  if (reads) SHOAL_RETURN_IF_ERROR(prepare_window(placer.bytes_wanted()));
  uint64_t link = 0;
  SHOAL_ASSIGN_OR_RETURN(load.request_id, session->begin_request(&link));
  client::RequestScope request(*session);
  if (opened) {
    if (link != opened->link) {
      opened->request_id = 0;
      return Status(Code::unavailable, "the node that had the checkpoint open has ended");
    }
    load.of = opened->request_id;
  }
  if (reads && window_link != link) {
    // An earlier node has faulted in pages of the old window, which the new node would not count.
    if (window_link != 0) {
      SHOAL_ASSIGN_OR_RETURN(window, client::MemorySlab::make_empty(window.bytes()));
    }
    SHOAL_RETURN_IF_ERROR(session->ask_with_window({load.slab_id, window.bytes()}, window.fd()));
    window_link = link;
  }
  session->ask(load);
  load.targets = {};  // frees memory: the node has the targets now
  load.sharing.reset();
  bool ended = false;
  auto loaded = receive_load(load.request_id, placer, on_found, &ended);
  if (!ended) {  // the node may still write to this window, and would take the next one, with the same
                 // number, for it
    session->abandon(link);
    window = client::MemorySlab();
    window_link = 0;
  } else if (opened && !loaded.ok() && loaded.status().code() == Code::unavailable) {
    opened->request_id = 0;  // the node has lost its pin
  }
  return loaded;
}

Result<Metadata> Checkpointer::Impl::receive_load(uint32_t request_id, client::Placer& placer,
                                                  const OnFound& on_found, bool* ended) {
  SHOAL_ASSIGN_OR_RETURN(local::LocalMessage answer, session->next_answer());
  *ended = std::holds_alternative<local::Found>(answer);
  SHOAL_ASSIGN_OR_RETURN(local::Found found, found_in(std::move(answer)));
  *ended = false;
  if (on_found) on_found(found.checkpoint);
  load_counts.is_reading = true;
  SHOAL_RETURN_IF_ERROR(receive_pieces(request_id, placer, ended));
  return std::move(found.checkpoint);
}

Status Checkpointer::Impl::receive_pieces(uint32_t request_id, client::Placer& placer, bool* ended) {
  // The first wrong message. The remaining ones are skipped, so that they do not disturb the next request.
  Status broken;
  std::chrono::nanoseconds placing{0};
  client::FileReads files(root, client::load_threads_of(options.load_threads), read_buffers);
  // next_answer calls keep_waiting only if it waits, and a fast node has always answered already.
  Clock::time_point next_check = Clock::now();
  while (true) {
    SHOAL_ASSIGN_OR_RETURN(local::LocalMessage answer, session->next_answer());
    if (const auto* done = std::get_if<local::LoadDone>(&answer)) {
      *ended = true;
      times = done->times;
      times.reading_ns += files.reading_ns();
      times.placing_ns = static_cast<uint64_t>(placing.count()) + files.placing_ns();
      Status outcome = done->outcome;
      // The checkpoint exists: the missing thing is one of its files.
      if (outcome.code() == Code::not_found) outcome = Status(Code::corrupt, outcome.message());
      SHOAL_RETURN_IF_ERROR(outcome);
      SHOAL_RETURN_IF_ERROR(broken);
      placer.note_damage(done->damaged);
      return placer.finish();
    }
    if (options.keep_waiting && Clock::now() >= next_check) {
      if (!options.keep_waiting()) return Status(Code::busy, "the load was interrupted");
      next_check = Clock::now() + client::kInterruptionCheck;
    }
    if (const auto* batch = std::get_if<local::FilesToRead>(&answer)) {
      const Status read = read_files(*batch, placer, files, broken.ok());
      if (broken.ok()) broken = read;
      continue;
    }
    const auto* loaded = std::get_if<local::Loaded>(&answer);
    if (!loaded) return Status(Code::corrupt, "the node answered one load twice");
    const Clock::time_point begun = Clock::now();
    for (const local::LoadedPiece& piece : loaded->pieces) {
      if (broken.ok()) broken = placer.place(piece, ByteView(window.data(), window.bytes()));
    }
    placing += Clock::now() - begun;
    session->ask(local::Placed{request_id, loaded->batch});
  }
}

Status Checkpointer::Impl::read_files(const local::FilesToRead& batch, client::Placer& placer,
                                      client::FileReads& files, bool is_required) {
  local::FilesRead received{batch.request_id, batch.batch};
  Status status;
  if (is_required) {
    auto unread = files.read(batch, placer);
    if (unread.ok()) received.unread = std::move(*unread);
    status = unread.status();
  }
  session->ask(std::move(received));
  return status;
}

// A load most often has the state that was saved.
Result<client::BoundState> Checkpointer::Impl::bound_for_load(const StateDict& state) {
  if (!bound || !client::same_structure(bound->entries(), state.entries())) {
    return client::BoundState::bind(state, options.rank);
  }
  client::BoundState target = *bound;
  SHOAL_RETURN_IF_ERROR(target.rebind(state));
  return target;
}

Result<LoadResult> Checkpointer::Impl::load(const Wanted& wanted) {
  const Clock::time_point begun = Clock::now();
  const client::LoadCounts::Scope counted(load_counts);
  const KeyPolicies& policies = wanted.options.policies;
  SHOAL_ASSIGN_OR_RETURN(const client::BoundState target, bound_for_load(wanted.state));
  // The saves of this rank must be decided before the node chooses the newest attempt.
  if (!wanted.opened) SHOAL_RETURN_IF_ERROR(session->wait_all_decided());

  client::KeyComparison comparison;
  auto compare = [&](const Metadata& stored) {
    comparison = client::compare_keys(stored.state_dict_metadata, keys_of(target), policies, options.rank);
    report = comparison.report;
    comparison.outcome = comparison.outcome.with_context("the checkpoint does not have what this load needs");
  };

  std::vector<uint32_t> entries;
  if (wanted.planned) {  // after a new start of the load, do not load values that the planner already got
    for (uint32_t i = 0; i < target.values().size(); ++i) {
      if (!wanted.planned->has_arrived(target.fqn_of(i))) entries.push_back(i);
    }
  } else if (wanted.opened) {
    compare(wanted.opened->listed());
    SHOAL_RETURN_IF_ERROR(comparison.outcome);
    entries = std::move(comparison.readable);
  } else {
    entries.reserve(target.values().size());
    for (uint32_t i = 0; i < target.values().size(); ++i) {
      if (policies.of(target.fqn_of(i)) != KeyPolicy::skip) entries.push_back(i);
    }
  }
  for (const uint32_t entry : entries) SHOAL_RETURN_IF_ERROR(client::check_fillable(target.entry_of(entry)));
  client::Placer placer(target, std::move(entries));
  placer.count_in(&load_counts.bytes_done);
  load_counts.bytes_total = placer.bytes_wanted();
  if (target.uses_devices()) {
    SHOAL_RETURN_IF_ERROR(devices.check(target));
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<gpu::DeviceUpload> upload, devices.begin_upload());
    placer.use(std::move(upload));
  }
  if (wanted.planned) {
    placer.on_arrival([&](const std::string& fqn) { return wanted.planned->arrived(fqn); });
  }
  const bool compares_when_found = !wanted.planned && !wanted.opened;
  local::Load request = choice_of(wanted_by(wanted.options));
  if (options.world_size > 1) {  // otherwise there is no other rank to share with
    request.sharing =
        local::Load::Sharing{wanted.options.method, options.rank,    options.world_size,
                             counts->round(),       target.layout(), wanted.options.data_parallel_group};
  }
  Result<Metadata> loaded = load_targets(placer, std::move(request), wanted.opened,
                                         compares_when_found ? OnFound(compare) : nullptr);
  if (!wanted.opened && !wanted.options.step) end_of_latest(loaded.status());
  SHOAL_RETURN_IF_ERROR(comparison.outcome);  // it names more keys than the node's error
  if (!loaded.ok()) return loaded.status();
  PassedOver passed_over;
  if (wanted.opened) passed_over = wanted.opened->passed_over;
  if (!wanted.opened && choice.passed_over) passed_over = *choice.passed_over;
  return LoadResult{wanted.opened ? wanted.opened->metadata : std::move(*loaded),
                    placer.bytes_placed(),
                    seconds_since(begun),
                    report,
                    times,
                    placer.take_damage(),
                    std::move(passed_over)};
}

Result<LoadResult> Checkpointer::load(const StateDict& state, const LoadOptions& load_options) {
  SHOAL_RETURN_IF_ERROR(impl_->check_open());
  const client::LoadingThread::Turn turn(impl_->loading_thread);
  SHOAL_RETURN_IF_ERROR(turn.status());
  impl_->begin_choice();
  return impl_->notified(
      impl_->named(load_options.step, impl_->end_choice(impl_->load(state, load_options))));
}

Result<LoadResult> Checkpointer::load(const StateDict& state, dcp::LoadPlanner& planner,
                                      const LoadOptions& load_options) {
  SHOAL_RETURN_IF_ERROR(impl_->check_open());
  const client::LoadingThread::Turn turn(impl_->loading_thread);
  SHOAL_RETURN_IF_ERROR(turn.status());
  impl_->begin_choice();
  return impl_->notified(
      impl_->named(load_options.step, impl_->end_choice(impl_->load(state, planner, load_options))));
}

Result<std::optional<LoadResult>> Checkpointer::load_or_start(const StateDict& state,
                                                              const LoadOptions& load_options) {
  SHOAL_RETURN_IF_ERROR(check_no_step(load_options));
  return impl_->nothing_if_none(load(state, load_options));
}

Result<std::optional<LoadResult>> Checkpointer::load_or_start(const StateDict& state,
                                                              dcp::LoadPlanner& planner,
                                                              const LoadOptions& load_options) {
  SHOAL_RETURN_IF_ERROR(check_no_step(load_options));
  return impl_->nothing_if_none(load(state, planner, load_options));
}

Result<std::optional<LoadResult>> Checkpointer::Impl::nothing_if_none(Result<LoadResult> loaded) const {
  if (loaded.ok()) return std::optional<LoadResult>(std::move(loaded).value());
  if (loaded.status().code() == Code::not_found) return std::optional<LoadResult>();
  return loaded.status();
}

Result<LoadResult> Checkpointer::Impl::load(const StateDict& given, const LoadOptions& load_options) {
  report = {};
  SHOAL_ASSIGN_OR_RETURN(const StateDict* state, of_group(given));
  SHOAL_RETURN_IF_ERROR(check_load_options(load_options));
  SHOAL_RETURN_IF_ERROR(client::validate_policies(load_options.policies));
  if (load_options.method != LoadMethod::direct) ++counts->loads;
  const client::ForEachKey keys_here = [state](const std::function<void(std::string_view)>& see) {
    for (const auto& entry : state->entries()) see(entry->fqn);
  };
  // A subtree without a key of the state may still have one of the checkpoint.
  if (!client::needs_comparison_first(load_options.policies) &&
      client::subtrees_without_keys(load_options.policies, keys_here).empty()) {
    return with_patience([&] { return load({*state, load_options}); });
  }
  const Clock::time_point begun = Clock::now();
  SHOAL_ASSIGN_OR_RETURN(client::OpenedCheckpoint opened,
                         with_patience([&] { return open(wanted_by(load_options), false); }));
  const CloseLater closing{*this, opened};
  Result<LoadResult> loaded = while_open(opened, [&] { return load({*state, load_options, &opened}); });
  if (loaded.ok()) loaded->seconds = seconds_since(begun);
  return loaded;
}

Result<LoadResult> Checkpointer::Impl::load(const StateDict& given, dcp::LoadPlanner& planner,
                                            const LoadOptions& load_options) {
  report = {};
  SHOAL_ASSIGN_OR_RETURN(const StateDict* state, of_group(given));
  SHOAL_RETURN_IF_ERROR(check_load_options(load_options));
  SHOAL_RETURN_IF_ERROR(client::check_no_policies(load_options.policies));
  if (load_options.method != LoadMethod::direct) ++counts->loads;
  const Clock::time_point begun = Clock::now();
  SHOAL_ASSIGN_OR_RETURN(client::OpenedCheckpoint opened,
                         with_patience([&] { return open(wanted_by(load_options), false); }));
  const CloseLater closing{*this, opened};
  Result<LoadResult> loaded = load_planned(*state, load_options, planner, opened);
  if (loaded.ok()) loaded->seconds = seconds_since(begun);
  return loaded;
}

Result<LoadResult> Checkpointer::Impl::load_planned(const StateDict& state, const LoadOptions& load_options,
                                                    dcp::LoadPlanner& planner,
                                                    client::OpenedCheckpoint& opened) {
  client::PlannedLoad planned_load(planner);
  const Status status = planned_load.plan(state, dcp::metadata_of(opened.metadata), role());
  if (const LoadReport* found = planner.load_report()) report = *found;
  SHOAL_RETURN_IF_ERROR(status);
  SHOAL_ASSIGN_OR_RETURN(LoadResult loaded, while_open(opened, [&] {
                           return load({planned_load.state_dict(), load_options, &opened, &planned_load});
                         }));
  SHOAL_RETURN_IF_ERROR(planned_load.finish());
  return loaded;
}

const LoadReport& Checkpointer::load_report() const {
  return impl_->report;
}

Result<CheckpointReader> Checkpointer::open_checkpoint(std::optional<uint64_t> step,
                                                       std::optional<LoadFallback> fallback) {
  SHOAL_RETURN_IF_ERROR(impl_->check_open());
  const client::LoadingThread::Turn turn(impl_->loading_thread);
  SHOAL_RETURN_IF_ERROR(turn.status());
  LoadOptions load_options;
  load_options.step = step;
  load_options.fallback = fallback;
  SHOAL_RETURN_IF_ERROR(impl_->check_load_options(load_options));
  const Impl::WantedCheckpoint which = impl_->wanted_by(load_options);
  impl_->begin_choice();
  SHOAL_ASSIGN_OR_RETURN(
      client::OpenedCheckpoint opened,
      impl_->named(step, impl_->end_choice(impl_->with_patience([&] { return impl_->open(which, true); }))));
  impl_->report_passed_over(opened.metadata.key, opened.passed_over);
  return CheckpointReader(*impl_, std::make_unique<client::OpenedCheckpoint>(std::move(opened)));
}

}  // namespace shoal
