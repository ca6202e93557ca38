@0xb1f4c7a3d1e05a05;
# The records of a root besides decisions: its id, epochs, generations, first rosters, load choices. Each file
# is one record (docs/reference/format.md, "Records") whose body is one of these structs.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("shoal::schema");
using Layout = import "/schema/layout.capnp";
# Rosters and layouts are Data: the canonical bytes whose XXH3-128 is their id.

struct RootIdentity {      # ROOT_ID
  id @0 :Data;             # 16 random bytes
}

struct EpochClaim {        # epochs/N
  epoch @0 :UInt32;        # N
  address @1 :Text;        # where this coordinator listens
  jobId @2 :Text;
  nonce @3 :Data;          # 16 random bytes of the process that wrote this file
  generation @4 :UInt32;   # of the run that it coordinates; 0: written by an older program
}

struct GenerationClaim {   # generations/N
  generation @0 :UInt32;   # N
  jobId @1 :Text;
  nonce @2 :Data;
}

struct ReaderClaim {       # readers/N
  number @0 :UInt32;       # N
  jobId @1 :Text;
  nonce @2 :Data;
  unixTimeNs @3 :Int64;    # when it was claimed
}

struct FirstRoster {       # generations/N.roster
  generation @0 :UInt32;   # N
  roster @1 :Data;
  layouts @2 :List(Data);  # in the order of roster.layoutIds
  ruleVersion @3 :UInt32;
  options @4 :Layout.SaveOptions;
  nonce @5 :Data;
}

struct LoadChoice {        # generations/N.load-K, readers/N.load-K
  generation @0 :UInt32;   # N, the generation or reader number of the job that loads
  ordinal @1 :UInt32;      # K; the highest bit is set for a load that may fall back
  found @2 :Bool;          # false: there was no checkpoint; the chosen attempt is zeros
  chosenGeneration @3 :UInt32;
  chosenStep @4 :UInt64;
  chosenAttempt @5 :UInt32;
  nonce @6 :Data;
  passedOver @7 :List(Layout.PassedOver);  # newer attempts, newest first: the first of passedOverCount.
  passedOverCount @8 :UInt32;              # Older programs write neither field.
}
