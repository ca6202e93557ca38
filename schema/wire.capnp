@0xb1f4c7a3d1e05a03;
# Everything that nodes send to each other. A transport frame carries one Handshake, Heartbeat or Message.
# docs/reference/protocol.md states who sends which message, and when.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("shoal::schema");
using Layout = import "/schema/layout.capnp";
# Rosters and layouts are sent as Data: the canonical bytes whose XXH3-128 is their id.

const schemaVersion :UInt32 = 1;

struct Identity {
  schemaVersion @0 :UInt32;
  rootId @1 :Data;         # 16 bytes; proves that both sides see the same root
  jobId @2 :Text;          # token of the generation: one run of the job
  generation @3 :UInt32;   # 0 = not known yet
  epoch @4 :UInt32;        # highest epoch of a coordinator that this side knows; 0 = none
  incarnation @5 :Data;    # 16 random bytes, new for every process
  name @6 :Text;           # human-readable: host:pid
}

struct Handshake {
  union {
    hello :group {         # connector -> listener
      identity @0 :Identity;
      nonce @1 :Data;      # 32 random bytes
    }
    challenge :group {     # listener -> connector
      identity @2 :Identity;
      nonce @3 :Data;
      mac @4 :Data;        # HMAC-SHA256(token, "shoal-listener" + both nonces + both identities)
    }
    proof @5 :Data;        # connector -> listener: HMAC-SHA256(token, "shoal-connector" + both nonces + both
                           # identities)
    welcome :group {       # listener -> connector: the session exists
      identity @6 :Identity;
      dataPort @9 :UInt16; # UCX port of the listener for this session
    }
    refused :group {
      code @7 :UInt16;     # include/shoal/status.h
      reason @8 :Text;
    }
  }
}

struct AttemptKey {
  generation @0 :UInt32;
  step @1 :UInt64;
  attempt @2 :UInt32;
}

struct WrittenFile {
  rank @0 :UInt32;
  index @1 :UInt32;
  size @2 :UInt64;
  headerDigest @3 :Data;
  payloadBytes @4 :UInt64;
}

struct RankLayout {
  rank @0 :UInt32;
  layoutId @1 :Data;
}

struct RankPlan {
  rank @0 :UInt32;
  planId @1 :Data;
}

struct PlannerPlan {                   # of a rank; only planners know what it means
  rank @0 :UInt32;
  bytes @1 :Data;
}

struct RankDigests {
  rank @0 :UInt32;
  digests @1 :Layout.ReplicaDigests;
}

struct ShardsWritten {     # as the member of Message, with digests for replica_check
  key @0 :AttemptKey;
  rosterId @1 :Data;
  plans @2 :List(RankPlan);
  files @3 :List(WrittenFile);
  user @4 :List(Layout.UserText);
  digests @5 :List(RankDigests);       # of ranks of plans; ascending
}

struct RankPart {
  rank @0 :UInt32;
  plan @1 :Data;           # SavePlan of layout.capnp, framed; empty: the plan that the rank stated, under
                           # this roster
}

struct EndedRank {
  rank @0 :UInt32;
  end @1 :Text;            # how its trainer ended; empty: its node is stopping
}

struct LoadId {
  latest @0 :Bool;
  step @1 :UInt64;         # to load; of load(latest): that of the last save that each rank has called
  ordinal @2 :UInt32;      # of load(latest); the highest bit is set for a load that may fall back
  round @3 :UInt32;        # number of earlier loads of a rank
  attempt @4 :UInt32;      # of load(latest): that of the last save; 0: none was called
}

struct LoadMembers {       # ranks [first, first + count)
  first @0 :UInt32;
  count @1 :UInt32;
  host @2 :UInt32;         # index into addresses
  group @3 :UInt32;        # index into groups
}

# These are structs and not groups of Message, so that Message does not grow.
struct JoinLoad {
  id @0 :LoadId;
  worldSize @1 :UInt32;
  address @2 :Text;               # where its Loader serves others; empty: it shares nothing
  ranks @3 :List(RankLayout);     # equal layoutIds: ranks that need the same bytes
  quietMs @4 :UInt32;             # how long this host would wait for each further one
}

struct LoadRoster {
  id @0 :LoadId;
  code @1 :UInt16;                # not 0: nothing can be loaded
  cause @2 :Text;
  key @3 :AttemptKey;
  groups @4 :List(Data);          # RankLayout.layoutIds that the receiver has too
  addresses @5 :List(Text);
  members @6 :List(LoadMembers);  # ascending by rank
  passedOver @7 :List(Layout.PassedOver);  # newer attempts that the choice did not use; the first of
                                           # passedOverCount
  passedOverCount @8 :UInt32;
}

