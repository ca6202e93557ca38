// Retention: processes delete checkpoints while other processes load and verify them.
//
// What is modelled:
//   - Checkpoints 1 and 2 are committed, and 1 is verified. Checkpoint 3 is committed once the live
//     generation has chosen the checkpoint that it starts from. Then another generation starts from
//     checkpoint 3.
//   - Several processes apply retention at once: the coordinator, superseded coordinators, and a user at a
//     terminal. Each lists the checkpoints, picks a victim, replaces its manifest by a tombstone, syncs the
//     folder and lists the pins. If there is no pin, it removes the shards, and then the folder with the
//     tombstone. A manifest is published only in a folder that exists.
//   - A loader belongs to the live job or to a job that only reads. It creates its pin, syncs it, and then
//     reads the manifest. Only the pin makes it visible to a process that deletes.
//   - Any process may pause for any time, or crash at any step. The pin of a crashed loader is void.
//   - A crash of the storage forgets or keeps each change that was not synced, and calls in progress fail.
#include <fmt/format.h>

#include <array>

#include "tests/model/models.h"

namespace shoal::model {
namespace {

constexpr int kCheckpoints = 3, kShards = 2, kMaxRetainers = 3, kMaxLoaders = 3;
constexpr uint8_t kAllShards = (1 << kShards) - 1;

constexpr const char* kLoadKeeps = "a load in progress never loses its files";
constexpr const char* kFilesStay = "of a committed attempt every shard is there";
constexpr const char* kNewestStays = "the newest is never deleted, so latest never goes back";
constexpr const char* kVerifiedStays = "the last verified is never deleted";
constexpr const char* kStartStays = "what the live generation began from is never deleted";

const std::vector<Mutation> kMutations = {
    {"manifest-not-reread", "a loader reads the manifest before its pin exists, and not after", kLoadKeeps},
    {"pin-not-synced", "a loader goes on before its pin is synced", kLoadKeeps},
    {"pins-listed-first", "pins are listed before the tombstone exists, and not after", kLoadKeeps},
    {"pins-not-listed", "shards are removed whatever is pinned", kLoadKeeps},
    {"sweep-before-tombstone", "shards are removed before the tombstone exists", kFilesStay},
    {"sweep-unsynced-tombstone", "shards are removed under a tombstone that is not synced", kFilesStay},
    {"tombstone-removed", "the tombstone goes with the last shard, and the folder stays", kFilesStay},
    {"shard-written-after-deletion", "a late node makes the folder of a deleted attempt again", kFilesStay},
    {"newest-not-kept", "the newest checkpoint may be deleted", kNewestStays},
    {"verified-not-kept", "the last verified checkpoint may be deleted", kVerifiedStays},
    {"any-verified-counts", "a checkpoint that is not the newest counts as the last verified",
     kVerifiedStays},
    {"start-not-kept", "what the live generation began from may be deleted", kStartStays},
    {"deletion-not-resumed", "nobody goes on with what a crash left half deleted", kWayLost},
};

class Retention {
 public:
  enum Value : uint8_t { none, commit, deleted };
  enum RetainerPhase : uint8_t { idle, chosen, replaced, fenced, sweeping };
  enum LoaderPhase : uint8_t { away, seen, pin_linked, pinned, reading };

  struct Checkpoint {
    uint8_t value, on_disk, shards, folder_gone, verified;
  };
  struct Retainer {
    uint8_t phase, victim;
  };
  struct Loader {
    uint8_t phase, what, pin_lost, read;
  };
  struct State {
    Checkpoint checkpoints[kCheckpoints];
    Retainer retainers[kMaxRetainers];
    Loader loaders[kMaxLoaders];
    uint8_t start;  // checkpoint + 1 that the live generation started from; 0: not chosen yet
  };

