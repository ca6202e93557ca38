# Unified Communication X, its protocol layer: Ucx::Ucx. Shared: its transports are modules.
include(ShoalFindLibrary)
shoal_find_library(Ucx TARGET Ucx::Ucx HEADER ucp/api/ucp.h LIBRARIES ucp ucs)