struct Chunks {
  id @0 :LoadId;
  chunks @1 :List(UInt64);
  sender @2 :UInt32;       # chunksPending: 1 + number of the sending host in the roster; 0: not stated
}

struct Chunk {
  id @0 :LoadId;
  number @1 :UInt64;
  bytes @2 :Data;
}

# A new member of the union takes the next field number of this struct; groups share these numbers. The
# compiler rejects a gap and a number that is taken. A group is fine as long as
# `capnp compile -ocapnp -I. schema/wire.capnp` prints 16 bytes, 5 ptrs; otherwise make a struct.
struct Message {
  fromRole @0 :UInt8;      # RoleKind in actors/messages/messages.h
  toRole @1 :UInt8;
  union {
    joinRanks :group {     # Planner -> Coordinator: what the ranks of this host hold
      host @2 :Text;
      worldSize @3 :UInt32;
      ranks @4 :List(RankLayout);
      options @5 :Layout.SaveOptions;
    }
    layoutRequest @6 :List(Data);      # Coordinator -> Planner
    layouts @7 :List(Data);   # Planner -> Coordinator
    rosterUpdate :group {              # Coordinator -> Planner
      roster @8 :Data;
      layouts @9 :List(Data); # in the order of roster.layoutIds
      options @10 :Layout.SaveOptions;
      ruleVersion @11 :UInt32;
    }
    joinRejected @12 :Text;            # Coordinator -> Planner: why no roster can be made
    shardsWritten :group {             # ShardWriter -> Coordinator
      key @13 :AttemptKey;
      rosterId @14 :Data;
      plans @15 :List(RankPlan);       # the ranks that this message reports
      files @16 :List(WrittenFile);
      user @65 :List(Layout.UserText); # metadata that the trainers of these ranks gave with the save
    }
    saveFailed :group {                # ShardWriter -> Coordinator: abort this attempt, and why
      key @17 :AttemptKey;
      rank @18 :UInt32;
      code @19 :UInt16;
      cause @20 :Text;
      host @68 :Text;                  # name of the sender's host, which may not have joined yet
      wholeHost @69 :Bool;           # all ranks of the host fail, and none of them is the cause
    }
    pending @21 :AttemptKey;           # Coordinator -> ShardWriter: received, undecided; resend more slowly
    decided :group {                   # Coordinator -> ShardWriter
      key @22 :AttemptKey;
      committed @23 :Bool;
      cause @24 :Text;                 # of an abort; of a commit: a warning (replica_check)
      overdue @70 :Bool;               # of an abort: something did not come in time
      giveUp @73 :UInt8;               # of an abort: GiveUp of actors/giving_up.h; 0: not stated
    }
    superseded :group {                # to a sender of an earlier epoch: the later one
      epoch @25 :UInt32;
      address @26 :Text;
    }
    undecided :group {                 # Coordinator -> ShardWriter: no decision could be published;
      key @27 :AttemptKey;             # the node publishes one itself
      code @28 :UInt16;
      cause @29 :Text;
    }
    layoutsStaged :group {             # ShardWriter -> Coordinator: ranks that have staged all that they hold
      key @30 :AttemptKey;
      ranks @31 :List(RankLayout);
    }
    attemptRoster :group {             # Coordinator -> ShardWriter: the attempt's roster, which is in the
                                       # root
      key @32 :AttemptKey;
      rosterId @33 :Data;
    }
    link @34 :Link;                    # between links, not between roles: fromRole and toRole are 0
    ranksEnded :group {                # ShardWriter -> Coordinator: ranks that stage nothing more. The
                                       # answer, in mode rank-local: host and ranks of the coordinator's node
      ranks @35 :List(EndedRank);
      staged @36 :List(AttemptKey);    # undecided saves that this node still reports
      host @61 :Text;                  # name of the sender's host
      here @62 :List(UInt32);          # ranks whose trainers are attached
      mayReturn @63 :Bool;             # the node stops while trainers are attached: another may replace it
      rankLocal @64 :Bool;             # its ranks save in mode rank-local; the Coordinator answers
      expected @71 :List(UInt32);      # further ranks of this host, whose trainers have not attached yet
    }
    localPlans :group {                # ShardWriter -> Coordinator, mode collective: what these ranks hold
      key @37 :AttemptKey;
      host @38 :Text;
      worldSize @39 :UInt32;
      options @40 :Layout.SaveOptions;
      ranks @41 :List(RankLayout);
      known @42 :List(Data);           # parallel to ranks: assignment id of each one's plan for this layout
                                       # (docs/reference/protocol.md); empty: none
      followsPlanner @46 :Bool;        # these layouts are the result of a planGathering
    }
    globalPlan :group {                # Coordinator -> ShardWriter: what these ranks write
      key @43 :AttemptKey;
      rosterId @44 :Data;
      parts @45 :List(RankPart);
    }
    planGathering :group {             # mode collective, with planners that make a global plan
      key @47 :AttemptKey;
      stage @48 :UInt8;                # 0 offered, 2 made: to the Coordinator; 1 gathered, 3 delivered:
                                       # from it
      host @49 :Text;                  # of the sending ShardWriter; empty if the Coordinator sends
      worldSize @50 :UInt32;
      options @51 :Layout.SaveOptions;
      coordinatorRank @52 :UInt32;     # the rank whose planner makes the global plan
      plans @53 :List(PlannerPlan);    # gathered and made may be split over several messages
    }
    joinLoad @54 :JoinLoad;            # Loader -> Coordinator: these ranks of its host load
    loadRoster @55 :LoadRoster;        # Coordinator -> Loader: which checkpoint to load, and who shares it
    chunkRequest @56 :Chunks;          # Loader -> Loader
    chunkData @57 :Chunk;              # Loader -> Loader
    chunksUnavailable @58 :Chunks;     # Loader -> Loader
    chunksCancelled @59 :Chunks;       # Loader -> Loader
    chunksPending @60 :Chunks;         # Loader -> Loader
    # ShardWriter -> Coordinator: ranks of this host still write. Coordinator -> ShardWriter: some rank still
    # writes.
    saveProgress :group {
      key @66 :AttemptKey;
      amount @67 :UInt64;              # grows with the progress
      rankLocal @77 :Bool;             # of a save in mode rank-local, which no coordinator decides
    }
    # ShardWriter -> Coordinator, instead of shardsWritten, if a rank of it has digests.
    shardsWrittenWithDigests @72 :ShardsWritten;
    # Mode rank-local. ShardWriter -> Coordinator: the manifests of all ranks of this host are in the root.
    # Coordinator -> ShardWriter: those of all ranks are.
    manifestsPublished :group {
      key @74 :AttemptKey;
      ranks @75 :UInt32;               # how many
      worldSize @76 :UInt32;
    }
  }
}

