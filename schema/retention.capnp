@0xd3a9b06f4c21e7c8;
# The records that retention reads besides decisions: marks, each of which keeps one checkpoint. Each file is
# one record (docs/reference/format.md, "Records").

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("shoal::schema");

struct Mark {              # pins, tags, verified
  generation @0 :UInt32;   # the checkpoint that is kept
  step @1 :UInt64;
  attempt @2 :UInt32;
  isLease @3 :Bool;        # of a pin: it expires if its counter no longer changes
  counter @4 :UInt64;
  note @5 :Text;           # who created it, or why
  unixTimeNs @6 :Int64;    # for display; orders nothing
  nonce @7 :Data;          # 16 random bytes of the process that wrote this file
}
