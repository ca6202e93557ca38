@0xb1f4c7a3d1e05a02;
# The decision of one attempt: a manifest (committed) or a tombstone (aborted or deleted).
# The file is one record (docs/reference/format.md, "Records") with magic "SHOALDEC". The head of the record
# states which of the three it is; the body is this struct.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("shoal::schema");
using Layout = import "/schema/layout.capnp";
# Rosters and layouts are Data: the canonical bytes whose XXH3-128 is their id.

struct FilePiece {
  fqn @0 :Text;
  key @1 :Text;            # its name in the safetensors file
  box @2 :Layout.Box;
}

struct FileEntry {
  name @0 :Text;           # relative to the attempt's folder, no separators
  size @1 :UInt64;
  headerDigest @2 :Data;   # XXH3-128 of the file's first 8 + N bytes
  rank @3 :UInt32;
  contents :union {
    derived @4 :UInt32;    # file index of this rank's plan under the manifest's roster, options, rule version
    listed @5 :List(FilePiece);
  }
}

struct Manifest {
  roster @0 :Data;
  layouts @1 :List(Data);   # in the order of roster.layoutIds
  ruleVersion @2 :UInt32;
  options @3 :Layout.SaveOptions;
  # Ascending by rank. Within a rank, derived files by index come before listed files by name.
  files @4 :List(FileEntry);
  payloadBytes @5 :UInt64;           # tensor and object bytes of all files
  nextRoster @6 :Data;               # RosterId of later saves; empty if it stays the same; no program writes
                                     # it yet
  user @7 :List(Layout.UserText);    # metadata that the trainers gave with the save
}

struct Tombstone {
  enum Reason { aborted @0; deleted @1; }
  reason @0 :Reason;
  cause @1 :Text;                    # the first cause, with rank and file
}

struct Decision {
  generation @0 :UInt32;
  step @1 :UInt64;
  attempt @2 :UInt32;
  nonce @3 :Data;                    # 16 random bytes of the process that wrote this file
  rootId @4 :Data;                   # 16 bytes
  unixTimeNs @5 :Int64;              # for display; orders nothing
  body :union {
    manifest @6 :Manifest;
    tombstone @7 :Tombstone;
  }
}

struct StagedRecord {      # a rank that staged a save and writes nothing: a record with magic "SHOALSTG"
  generation @0 :UInt32;
  step @1 :UInt64;
  attempt @2 :UInt32;
  rank @3 :UInt32;
  layoutId @4 :Data;                 # of this rank
  assignmentId @5 :Data;             # the PlanId of its plan under a RosterId of zeros
  user @6 :List(Layout.UserText);    # as in Manifest
}

struct RankManifest {      # what one rank wrote of a rank-local save: a record with magic "SHOALRNK"
  generation @0 :UInt32;
  step @1 :UInt64;
  attempt @2 :UInt32;
  rank @3 :UInt32;
  worldSize @4 :UInt32;
  nonce @5 :Data;                    # as in Decision
  rootId @6 :Data;
  unixTimeNs @7 :Int64;
  layout @8 :Data;                   # of this rank
  ruleVersion @9 :UInt32;
  options @10 :Layout.SaveOptions;
  files @11 :List(FileEntry);        # of this rank; derived, in order of index
  payloadBytes @12 :UInt64;
  user @13 :List(Layout.UserText);   # as in Manifest
}