  Retention(int retainers, int loaders, const std::string& mutation)
      : retainers_(retainers),
        loaders_(loaders),
        not_reread_(mutation == "manifest-not-reread"),
        pin_unsynced_(mutation == "pin-not-synced"),
        pins_first_(mutation == "pins-listed-first"),
        pins_ignored_(mutation == "pins-not-listed"),
        sweep_early_(mutation == "sweep-before-tombstone"),
        sweep_unsynced_(mutation == "sweep-unsynced-tombstone"),
        tombstone_goes_(mutation == "tombstone-removed"),
        late_shard_(mutation == "shard-written-after-deletion"),
        newest_goes_(mutation == "newest-not-kept"),
        verified_goes_(mutation == "verified-not-kept"),
        any_verified_(mutation == "any-verified-counts"),
        start_goes_(mutation == "start-not-kept"),
        not_resumed_(mutation == "deletion-not-resumed") {}

  State initial() const {
    State state{};
    for (int c = 0; c < 2; ++c) state.checkpoints[c] = {commit, commit, kAllShards, 0, 0};
    state.checkpoints[0].verified = 1;  // verified when it was the newest checkpoint
    state.checkpoints[2].shards = kAllShards;
    return state;
  }

  State canonical(State state) const {
    sort(state.retainers, retainers_);
    sort(state.loaders, loaders_);
    return state;
  }

  const char* violated(const State& state) const {
    bool any_verified = false, verified_stays = false;
    for (const Checkpoint& checkpoint : state.checkpoints) {
      if (checkpoint.value == commit && checkpoint.shards != kAllShards) return kFilesStay;
      any_verified = any_verified || checkpoint.verified;
      verified_stays = verified_stays || (checkpoint.verified && checkpoint.value == commit);
    }
    for (int l = 0; l < loaders_; ++l) {
      const Loader& loader = state.loaders[l];
      if (loader.phase == reading && state.checkpoints[loader.what].shards != kAllShards) return kLoadKeeps;
    }
    const Checkpoint& newest = state.checkpoints[state.checkpoints[2].value != none ? 2 : 1];
    if (newest.value == deleted) return kNewestStays;
    if (any_verified && !verified_stays) return kVerifiedStays;
    if (state.start != 0 && state.checkpoints[state.start - 1].value != commit) return kStartStays;
    return nullptr;
  }

  // All processes are idle, and no shard of a deleted checkpoint is left.
  bool settled(const State& state) const {
    for (int r = 0; r < retainers_; ++r) {
      if (state.retainers[r].phase != idle) return false;
    }
    for (int l = 0; l < loaders_; ++l) {
      if (state.loaders[l].phase != away) return false;
    }
    for (const Checkpoint& checkpoint : state.checkpoints) {
      if (checkpoint.value == deleted && checkpoint.shards != 0) return false;
    }
    return true;
  }

  template <class Sink>
  void steps(const State& state, Sink&& sink) const {
    for (int r = 0; r < retainers_; ++r) retainer_steps(state, r, sink);
    for (int l = 0; l < loaders_; ++l) loader_steps(state, l, sink);
    generation_steps(state, sink);
    zombie_steps(state, sink);
    storage_crashes(state, sink);
  }

 private:
  static auto label(const char* words) {
    return [words] { return words; };
  }
  template <class Part>
  static void sort(Part* parts, int count) {
    for (int i = 0; i < count; ++i) {
      for (int j = i + 1; j < count; ++j) {
        if (std::memcmp(&parts[j], &parts[i], sizeof(Part)) < 0) std::swap(parts[i], parts[j]);
      }
    }
  }
  static int newest(const State& state) {
    for (int c = kCheckpoints; c-- > 0;) {
      if (state.checkpoints[c].value == commit) return c;
    }
    return -1;
  }
  static int last_verified(const State& state) {
    for (int c = kCheckpoints; c-- > 0;) {
      if (state.checkpoints[c].value == commit && state.checkpoints[c].verified) return c;
    }
    return -1;
  }
  bool is_pinned(const State& state, int checkpoint) const {
    for (int l = 0; l < loaders_; ++l) {
      const Loader& loader = state.loaders[l];
      if (loader.phase > seen && loader.what == checkpoint && !loader.pin_lost) return true;
    }
    return false;
  }
  bool may_delete(const State& state, int checkpoint) const {
    if (state.checkpoints[checkpoint].value != commit) return false;
    if (checkpoint == newest(state) && !newest_goes_) return false;
    if (checkpoint == last_verified(state) && !verified_goes_) return false;
    if (state.start == checkpoint + 1 && !start_goes_) return false;
    return !is_pinned(state, checkpoint);
  }

