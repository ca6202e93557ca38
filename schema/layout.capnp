@0xb1f4c7a3d1e05a01;
# What a rank holds (Layout), and which rank has which layout (Roster). LayoutId and RosterId are XXH3-128
# over the canonical single-segment encoding of these structs. So lists must be in the order stated here.
# docs/explanation/planning.md has the rules. New fields take the next field number.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("shoal::schema");

struct Box {
  offsets @0 :List(UInt64);  # one per dimension; empty for a scalar
  sizes @1 :List(UInt64);
}

struct Placement {
  # As in PyTorch DTensor; applied to mesh dimensions from left to right.
  enum Kind { replicate @0; shard @1; stridedShard @2; }
  kind @0 :Kind;
  dim @1 :UInt32;          # tensor dimension; 0 for replicate
  splitFactor @2 :UInt64;  # stridedShard only, else 0
}

struct Mesh {
  shape @0 :List(UInt64);
  ranks :union {           # rank of each coordinate, row-major
    affine :group {        # base + sum(coordinate[i] * strides[i]); used whenever it applies
      base @1 :UInt32;
      strides @2 :List(UInt64);   # 0 if the mesh dimension has size 1
    }
    listed @3 :List(UInt32);
  }
}

struct RankBoxes {
  rank @0 :UInt32;
  boxes @1 :List(Box);     # in the rank's local order
}

struct LayoutEntry {
  enum Kind { tensor @0; object @1; }
  fqn @0 :Text;
  kind @1 :Kind;
  dtype @2 :UInt8;         # include/shoal/dtype.h; u8 for an object
  shape @3 :List(UInt64);  # global shape; empty for a scalar and for an object
  replicated @4 :Bool;     # the caller declares that ranks with the same box hold the same bytes
  sharding :union {
    mesh :group {          # placements prove which ranks hold equal bytes
      index @5 :UInt32;    # in Layout.meshes
      placements @6 :List(Placement);
    }
    group @7 :UInt32;      # the whole value on every rank of this mesh; nothing proves that the bytes are
                           # equal
    boxes @8 :List(RankBoxes);  # by ascending rank
    perRank @9 :Void;      # each rank with this layout has its own object; fqn ends in "@rank", and the
                           # rank's number appended to it is the name of the value
    tiles :group {         # on a mesh of devices, where device d belongs to rank d / devicesPerRank: Shard(i)
                           # on mesh dimension i; a last dimension beyond those of the tensor replicates
      index @10 :UInt32;   # in Layout.meshes
      devicesPerRank @11 :UInt32;  # at least 2
    }
  }
}

struct Layout {
  meshes @0 :List(Mesh);          # distinct, each used by an entry; ascending by (shape, base, strides,
                                  # listed ranks), where an absent base is 0 and an absent list is empty
  entries @1 :List(LayoutEntry);  # distinct, ascending by fqn bytes
}

struct Run {
  count @0 :UInt32;
  value @1 :UInt32;
}

struct Roster {
  worldSize @0 :UInt32;
  layoutIds @1 :List(Data);       # 16 bytes each, in order of the first rank that has it
  layoutRuns @2 :List(Run);       # run-length coded over ranks: index into layoutIds; neighbours differ
  hostRuns @3 :List(Run);         # run-length coded over ranks: host index, numbered by first rank
}

struct SaveOptions {
  enum Dedupe { balanced @0; lowestRank @1; none @2; }
  enum Mode { collectiveFree @0; rankLocal @1; collective @2; }
  dedupe @0 :Dedupe;
  unitBytes @1 :UInt64;
  mode @2 :Mode;             # rankLocal requires dedupe none
}

# What one rank writes in a save, if its plan is sent to it (mode collective). Its id is the PlanId of
# docs/explanation/planning.md.
struct SavePlan {
  struct Item {
    entry @0 :UInt32;        # index in the entries of the rank's layout
    localBox @1 :UInt32;     # index in the rank's boxes of that entry; 0 for an object
    localOffset @2 :UInt64;  # bytes from the start of that box
    bytes @3 :UInt64;        # 0 for an object
    file @4 :UInt32;
    isAlternate @5 :Bool;
    box @6 :Box;             # global coordinates
  }
  rank @0 :UInt32;
  layoutId @1 :Data;
  rosterId @2 :Data;
  options @3 :SaveOptions;
  items @4 :List(Item);      # in the order of the bytes in the rank's files
}

struct PassedOver {        # an attempt newer than the one that a load uses (include/shoal/passed_over.h)
  generation @0 :UInt32;
  step @1 :UInt64;
  attempt @2 :UInt32;
  cause @3 :Text;
}

struct ReplicaDigests {    # what one rank digested for replica_check (plan/saving/replica_blocks.h)
  policy @0 :UInt8;        # 1 warn, 2 abort
  window @1 :UInt8;        # 0 to 19
  blocks @2 :Data;         # XXH3-128 of the ids of the blocks; 16 bytes
  digests @3 :List(UInt64);  # one a block, in order; 0: not digested
}

struct UserText {          # one entry of UserMetadata (include/shoal/metadata.h); lists of them ascend by key
  key @0 :Text;
  value @1 :Text;
}
