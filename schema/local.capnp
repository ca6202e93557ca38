@0xb1f4c7a3d1e05a04;
# Messages between a trainer's client and the node of its host, over a unix stream socket. A frame is a UInt32
# length (little endian), then one LocalMessage in standard framing. A frame that names a memory file carries
# the file's descriptor as SCM_RIGHTS. docs/reference/client-node.md.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("shoal::schema");
using Layout = import "/schema/layout.capnp";
# Rosters and layouts are sent as Data: the canonical bytes whose XXH3-128 is their id.
using Wire = import "/schema/wire.capnp";

struct StagedPiece {
  entry @0 :UInt32;        # index into the layout's entries
  localBox @1 :UInt32;     # index into the rank's boxes of that entry; 0 for an object
  localOffset @2 :UInt64;  # first byte staged, as an offset into the row-major bytes of that box
  bytes @3 :UInt64;
  slabOffset @4 :UInt64;
}

struct DurableFile {
  index @0 :UInt32;
  size @1 :UInt64;
  headerDigest @2 :Data;
  payloadBytes @3 :UInt64;
}

struct DurableAssignment {
  rosterId @0 :Data;
  planId @1 :Data;
  files @2 :List(DurableFile);  # ascending by index, from 0
}

struct LoadTarget {
  fqn @0 :Text;
  kind @1 :Layout.LayoutEntry.Kind;
  dtype @2 :UInt8;
  shape @3 :List(UInt64);
  boxes @4 :List(Layout.Box);   # boxes of the value that this rank wants; empty for an object
}

struct LoadSharing {       # which ranks may read bytes together
  method @0 :UInt8;        # 0 automatic, 1 direct, 2 two-stage
  rank @1 :UInt32;
  worldSize @2 :UInt32;
  round @3 :UInt32;        # number of earlier loads of this rank
  layout @4 :Data;         # canonical bytes; ranks with equal layouts want the same bytes
  among @5 :List(UInt32);  # the ranks that share; empty: all
}

struct LoadTimes {         # include/shoal/load_times.h
  wasShared @0 :Bool;
  choosingNs @1 :UInt64;
  planningNs @2 :UInt64;
  readingNs @3 :UInt64;
  receivingNs @4 :UInt64;
  placingNs @5 :UInt64;
  bytesRead @6 :UInt64;
  bytesReceived @7 :UInt64;
  chunksGivenUp @8 :UInt64;
}

struct LoadedPiece {
  target @0 :UInt32;       # index into the request's targets
  box @1 :Layout.Box;      # the stored piece, in global coordinates; its bytes are row-major
  pieceOffset @2 :UInt64;  # offset of this range in the stored piece
  bytes @3 :UInt64;
  slabOffset @4 :UInt64;   # offset of this range in the load window
  pieceBytes @5 :UInt64;   # size of the whole stored piece
}

struct FileRange {         # a range of a stored piece in a file that the client reads itself
  target @0 :UInt32;       # as in LoadedPiece
  box @1 :Layout.Box;
  pieceOffset @2 :UInt64;
  bytes @3 :UInt64;
  pieceBytes @4 :UInt64;
  file @5 :UInt32;         # index into the message's files
  fileOffset @6 :UInt64;
}

struct PartRange {         # a range of a save in parts, by the offsets of its staged pieces
  from @0 :UInt64;
  bytes @1 :UInt64;
  slabOffset @2 :UInt64;   # where to copy it in the slab
}

struct UnreadRange {
  range @0 :UInt32;        # index into the ranges of filesToRead
  begin @1 :UInt64;        # bytes [begin, end) of the stored piece: whole digest blocks
  end @2 :UInt64;
}

struct ReadDamage {        # include/shoal/read_damage.h
  fqn @0 :Text;
  box @1 :Layout.Box;      # of the stored piece; no dimensions for an object
  rank @2 :UInt32;         # rank that wrote the damaged file
  file @3 :Text;           # path relative to the root
  begin @4 :UInt64;        # bytes [begin, end) of the file
  end @5 :UInt64;          # 0: the file cannot be read at all
  cause @6 :Text;
  readInstead @7 :Text;    # path, relative to the root, of a file that was read instead
  bytes @8 :UInt64;        # number of bytes read from that file or other copies
}