  template <class Sink>
  void retainer_steps(const State& state, int r, Sink& sink) const {
    const Retainer& self = state.retainers[r];
    auto step = [&](Kind kind, auto&& change, auto&& words) {
      State next = state;
      change(next, next.retainers[r], next.checkpoints[next.retainers[r].victim]);
      if (next.retainers[r].phase == idle) next.retainers[r] = {};
      sink(next, kind, [&] { return fmt::format("retainer {}: {}", r + 1, words()); });
    };
    auto on_victim = [&](const char* words) {
      return [words, &self] { return fmt::format("{} checkpoint {}", words, self.victim + 1); };
    };
    if (self.phase == idle) {
      for (uint8_t c = 0; c < kCheckpoints; ++c) pick_steps(state, c, step);
      return;
    }
    step(
        Kind::fault, [](State&, Retainer& me, Checkpoint&) { me.phase = idle; }, label("crashes"));
    if (self.phase == chosen && state.checkpoints[self.victim].folder_gone) {
      step(
          Kind::calm, [](State&, Retainer& me, Checkpoint&) { me.phase = idle; },
          on_victim("finds no folder of"));
    } else if (self.phase == chosen) {
      auto replace = [&](State&, Retainer& me, Checkpoint& victim) {
        victim.value = deleted;
        me.phase = replaced;
      };
      step(Kind::calm, replace, on_victim("puts a tombstone in the place of the manifest of"));
      if (sweep_early_) sweep_steps(state, self, step);
    } else if (self.phase == replaced) {
      auto sync = [](State&, Retainer& me, Checkpoint& victim) {
        victim.on_disk = victim.value;
        me.phase = fenced;
      };
      step(Kind::calm, sync, on_victim("syncs the folder of"));
      if (sweep_unsynced_)
        step(
            Kind::calm, [](State&, Retainer& me, Checkpoint&) { me.phase = fenced; }, label("does not sync"));
    } else if (self.phase == fenced) {
      const bool leave = is_pinned(state, self.victim) && !pins_first_ && !pins_ignored_;
      auto look = [&](State&, Retainer& me, Checkpoint&) { me.phase = leave ? idle : sweeping; };
      step(Kind::calm, look,
           on_victim(leave ? "lists the pins, and for now leaves the shards of" : "finds no pin on"));
    } else {
      sweep_steps(state, self, step);
      if (state.checkpoints[self.victim].shards == 0)
        step(
            Kind::calm, [&](State&, Retainer& me, Checkpoint& victim) { end_sweep(me, victim); },
            on_victim("is done with"));
    }
  }

  template <class Step>
  void pick_steps(const State& state, uint8_t c, Step& step) const {
    const Checkpoint& checkpoint = state.checkpoints[c];
    auto begin = [&](RetainerPhase phase) {
      return [c, phase](State& next, Retainer& me, Checkpoint&) {
        me = {phase, c};
        if (phase == fenced) next.checkpoints[c].on_disk = next.checkpoints[c].value;
      };
    };
    if (may_delete(state, c))
      step(Kind::calm, begin(chosen),
           [&] { return fmt::format("lists all, and picks checkpoint {}", c + 1); });
    if (checkpoint.value == deleted && checkpoint.shards != 0 && !not_resumed_)
      step(Kind::calm, begin(fenced),
           [&] { return fmt::format("reads the tombstone of checkpoint {} and syncs its folder", c + 1); });
  }

