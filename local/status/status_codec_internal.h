// Converts NodeStatus and JobStatus to and from their Cap'n Proto structs. The codec of local messages uses
// it.
#pragma once

#include "local/status/job_status.h"
#include "local/status/node_status.h"
#include "schema/local.capnp.h"
#include "shoal/status.h"

namespace shoal::local {

// Cuts lists and texts at their bounds.
void write_node_status(schema::NodeStatus::Builder out, const NodeStatus& status);
Result<NodeStatus> read_node_status(schema::NodeStatus::Reader in);  // untrusted

void write_save_status(schema::SaveStatus::Builder out, const SaveStatus& save);
Result<SaveStatus> read_save_status(schema::SaveStatus::Reader in);  // untrusted
void write_commit_status(schema::CommitStatus::Builder out, const CommitStatus& commit);
CommitStatus read_commit_status(schema::CommitStatus::Reader in);

void write_job_status(schema::JobStatus::Builder out, const JobStatus& status);
Result<JobStatus> read_job_status(schema::JobStatus::Reader in);  // untrusted

}  // namespace shoal::local
