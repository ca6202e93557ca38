@0xb1f4c7a3d1e05a03;
# Everything that crosses between nodes. Transport frames carry one Handshake, Heartbeat or Message each.
# docs/reference/protocol.md says who sends what and when.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("shoal::schema");
using Layout = import "/schema/layout.capnp";
# Rosters and layouts travel as Data: the canonical bytes whose XXH3-128 is their id.

const schemaVersion :UInt32 = 1;

struct Identity {
  schemaVersion @0 :UInt32;
  rootId @1 :Data;         # 16 bytes; proves that both sides see the same root
  jobId @2 :Text;          # token of the generation: one incarnation of the job
  generation @3 :UInt32;   # 0 = not known yet
  epoch @4 :UInt32;        # highest coordinator epoch heard of; 0 = none
  incarnation @5 :Data;    # 16 random bytes, new for every process
  name @6 :Text;           # for people: host:pid
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
    proof @5 :Data;        # connector -> listener: HMAC-SHA256(token, "shoal-connector" + the same)
    welcome :group {       # listener -> connector: the peer is in
      identity @6 :Identity;
      dataPort @9 :UInt16; # where UCX listens for it
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

struct PlannerPlan {                   # of a rank; what it means is between planners
  rank @0 :UInt32;
  bytes @1 :Data;
}

struct RankPart {
  rank @0 :UInt32;
  plan @1 :Data;           # SavePlan of layout.capnp, framed; empty: what the rank has, as it said, and under
                           # this roster
}

struct GoneRank {
  rank @0 :UInt32;
  end @1 :Text;            # how its trainer ended; empty: its node is stopping
}

struct LoadId {
  latest @0 :Bool;
  step @1 :UInt64;         # where not latest
  ordinal @2 :UInt32;      # of load(latest); with its highest bit, of one that may fall back
  round @3 :UInt32;        # how many loads a rank of it began before
}

struct LoadMembers {       # ranks [first, first + count)
  first @0 :UInt32;
  count @1 :UInt32;
  host @2 :UInt32;         # into addresses
  group @3 :UInt32;        # into groups
}

# Not groups of Message, so that these do not make every message longer.
struct JoinLoad {
  id @0 :LoadId;
  worldSize @1 :UInt32;
  address @2 :Text;               # where it serves others; empty: it shares nothing
  ranks @3 :List(RankLayout);     # of layoutId: what those share who name the same
  quietMs @4 :UInt32;             # how long others are worth waiting for, each
}

struct LoadRoster {
  id @0 :LoadId;
  code @1 :UInt16;                # not 0: nothing can be loaded
  cause @2 :Text;
  key @3 :AttemptKey;
  groups @4 :List(Data);          # of RankLayout.layoutId, which the receiver named too
  addresses @5 :List(Text);
  members @6 :List(LoadMembers);  # ascending by rank
  passedOver @7 :List(Layout.PassedOver);  # by the choice: newer attempts, the first of passedOverCount
  passedOverCount @8 :UInt32;
}

struct Chunks {
  id @0 :LoadId;
  chunks @1 :List(UInt64);
}

struct Chunk {
  id @0 :LoadId;
  number @1 :UInt64;
  bytes @2 :Data;
}

struct Message {
  fromRole @0 :UInt8;      # actors/address.h
  toRole @1 :UInt8;
  union {
    joinRanks :group {     # Planner -> Coordinator: what the ranks of this host hold
      host @2 :Text;
      worldSize @3 :UInt32;
      ranks @4 :List(RankLayout);
      options @5 :Layout.SaveOptions;
    }
    layoutsWanted @6 :List(Data);      # Coordinator -> Planner
    layouts @7 :List(Data);   # Planner -> Coordinator
    rosterIs :group {                  # Coordinator -> Planner
      roster @8 :Data;
      layouts @9 :List(Data); # in the order of roster.layoutIds
      options @10 :Layout.SaveOptions;
      ruleVersion @11 :UInt32;
    }
    joinRefused @12 :Text;             # Coordinator -> Planner: why no roster can come of this
    shardsWritten :group {             # ShardWriter -> Coordinator
      key @13 :AttemptKey;
      rosterId @14 :Data;
      plans @15 :List(RankPlan);       # the ranks this message answers for
      files @16 :List(WrittenFile);
      user @65 :List(Layout.UserText); # what the trainers of these ranks said of the save
    }
    saveFailed :group {                # ShardWriter -> Coordinator: abort, and why
      key @17 :AttemptKey;
      rank @18 :UInt32;
      code @19 :UInt16;
      cause @20 :Text;
    }
    pending @21 :AttemptKey;           # Coordinator -> ShardWriter: heard, not decided; slow down
    decided :group {                   # Coordinator -> ShardWriter
      key @22 :AttemptKey;
      committed @23 :Bool;
      cause @24 :Text;                 # of an abort
    }
    superseded :group {                # Coordinator -> anyone: I am an old epoch
      epoch @25 :UInt32;
      address @26 :Text;
    }
    undecided :group {                 # Coordinator -> ShardWriter: no decision could be published; decide
      key @27 :AttemptKey;             # by your own means
      code @28 :UInt16;
      cause @29 :Text;
    }
    layoutsStaged :group {             # ShardWriter -> Coordinator: ranks that staged all that they hold
      key @30 :AttemptKey;
      ranks @31 :List(RankLayout);
    }
    planBy :group {                    # Coordinator -> ShardWriter: the roster by which those share it
      key @32 :AttemptKey;
      rosterId @33 :Data;
    }
    link @34 :Link;                    # between links, not roles: fromRole and toRole are 0
    ranksGone :group {                 # ShardWriter -> Coordinator: these stage nothing more. Back, in mode
                                       # rank-local: host and ranks of the Coordinator's node
      ranks @35 :List(GoneRank);
      staged @36 :List(AttemptKey);    # undecided saves of which this node speaks by itself
      host @61 :Text;                  # its name
      here @62 :List(UInt32);          # ranks whose trainers are attached: it speaks for these
      mayReturn @63 :Bool;             # a node that stops: trainers are attached, another may follow it
      rankLocal @64 :Bool;             # its ranks save rank-local; the Coordinator answers, with its own host
    }
    localPlans :group {                # ShardWriter -> Coordinator, mode collective: what these ranks hold
      key @37 :AttemptKey;
      host @38 :Text;
      worldSize @39 :UInt32;
      options @40 :Layout.SaveOptions;
      ranks @41 :List(RankLayout);
      known @42 :List(Data);           # parallel to ranks: the hash, under no roster, of the plan that
                                       # each has for this layout (docs/reference/protocol.md); empty: none
      followsPlanner @46 :Bool;        # these layouts follow from a planExchange
    }
    globalPlan :group {                # Coordinator -> ShardWriter: what these ranks write
      key @43 :AttemptKey;
      rosterId @44 :Data;
      parts @45 :List(RankPart);
    }
    planExchange :group {              # mode collective, where planners make the global plan
      key @47 :AttemptKey;
      stage @48 :UInt8;                # 0 offered, 2 made: to the Coordinator; 1 gathered, 3 told: back
      host @49 :Text;                  # of a ShardWriter; empty from the Coordinator
      worldSize @50 :UInt32;
      options @51 :Layout.SaveOptions;
      coordinatorRank @52 :UInt32;     # whose planner makes it
      plans @53 :List(PlannerPlan);    # gathered and made may come in several messages
    }
    joinLoad @54 :JoinLoad;            # Loader -> Coordinator: these ranks of its host load
    loadRoster @55 :LoadRoster;        # Coordinator -> Loader: which checkpoint, and who reads it together
    chunksWanted @56 :Chunks;          # Loader -> Loader
    chunkIs @57 :Chunk;                # Loader -> Loader
    chunksNotHere @58 :Chunks;         # Loader -> Loader
    chunksNotWanted @59 :Chunks;       # Loader -> Loader
    chunksComing @60 :Chunks;          # Loader -> Loader
  }
}

# What the links of nodes say to each other where there are more nodes than connect to the coordinator
# (docs/reference/transport.md, "Relays"). A child is a node that a relay speaks for; the relay numbers its
# children.
struct Link {
  union {
    serveAsRelay @0 :UInt32;           # coordinator -> node: take so many children
    relayReady :group {                # node -> coordinator
      address @1 :Text;                # where it listens for them
      children @2 :UInt32;             # how many it takes
    }
    relayFailed @3 :Text;              # node -> coordinator: why it cannot
    goBy :group {                      # coordinator -> node that came: not here
      address @4 :Text;                # of its relay; empty: come again later
      cause @5 :Text;                  # why, then
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
    dropChild :group {                 # coordinator -> relay: it sent what it must not
      child @15 :UInt64;
      cause @16 :Text;
    }
    welcome @17 :Void;                 # coordinator -> node, perhaps through a relay: this is its place
  }
}
