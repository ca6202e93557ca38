// Functions that the decoders of local messages share, and the decoders of decode_loads.cpp.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "local/messages/messages.h"
#include "plan/layout/codec.h"
#include "plan/reading/passed_over_codec.h"
#include "plan/saving/options_codec.h"
#include "plan/saving/replica_codec.h"
#include "schema/checked_reader_internal.h"
#include "schema/local.capnp.h"

namespace shoal::local {

inline Status malformed(std::string_view what) {
  return Status(Code::corrupt, fmt::format("malformed {}", what));
}

// Turns Code::invalid_argument into Code::corrupt: the fault is in the bytes, not in the caller's arguments.
inline Status as_corrupt(const Status& status, std::string_view what) {
  Code code = status.code() == Code::invalid_argument ? Code::corrupt : status.code();
  return Status(code, status.message()).with_context(what);
}

inline Result<Dims> read_numbers(capnp::List<uint64_t>::Reader in, std::string_view what) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, kMaxDims, what).status());
  Dims out;
  out.reserve(in.size());
  for (uint64_t number : in) out.push_back(number);
  return out;
}

inline Result<Box> read_box(schema::Box::Reader in) {
  Box box;
  SHOAL_ASSIGN_OR_RETURN(box.offsets, read_numbers(in.getOffsets(), "offsets of a box"));
  SHOAL_ASSIGN_OR_RETURN(box.sizes, read_numbers(in.getSizes(), "sizes of a box"));
  if (box.offsets.size() != box.sizes.size())
    return malformed("box: the numbers of offsets and sizes differ");
  return box;
}

inline Result<Hash128> read_hash_or_zero(capnp::Data::Reader in) {
  if (in.size() == 0) return Hash128{};
  return Hash128::from_bytes(schema::view_of(in));
}

inline std::string fit_to_print(std::string_view given) {
  std::string text(given);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

// Reads `code` and `cause` of any message that has both. A code that this program does not know becomes
// Code::internal. Control characters in the cause become spaces.
template <class Reader>
Status read_status(Reader in, Status& out) {
  auto cause = in.getCause();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(cause, kMaxLocalCauseBytes, "cause of an error").status());
  uint16_t code = in.getCode();
  out = Status();
  if (code == 0) return ok_status();
  if (code > static_cast<uint16_t>(kLastCode)) code = static_cast<uint16_t>(Code::internal);
  out = Status(static_cast<Code>(code), fit_to_print(schema::view_of(cause)));
  return ok_status();
}

// The status of a message that exists only to report an error.
template <class Reader>
Status read_error(Reader in, std::string_view what, Status& out) {
  SHOAL_RETURN_IF_ERROR(read_status(in, out));
  if (out.ok()) return malformed(fmt::format("{}: it has no error", what));
  return ok_status();
}

inline Result<LayoutEntry::Kind> read_kind(schema::LayoutEntry::Kind in) {
  if (static_cast<uint16_t>(in) > static_cast<uint16_t>(LayoutEntry::Kind::object)) {
    return malformed("kind of a value");
  }
  return static_cast<LayoutEntry::Kind>(in);
}

// Reads fqn, kind, dtype and shape of a TensorInfo or LoadTarget, and validates each separately.
template <class Reader, class Value>
Status read_value(Reader in, Value& out) {
  auto fqn = in.getFqn();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(fqn, kMaxFqnBytes, "fqn").status());
  out.fqn = schema::view_of(fqn);
  if (Status status = validate_fqn(out.fqn); !status.ok()) return as_corrupt(status, "fqn");
  SHOAL_ASSIGN_OR_RETURN(out.kind, read_kind(in.getKind()));
  SHOAL_ASSIGN_OR_RETURN(out.dtype, dtype_from_number(in.getDtype()));
  SHOAL_ASSIGN_OR_RETURN(out.shape, read_numbers(in.getShape(), "shape"));
  if (!element_count(out.shape))
    return malformed(fmt::format("shape of '{}': its number of elements overflows", out.fqn));
  return ok_status();
}

inline Result<Metadata> read_metadata(schema::CheckpointInfo::Reader in) {
  Metadata metadata;
  metadata.key = {in.getKey().getGeneration(), in.getKey().getStep(), in.getKey().getAttempt()};
  metadata.world_size = in.getWorldSize();
  metadata.payload_bytes = in.getPayloadBytes();
  metadata.files = in.getFiles();
  auto tensors = in.getTensors();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(tensors, kMaxEntries, "tensors of a checkpoint").status());
  metadata.state_dict_metadata.reserve(tensors.size());
  for (auto tensor_in : tensors) {
    TensorMetadata tensor;
    SHOAL_RETURN_IF_ERROR(read_value(tensor_in, tensor));
    metadata.state_dict_metadata.push_back(std::move(tensor));
  }
  SHOAL_ASSIGN_OR_RETURN(metadata.user, plan::read_user(in));
  SHOAL_ASSIGN_OR_RETURN(metadata.contents_digest, read_hash_or_zero(in.getContentsDigest()));
  return metadata;
}

template <class Reader>
Result<std::shared_ptr<const World>> read_world(Reader in) {
  plan::EncodedWorld encoded{schema::view_of(in.getRoster()), {}};
  for (auto layout : in.getLayouts()) encoded.layouts.push_back(schema::view_of(layout));
  SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<const World> world, plan::decode_world(encoded));
  if (Status status = validate_world(*world); !status.ok()) return as_corrupt(status, "roster");
  return world;
}

// decode_loads.cpp
Result<LocalMessage> read_load_message(schema::LocalMessage::Load::Reader in);
Result<LocalMessage> read_load_message(schema::LocalMessage::Found::Reader in);
Result<LocalMessage> read_load_message(schema::LocalMessage::LoadDone::Reader in);
Result<LocalMessage> read_load_message(schema::LocalMessage::Listing::Reader in);
Result<LocalMessage> read_load_message(schema::LocalMessage::FilesToRead::Reader in);
Result<LocalMessage> read_load_message(schema::LocalMessage::FilesRead::Reader in);
Result<LocalMessage> read_load_message(schema::LocalMessage::Loaded::Reader in);

}  // namespace shoal::local
