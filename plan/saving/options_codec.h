// Encodes and decodes SaveOptions and UserMetadata in any message that contains them (schema/layout.capnp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "shoal/metadata.h"
#include "shoal/save_plan.h"

namespace shoal::plan {

// Converts the numbers of a message. Code::corrupt if validate_options would reject the options.
Result<SaveOptions> checked_options(uint16_t dedupe, uint64_t unit_bytes, uint16_t mode);

// `out`: schema::SaveOptions::Builder.
template <class Builder>
void write_options(Builder out, const SaveOptions& options) {
  out.setDedupe(static_cast<std::decay_t<decltype(out.getDedupe())>>(options.dedupe));
  out.setUnitBytes(options.unit_bytes);
  out.setMode(static_cast<std::decay_t<decltype(out.getMode())>>(options.mode));
}

// `in`: schema::SaveOptions::Reader.
template <class Reader>
Result<SaveOptions> read_options(Reader in) {
  return checked_options(static_cast<uint16_t>(in.getDedupe()), in.getUnitBytes(),
                         static_cast<uint16_t>(in.getMode()));
}

// `out` has a list `user` of schema::UserText. Leaves it unset if `user` is empty.
template <class Builder>
void write_user(Builder out, const UserMetadata& user) {
  if (user.empty()) return;
  auto list = out.initUser(static_cast<unsigned>(user.size()));
  unsigned i = 0;
  for (const auto& [key, value] : user) {
    list[i].setKey({key.c_str(), key.size()});
    list[i++].setValue({value.c_str(), value.size()});
  }
}
template <class Builder>
void write_user(Builder out, const UserMetadataPtr& user) {
  if (user) write_user(out, *user);
}

// Code::corrupt if validate_user_metadata would reject the entries.
template <class Reader>
Result<UserMetadata> read_user(Reader in) {
  UserMetadata user;
  if (in.getUser().size() > kMaxUserKeys) return Status(Code::corrupt, "metadata of a save: too many keys");
  for (auto entry : in.getUser()) {
    if (entry.getKey().size() > kMaxUserKeyBytes || entry.getValue().size() > kMaxUserMetadataBytes) {
      return Status(Code::corrupt, "metadata of a save: a key or value is too long");
    }
    std::string key(entry.getKey().begin(), entry.getKey().size());
    if (!user.empty() && key <= user.rbegin()->first) {
      return Status(Code::corrupt, "metadata of a save: the keys are not in ascending order");
    }
    user.emplace(std::move(key), std::string(entry.getValue().begin(), entry.getValue().size()));
  }
  if (Status status = validate_user_metadata(user); !status.ok()) {
    return Status(Code::corrupt, status.message());
  }
  return user;
}
// nullptr if there are no entries.
template <class Reader>
Result<UserMetadataPtr> read_shared_user(Reader in) {
  SHOAL_ASSIGN_OR_RETURN(UserMetadata user, read_user(in));
  if (user.empty()) return UserMetadataPtr();
  return std::make_shared<const UserMetadata>(std::move(user));
}

}  // namespace shoal::plan
