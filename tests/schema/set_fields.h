// SetFields: which fields of a Cap'n Proto message its samples set. A field that an encoder forgets is unset
// in every sample, and so is a field for which the samples have only the default.
#pragma once

#include <capnp/dynamic.h>
#include <capnp/schema.h>
#include <capnp/serialize.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "shoal/bytes.h"

namespace shoal::schema {

template <class Root>
class SetFields {
 public:
  // `framed`: one message in standard framing. Not for untrusted bytes.
  void add(ByteView framed) {
    std::vector<uint64_t> words((framed.size() + 7) / 8);
    std::copy(framed.begin(), framed.end(), reinterpret_cast<std::byte*>(words.data()));
    capnp::FlatArrayMessageReader reader(
        kj::arrayPtr(reinterpret_cast<const capnp::word*>(words.data()), words.size()));
    note(capnp::DynamicStruct::Reader(reader.getRoot<Root>()));
  }
  // Fields of the message, and of all structs in it, that no sample sets to another value than the default. A
  // list or a text must have an element. Fields of a struct count once, wherever the message contains it.
  // `but`: does not look into these fields.
  std::set<std::string> unset(const std::set<std::string>& but = {}) const {
    std::set<std::string> all;
    std::set<uint64_t> listed;
    list(capnp::Schema::from<Root>(), but, &listed, &all);
    for (const std::string& name : set_) all.erase(name);
    return all;
  }

 private:
  static std::string name_of(capnp::StructSchema::Field field) {
    const std::string type = field.getContainingStruct().getProto().getDisplayName().cStr();
    return type.substr(type.find(':') + 1) + "." + field.getProto().getName().cStr();
  }
  static capnp::Type element_of(capnp::Type type) {
    while (type.isList()) type = type.asList().getElementType();
    return type;
  }
  static void list(capnp::StructSchema type, const std::set<std::string>& but, std::set<uint64_t>* listed,
                   std::set<std::string>* names) {
    if (!listed->insert(type.getProto().getId()).second) return;
    for (capnp::StructSchema::Field field : type.getFields()) {
      if (but.contains(name_of(field))) continue;
      if (!field.getProto().isGroup()) names->insert(name_of(field));
      const capnp::Type element = element_of(field.getType());
      if (element.isStruct()) list(element.asStruct(), but, listed, names);
    }
  }

  void note(capnp::DynamicStruct::Reader message) {
    const kj::Maybe<capnp::StructSchema::Field> member = message.which();
    for (capnp::StructSchema::Field field : message.getSchema().getFields()) {
      const bool is_in_union =
          field.getProto().getDiscriminantValue() != capnp::schema::Field::NO_DISCRIMINANT;
      bool is_member = false;
      KJ_IF_MAYBE (active, member) is_member = *active == field;
      if (is_in_union && !is_member) continue;
      if (field.getType().isVoid() || message.has(field, capnp::HasMode::NON_DEFAULT)) {
        if (!field.getProto().isGroup() && !is_empty(message.get(field))) set_.insert(name_of(field));
        note_within(message.get(field));
      }
    }
  }
  static bool is_empty(capnp::DynamicValue::Reader value) {
    switch (value.getType()) {
      case capnp::DynamicValue::LIST:
        return value.as<capnp::DynamicList>().size() == 0;
      case capnp::DynamicValue::TEXT:
        return value.as<capnp::Text>().size() == 0;
      case capnp::DynamicValue::DATA:
        return value.as<capnp::Data>().size() == 0;
      default:
        return false;
    }
  }
  void note_within(capnp::DynamicValue::Reader value) {
    if (value.getType() == capnp::DynamicValue::STRUCT) note(value.as<capnp::DynamicStruct>());
    if (value.getType() != capnp::DynamicValue::LIST) return;
    for (capnp::DynamicValue::Reader element : value.as<capnp::DynamicList>()) note_within(element);
  }

  std::set<std::string> set_;
};

}  // namespace shoal::schema