  template <class Step>
  void sweep_steps(const State& state, const Retainer& self, Step& step) const {
    for (int i = 0; i < kShards; ++i) {
      if (!(state.checkpoints[self.victim].shards >> i & 1)) continue;
      auto remove = [&](State&, Retainer&, Checkpoint& victim) {
        victim.shards = static_cast<uint8_t>(victim.shards & ~(1 << i));
      };
      step(Kind::calm, remove,
           [&] { return fmt::format("removes shard {} of checkpoint {}", i + 1, self.victim + 1); });
    }
  }

  void end_sweep(Retainer& me, Checkpoint& victim) const {
    me.phase = idle;
    victim.value = victim.on_disk = none;
    victim.folder_gone = !tombstone_goes_;
  }

  template <class Sink>
  void loader_steps(const State& state, int l, Sink& sink) const {
    const Loader& self = state.loaders[l];
    auto step = [&](Kind kind, auto&& change, auto&& words) {
      State next = state;
      change(next, next.loaders[l], next.checkpoints[next.loaders[l].what]);
      if (next.loaders[l].phase == away) next.loaders[l] = {};
      sink(next, kind, [&] { return fmt::format("loader {}: {}", l + 1, words()); });
    };
    if (self.phase == away) {
      for (uint8_t c = 0; c < kCheckpoints; ++c) {
        if (state.checkpoints[c].value != commit) continue;
        auto see = [c](State&, Loader& me, Checkpoint&) { me = {seen, c, 0, 0}; };
        step(Kind::calm, see, [c] { return fmt::format("reads the manifest of checkpoint {}", c + 1); });
      }
      return;
    }
    step(
        Kind::fault, [](State&, Loader& me, Checkpoint&) { me.phase = away; },
        label("crashes, its pin is void"));
    if (self.phase == seen) {
      auto pin = [](State&, Loader& me, Checkpoint&) { me.phase = pin_linked; };
      return step(Kind::calm, pin,
                  [&] { return fmt::format("links its pin on checkpoint {}", self.what + 1); });
    }
    if (self.phase == pin_linked) {
      auto sync = [&](State&, Loader& me, Checkpoint&) { me.phase = not_reread_ ? reading : pinned; };
      if (!pin_unsynced_) return step(Kind::calm, sync, label("syncs its pin"));
    }
    if (self.phase == pin_linked || self.phase == pinned) {
      auto reread = [&](State&, Loader& me, Checkpoint& checkpoint) {
        me.phase = checkpoint.value == commit ? reading : away;
      };
      return step(Kind::calm, reread, label("reads the manifest again"));
    }
    if (self.read < kShards) {
      step(
          Kind::calm, [](State&, Loader& me, Checkpoint&) { ++me.read; },
          [&] { return fmt::format("reads shard {}", self.read + 1); });
      return;
    }
    step(
        Kind::calm, [](State&, Loader& me, Checkpoint&) { me.phase = away; }, label("is done, and unpins"));
    const bool counts = any_verified_ || newest(state) == self.what;
    if (counts && !state.checkpoints[self.what].verified) {
      auto mark = [](State&, Loader&, Checkpoint& checkpoint) { checkpoint.verified = 1; };
      step(Kind::calm, mark,
           [&] { return fmt::format("notes that checkpoint {} is verified", self.what + 1); });
    }
  }

  // The steps assume what the loads model proves: no newer checkpoint is committed between a choice's listing
  // of the attempts and the choice.
  template <class Sink>
  void generation_steps(const State& state, Sink& sink) const {
    State next = state;
    if (state.start == 0) {
      next.start = 2;
      return sink(next, Kind::calm, [] { return std::string("the live generation chooses checkpoint 2"); });
    }
    if (state.checkpoints[2].value == none && !state.checkpoints[2].folder_gone) {
      next.checkpoints[2].value = next.checkpoints[2].on_disk = commit;
      return sink(next, Kind::calm, [] { return std::string("checkpoint 3 is committed"); });
    }
    next.start = 3;
    sink(next, Kind::calm, [] { return std::string("another generation begins, and chooses checkpoint 3"); });
  }

