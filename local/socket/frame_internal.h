// LocalFrame: an encoded message that a socket sends without copying it.
#pragma once

#include "local/messages/messages.h"
#include "schema/checked_reader_internal.h"

namespace shoal::local {

class LocalFrame {
 public:
  explicit LocalFrame(const LocalMessage& message);
  LocalFrame(const LocalFrame&) = delete;
  LocalFrame& operator=(const LocalFrame&) = delete;

  const schema::FramedParts& parts() const { return parts_; }
  schema::PagedMessageBuilder& builder() { return builder_; }

 private:
  schema::PagedMessageBuilder builder_;
  schema::FramedParts parts_;  // they point into builder_
};

}  // namespace shoal::local
