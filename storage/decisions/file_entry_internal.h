// A file of a checkpoint as manifests and the catalog encode it.
#pragma once

#include "schema/manifest.capnp.h"
#include "shoal/status.h"
#include "storage/decisions/decision.h"

namespace shoal::storage {

void write_file_entry(schema::FileEntry::Builder builder, const FileEntry& file);
// Checks what can be checked without the rest of the manifest; may throw kj::Exception (read_checked catches
// it).
Result<FileEntry> read_file_entry(schema::FileEntry::Reader reader);

}  // namespace shoal::storage