  // Zombies: a paused coordinator that once found all reports complete, and a node that writes its shard
  // again.
  template <class Sink>
  void zombie_steps(const State& state, Sink& sink) const {
    for (int c = 0; c < 2; ++c) {
      const Checkpoint& checkpoint = state.checkpoints[c];
      if (checkpoint.value != none) continue;
      State next = state;
      if (checkpoint.folder_gone && !late_shard_) continue;  // a manifest needs a folder that exists
      if (checkpoint.folder_gone) {
        next.checkpoints[c].folder_gone = 0;
        next.checkpoints[c].shards = 1;
        sink(next, Kind::calm,
             [&] { return fmt::format("a late node writes its shard of checkpoint {} again", c + 1); });
      } else {
        next.checkpoints[c].value = next.checkpoints[c].on_disk = commit;
        sink(next, Kind::calm, [&] {
          return fmt::format("a coordinator that had paused publishes checkpoint {} again", c + 1);
        });
      }
    }
  }

  template <class Sink>
  void storage_crashes(const State& state, Sink& sink) const {
    std::array<int, kCheckpoints + kMaxLoaders> unsynced{};
    int count = 0;
    for (int c = 0; c < kCheckpoints; ++c) {
      if (state.checkpoints[c].value != state.checkpoints[c].on_disk) unsynced[count++] = c;
    }
    for (int l = 0; l < loaders_; ++l) {
      const Loader& loader = state.loaders[l];
      const bool linked = loader.phase == pin_linked || (pin_unsynced_ && loader.phase == reading);
      if (linked && !loader.pin_lost) unsynced[count++] = kCheckpoints + l;
    }
    if (count == 0) return;
    for (int kept = 0; kept < 1 << count; ++kept) {
      State next = state;
      for (int i = 0; i < count; ++i) {
        const bool keep = (kept >> i & 1) != 0;
        if (unsynced[i] >= kCheckpoints) {
          next.loaders[unsynced[i] - kCheckpoints].pin_lost = !keep;
        } else {
          Checkpoint& checkpoint = next.checkpoints[unsynced[i]];
          (keep ? checkpoint.on_disk : checkpoint.value) = keep ? checkpoint.value : checkpoint.on_disk;
        }
      }
      for (int r = 0; r < retainers_; ++r) {
        if (next.retainers[r].phase == replaced) next.retainers[r] = {};
      }
      for (int l = 0; l < loaders_; ++l) {
        if (next.loaders[l].phase == pin_linked) next.loaders[l] = {};
      }
      sink(next, Kind::fault, [&] {
        std::string words = "the storage crashes";
        for (int i = 0; i < count; ++i) {
          words +=
              fmt::format("; it {} {} {}", (kept >> i & 1) ? "kept" : "forgot",
                          unsynced[i] < kCheckpoints ? "the tombstone of checkpoint" : "the pin of loader",
                          unsynced[i] < kCheckpoints ? unsynced[i] + 1 : unsynced[i] - kCheckpoints + 1);
        }
        return words;
      });
    }
  }

  const int retainers_, loaders_;
  const bool not_reread_, pin_unsynced_, pins_first_, pins_ignored_, sweep_early_, sweep_unsynced_,
      tombstone_goes_, late_shard_, newest_goes_, verified_goes_, any_verified_, start_goes_, not_resumed_;
};

}  // namespace

NamedModel retention_model(int retainers, int loaders) {
  auto check = [=](const std::string& mutation) {
    const Retention model(retainers, loaders, mutation);
    return Checker<Retention>(model).run(kStatesMax);
  };
  return {"retention",
          fmt::format("{} checkpoints, {} retainers, {} loaders", kCheckpoints, retainers, loaders),
          kMutations, check};
}

}  // namespace shoal::model