struct TensorInfo {
  fqn @0 :Text;
  kind @1 :Layout.LayoutEntry.Kind;
  dtype @2 :UInt8;
  shape @3 :List(UInt64);
  bytes @4 :UInt64;        # length of an object if known, else 0
}

struct CheckpointInfo {
  key @0 :Wire.AttemptKey;
  worldSize @1 :UInt32;
  payloadBytes @2 :UInt64;
  files @3 :UInt32;
  tensors @4 :List(TensorInfo);
  user @5 :List(Layout.UserText);
  contentsDigest @6 :Data;     # empty: not known
}

struct ListedCheckpoint {      # include/shoal/checkpoint_info.h
  key @0 :Wire.AttemptKey;
  state @1 :UInt8;             # 0 committed, 1 aborted, 2 undecided, 3 deleted, 4 damaged
  worldSize @2 :UInt32;
  files @3 :UInt32;
  payloadBytes @4 :UInt64;
  unixTimeNs @5 :Int64;
  cause @6 :Text;
}

struct CheckpointLayouts {     # what each rank held, and the rule by which the save was planned
  roster @0 :Data;
  layouts @1 :List(Data);      # in the order of roster.layoutIds
  ruleVersion @2 :UInt32;
  options @3 :Layout.SaveOptions;
}

# The state of a node, for reports. local/status/node_status.h states the meaning of each field.
struct SaveStatus {
  key @0 :Wire.AttemptKey;
  phase @1 :Phase;
  ageMs @2 :UInt64;
  ranksHere @3 :UInt32;
  ranksStaged @4 :UInt32;
  ranksWritten @5 :UInt32;
  bytesStaged @6 :UInt64;
  bytesToWrite @7 :UInt64;
  bytesWritten @8 :UInt64;
  ranksReported @9 :UInt32;
  bytesReported @10 :UInt64;
  awaited @11 :List(UInt32);
  awaitedCount @12 :UInt64;
  trouble @13 :Text;
  enum Phase { staging @0; writing @1; waiting @2; committing @3; planning @4; }
}

struct CommitStatus {
  key @0 :Wire.AttemptKey;
  unixTimeNs @1 :Int64;
  durationMs @2 :UInt64;
  payloadBytes @3 :UInt64;
  slowestRank @4 :Int64;   # -1: not known
}

struct NodeStatus {
  version @0 :Text;
  host @1 :Text;
  pid @2 :Int32;
  root @3 :Text;
  rootId @4 :Text;
  jobId @5 :Text;
  generation @6 :UInt32;
  epoch @7 :UInt32;
  coordinates @8 :Bool;
  coordinator @9 :Text;
  worldSize @10 :UInt32;
  uptimeMs @11 :UInt64;
  isStopping @12 :Bool;
  ranks @13 :List(UInt32);
  peers @14 :List(Peer);
  peersCount @15 :UInt64;
  saves @16 :List(SaveStatus);
  savesCount @17 :UInt64;
  lastCommit @18 :CommitStatus;   # null: none yet
  errors @19 :List(Error);
  savesBegun @20 :UInt64;
  savesCommitted @21 :UInt64;
  savesAborted @22 :UInt64;
  bytesStaged @23 :UInt64;
  bytesWritten @24 :UInt64;
  bytesRead @25 :UInt64;
  loadsBegun @26 :UInt64;
  loadsDone @27 :UInt64;
  loadsFailed @28 :UInt64;
  bytesToPeers @29 :UInt64;
  bytesFromPeers @30 :UInt64;
  readOnly @31 :Bool;              # the job only reads; generation is its number under readers/
  slowCalls @32 :List(SlowCall);   # calls on storage that have run for 5 s or more; oldest first
  trainers @33 :List(Trainer);     # those whose process id is known, ascending by rank

  struct Trainer {
    rank @0 :UInt32;
    pid @1 :Int32;
    isStopped @2 :Bool;
  }
  struct SlowCall {
    what @0 :Text;
    ageMs @1 :UInt64;
  }
  struct Peer {
    name @0 :Text;
    coordinates @1 :Bool;
  }
  struct Error {
    ageMs @0 :UInt64;
    line @1 :Text;
  }
}

