// The name of a root, as users write it: a folder, or "s3://BUCKET/PREFIX" in an object store.
#pragma once

#include <string>
#include <string_view>

#include "shoal/status.h"

namespace shoal::base {

inline constexpr std::string_view kS3Scheme = "s3://";

// false: the root is a folder.
bool is_in_object_store(std::string_view root);

// "s3://bucket/x", "gs://…", and "s3:/bucket/x", which pathlib makes of it. As a path it would name a folder
// below the working folder.
bool looks_like_url(std::string_view path);

// The one spelling of a root, by which processes of a host find each other. An object store's: without '/' at
// its end or twice in a row. A folder's: its real path; Code::not_found if it does not exist.
// Code::invalid_argument: the name is empty, has a NUL byte, or its prefix has a component that is not
// [A-Za-z0-9._-], or "." or "..".
Result<std::string> normal_root(const std::string& root);

// Absolute, without looking at the file system. An object store's root is absolute.
std::string absolute_root(const std::string& root);

}  // namespace shoal::base
