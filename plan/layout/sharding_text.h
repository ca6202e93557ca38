// How messages and listings describe a mesh and a sharding.
#pragma once

#include <string>

#include "plan/layout/holdings.h"
#include "shoal/layout.h"
#include "shoal/mesh.h"

namespace shoal::plan {

// "rank 3", "2x4 ranks 0-7", "4 ranks from 0 by 2", or "4 ranks, listed".
std::string describe_mesh(const Mesh& mesh);
// The same of an instance that has a mesh. A mesh of devices: "4x2 devices, 2 a rank".
std::string describe_mesh_of(const Instance& instance);
// `entry`: of `layout`. "[Shard(0), Replicate()] on 2x4 ranks 0-7", for example. Explicit boxes: how many.
std::string describe_sharding(const Layout& layout, const LayoutEntry& entry);

}  // namespace shoal::plan
