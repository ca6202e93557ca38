# xxHash, inlined from its header: XxHash::XxHash.
include(ShoalFindLibrary)
shoal_find_library(XxHash TARGET XxHash::XxHash HEADER xxhash.h)