# The state of a whole job. local/status/job_status.h states the meaning of each field.
struct HostStatus {
  host @0 :Text;
  pid @1 :Int32;
  state @2 :State;
  answeredMsAgo @3 :UInt64;
  coordinates @4 :Bool;
  isStopping @5 :Bool;
  uptimeMs @6 :UInt64;
  restarts @7 :UInt32;
  ranks @8 :List(UInt32);
  ranksCount @9 :UInt64;
  stoppedRanks @10 :List(UInt32);
  saves @11 :List(SaveStatus);
  savesCount @12 :UInt64;
  lastCommit @13 :CommitStatus;   # null: none yet
  slowCalls @14 :List(NodeStatus.SlowCall);
  lastError @15 :NodeStatus.Error;  # null: none
  bytesStaged @16 :UInt64;
  bytesWritten @17 :UInt64;
  bytesRead @18 :UInt64;
  savesCommitted @19 :UInt64;
  savesAborted @20 :UInt64;
  enum State { answered @0; silent @1; lost @2; }
}

struct HostWait {
  host @0 :Text;
  reason @1 :Reason;
  ranks @2 :List(UInt32);
  ranksCount @3 :UInt64;
  detail @4 :Text;
  enum Reason { staging @0; writing @1; reporting @2; silent @3; lost @4; deciding @5; }
}

struct JobSave {
  save @0 :SaveStatus;            # sums over hosts; awaited ranks of all hosts
  waits @1 :List(HostWait);
  waitsCount @2 :UInt64;
}

struct JobStatus {
  worldSize @0 :UInt32;
  gatheredMsAgo @1 :UInt64;
  hosts @2 :List(HostStatus);
  hostsCount @3 :UInt64;
  hostsSilent @4 :UInt64;
  hostsLost @5 :UInt64;
  saves @6 :List(JobSave);
  savesCount @7 :UInt64;
  lastCommit @8 :CommitStatus;    # null: none yet
  incomplete @9 :Text;            # why only this host is shown; empty: the whole job is
}

