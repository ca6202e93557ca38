# RocksDB: RocksDb::RocksDb. Debian's own CMake configuration asks for every compressor's development files.
include(ShoalFindLibrary)
shoal_find_library(
  RocksDb
  TARGET RocksDb::RocksDb
  HEADER rocksdb/db.h
  LIBRARIES rocksdb
  STATIC_NEEDS snappy lz4 zstd bz2 z gflags numa tbb uring)
