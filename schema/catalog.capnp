@0xb1f4c7a3d1e05a06;
# Values of the catalog: a RocksDB database on the coordinator's local disk, which the root can rebuild at any
# time. docs/reference/format.md, "Catalog", has the column families and keys.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("shoal::schema");

struct CatalogEntry {       # column family "checkpoints"
  state @0 :UInt8;          # 1 committed, 2 aborted, 3 deleted
  payloadBytes @1 :UInt64;
  files @2 :UInt32;
  worldSize @3 :UInt32;
  unixTimeNs @4 :Int64;
  cause @5 :Text;           # of an abort or deletion
  layoutIds @6 :List(Data); # keys into column family "layouts"
}