# A new member of the union takes the next field number of this struct; groups share these numbers. The
# compiler rejects a gap and a number that is taken.
struct LocalMessage {
  union {
    attach :group {              # client -> node, first message of every connection
      schemaVersion @0 :UInt32;
      rank @1 :UInt32;
      worldSize @2 :UInt32;
      jobId @3 :Text;
      pid @4 :Int32;
      process @72 :Data;       # 16 random bytes, the same for all connections of this process; empty: not
                               # stated
      ranksOnHost @130 :UInt32;  # ranks of this job on this host, as the launcher states; 0: not stated
      readOnly @142 :Bool;       # this client only loads
    }
    attached :group {            # node -> client
      generation @5 :UInt32;
      nodePid @6 :Int32;
      nodeDeadlineMs @56 :UInt32;
      grantsStaging @106 :Bool;  # the node answers stagingRequest
      countsReturns @149 :Bool;  # the node takes saveReturned
    }
    failed :group {              # node -> client: the connection cannot be used any more
      code @7 :UInt16;
      cause @8 :Text;
    }
    layout :group {              # client -> node: what this rank holds; precedes its first save
      layoutId @9 :Data;
      layout @10 :Data;
      options @11 :Layout.SaveOptions;
    }
    roster :group {              # node -> client: plan by this roster from now on
      roster @12 :Data;
      layouts @13 :List(Data);
      ruleVersion @14 :UInt32;
      options @15 :Layout.SaveOptions;
    }
    slab :group {                # client -> node, with one descriptor: a sealed memfd
      slabId @16 :UInt32;
      bytes @17 :UInt64;
    }
    staged :group {              # client -> node: the bytes of the save are in the slab
      step @18 :UInt64;
      attempt @19 :UInt32;
      layoutId @20 :Data;
      rosterId @21 :Data;        # empty: no roster yet, so everything that the rank holds is staged
      planId @22 :Data;
      slabId @23 :UInt32;
      pieces @24 :List(StagedPiece);
      again @57 :Bool;           # the client offered this save to a node before
      inParts @107 :Bool;        # the slab is smaller than the save: the node requests bytes with partRequest
      user @133 :List(Layout.UserText);  # metadata that the trainer gives with the save
      replicas @147 :Layout.ReplicaDigests;  # null: this rank compares nothing
    }
    slabFree :group {            # node -> client: the save is written or dropped; the slab may be reused
      slabId @25 :UInt32;
      step @58 :UInt64;
      attempt @59 :UInt32;
      durable @60 :DurableAssignment; # null: dropped
    }
    decided :group {             # node -> client
      step @26 :UInt64;
      attempt @27 :UInt32;
      committed @28 :Bool;
      code @29 :UInt16;
      cause @30 :Text;           # of a commit: a warning
      checkpoint @31 :CheckpointInfo;
    }
    latest @32 :UInt32;          # client -> node: request id
    load :group {                # client -> node, after its window slab
      requestId @33 :UInt32;
      latest @34 :Bool;
      step @35 :UInt64;          # to load; of load(latest): that of the last save that this rank has called
      attempt @156 :UInt32;      # of load(latest): that of the last save; 0: none was called
      ordinal @36 :UInt32;       # of load(latest): 1 + the number of calls of save before it, equal on all
                                 # ranks; the highest bit is set for a load that may fall back
      slabId @37 :UInt32;        # the load window
      targets @38 :List(LoadTarget);
      keepsOpen @88 :Bool;       # the node keeps the checkpoint pinned after the load, under requestId
      of @89 :UInt32;            # request id of a load that kept a checkpoint open: load that one; 0: choose
      wantsLayouts @90 :Bool;
      sharing @93 :LoadSharing;  # null: load alone
      readsFiles @97 :Bool;      # the client can read files itself if the node sends filesToRead
    }
    found :group {               # node -> client: answer to latest, and first answer to load
      requestId @39 :UInt32;
      code @40 :UInt16;
      cause @41 :Text;
      checkpoint @42 :CheckpointInfo; # without tensors if layouts are present: they follow from those
      layouts @91 :CheckpointLayouts; # if the load requested them
      passedOver @143 :List(Layout.PassedOver);  # newer attempts that were not used; the first of
                                                 # passedOverCount
      passedOverCount @144 :UInt64;
    }
    loaded :group {              # node -> client: these bytes are in the window, verified
      requestId @43 :UInt32;
      batch @44 :UInt32;
      pieces @45 :List(LoadedPiece);
    }
    placed :group {              # client -> node: the node may overwrite the batch's part of the window
      requestId @46 :UInt32;
      batch @47 :UInt32;
    }
    filesToRead :group {         # node -> client: read these bytes from files of the root and verify them
      requestId @98 :UInt32;
      batch @99 :UInt32;
      files @100 :List(Text);
      ranges @101 :List(FileRange);
      digests @102 :List(UInt64);  # of the blocks of the ranges, one range after the other
    }
    filesRead :group {           # client -> node: the batch is placed, except what could not be read
      requestId @103 :UInt32;
      batch @104 :UInt32;
      unread @105 :List(UnreadRange);
    }
    loadDone :group {            # node -> client
      requestId @48 :UInt32;
      code @49 :UInt16;
      cause @50 :Text;
      times @94 :LoadTimes;
      damaged @95 :List(ReadDamage);  # what was read from copies; the first of damagedCount
      damagedCount @96 :UInt64;
    }
    refused :group {             # node -> client: this save failed before it began; others may work
      step @51 :UInt64;
      attempt @52 :UInt32;
      code @53 :UInt16;
      cause @54 :Text;
    }
    detach @55 :Void;            # client -> node: a clean end; without it the trainer has died
    written :group {             # client -> node: an earlier node has made it durable
      step @61 :UInt64;
      attempt @62 :UInt32;
      assignment @63 :DurableAssignment;
      user @134 :List(Layout.UserText);  # as in staged
      replicas @148 :Layout.ReplicaDigests;  # as in staged
    }
    notStaged :group {           # client -> node: this rank does not take part in this save
      step @64 :UInt64;
      attempt @65 :UInt32;
      code @66 :UInt16;
      cause @67 :Text;
    }
    ping @68 :Void;              # client -> node
    pong @69 :Void;              # node -> client
    statusRequest @70 :Void;     # any process -> node, instead of attach
    status @71 :NodeStatus;      # node -> the process that sent statusRequest; its last message
    planRequest :group {         # client -> node, mode collective, before it stages: request its plan
      step @73 :UInt64;
      attempt @74 :UInt32;
      layoutId @75 :Data;
      known @76 :Data;           # assignment id of the plan that this client has; empty: none
      followsPlanner @87 :Bool;  # its layout is the result of a planGathering
    }
    plan :group {                # node -> client
      step @77 :UInt64;
      attempt @78 :UInt32;
      rosterId @79 :Data;
      plan @80 :Data;            # SavePlan of layout.capnp, framed; empty: the plan that the client has
    }
    planGathering :group {       # mode collective, with planners that make a global plan; before planRequest
      step @81 :UInt64;
      attempt @82 :UInt32;
      stage @83 :UInt8;          # 0 offered, 2 made: client -> node; 1 gathered, 3 delivered: node -> client
      coordinatorRank @84 :UInt32;
      options @85 :Layout.SaveOptions;
      plans @86 :List(Data);     # offered, delivered: of this rank; gathered, made: of all ranks, by rank
    }
    close @92 :UInt32;           # client -> node: close what the load of this request id kept open
    stagingRequest :group {      # client -> node, before it makes slabs: request memory for them
      bytes @108 :UInt64;        # size of a slab that holds one save
      slabs @109 :UInt32;        # how many slabs it wants
      bytesMax @110 :UInt64;     # bound of all slabs together, by the limits of this process
      because @111 :Text;        # the limit that sets bytesMax
      number @131 :UInt64;       # from 1; the answer repeats it
    }
    stagingGranted :group {      # node -> client: all slabs together may take slabs * slabBytes
      slabs @112 :UInt32;
      slabBytes @113 :UInt64;    # as requested, or less: the client then stages in parts
      inParts @114 :Bool;
      code @115 :UInt16;         # not 0: the node grants no memory, and cause states why
      cause @116 :Text;
      number @132 :UInt64;       # number of the request; 0: an older node, which does not repeat it
    }
    stagingKept :group {         # client -> node: the memory that it still has of an earlier grant
      bytes @117 :UInt64;        # bound of its slabs together
      slabIds @118 :List(UInt32);  # slabs that still have memory
      slabs @119 :UInt32;        # slabs for saves have lower ids than this
    }
    giveBack @120 :Void;         # node -> client: free all slabs once they are unused, and return the grant
    partRequest :group {         # node -> client: copy these ranges of the save into the slab
      slabId @121 :UInt32;
      step @122 :UInt64;
      attempt @123 :UInt32;
      number @124 :UInt64;       # partStaged repeats it
      ranges @125 :List(PartRange);
    }
    partStaged :group {          # client -> node
      slabId @126 :UInt32;
      number @127 :UInt64;
      code @128 :UInt16;         # not 0: the client did not copy them
      cause @129 :Text;
    }
    list :group {                # client -> node: list checkpoints
      requestId @135 :UInt32;
      newest @136 :UInt32;       # bound of the number of attempts
    }
    listing :group {             # node -> client
      requestId @137 :UInt32;
      code @138 :UInt16;
      cause @139 :Text;
      attempts @140 :List(ListedCheckpoint);  # ascending in the order of load(latest)
      omitted @141 :UInt64;
    }
    stillWriting :group {        # node -> client: this save makes progress
      step @145 :UInt64;
      attempt @146 :UInt32;
    }
    saveReturned :group {        # client -> node, if attached has countsReturns: save has returned
      step @150 :UInt64;
      attempt @151 :UInt32;
      blockedNs @152 :UInt64;    # duration of the call
      waitedNs @153 :UInt64;     # of that: for an earlier save
    }
    jobStatusRequest @154 :Void; # any process -> node, instead of attach
    jobStatus @155 :JobStatus;   # node -> the process that sent jobStatusRequest; its last message
  }
}