# Messages between the links of nodes, for a job with more nodes than may connect to the coordinator
# (docs/reference/transport.md, "Relays"). A child of a relay is a node that connects through it. The relay
# numbers its children.
struct Link {
  union {
    serveAsRelay @0 :UInt32;           # coordinator -> node: accept at most this many children
    relayReady :group {                # node -> coordinator
      address @1 :Text;                # where it listens for children
      children @2 :UInt32;             # how many children it accepts
    }
    relayFailed @3 :Text;              # node -> coordinator: why it cannot serve as a relay
    useRelay :group {                  # coordinator -> node that connected to it: use a relay
      address @4 :Text;                # of the relay; empty: try again later
      cause @5 :Text;                  # why, if address is empty
    }
    childUp :group {                   # relay -> coordinator
      child @6 :UInt64;
      name @7 :Text;
      incarnation @8 :Data;
    }
    childLost :group {                 # relay -> coordinator
      child @9 :UInt64;
      cause @10 :Text;
    }
    fromChild :group {                 # relay -> coordinator
      child @11 :UInt64;
      message @12 :Data;               # a Message, framed
    }
    toChild :group {                   # coordinator -> relay
      child @13 :UInt64;
      message @14 :Data;
    }
    dropChild :group {                 # coordinator -> relay: the child sent an invalid message
      child @15 :UInt64;
      cause @16 :Text;
    }
    welcome @17 :Void;                 # coordinator -> node, perhaps through a relay: the node has its place
    # For `shoal status`; sent only if somebody asks. All four may pass a relay.
    jobStatusRequest @18 :Void;        # node -> coordinator
    jobStatus @19 :Data;               # coordinator -> node: a JobStatus of local.capnp, framed
    hostStatusRequest @20 :Void;       # coordinator -> node
    hostStatus @21 :Data;              # node -> coordinator: a HostStatus of local.capnp, framed
  }
}
