// Encodes and decodes one file of a checkpoint for manifests and for the catalog.
#pragma once

#include "schema/manifest.capnp.h"
#include "shoal/status.h"
#include "storage/decisions/decision.h"

namespace shoal::storage {

void write_file_entry(schema::FileEntry::Builder builder, const FileEntry& file);
// Checks what can be checked without the rest of the manifest. May throw kj::Exception, which read_checked
// catches.
Result<FileEntry> read_file_entry(schema::FileEntry::Reader reader);

}  // namespace shoal::storage
