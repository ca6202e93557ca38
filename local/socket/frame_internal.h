// An encoded message as it is sent: from where it was written, without a copy.
#pragma once

#include "local/messages/messages.h"
#include "schema/checked_reader_internal.h"

namespace shoal {

class LocalFrame {
 public:
  explicit LocalFrame(const LocalMessage& message);
  LocalFrame(const LocalFrame&) = delete;
  LocalFrame& operator=(const LocalFrame&) = delete;

  const FramedParts& parts() const { return parts_; }
  PagedMessageBuilder& builder() { return builder_; }

 private:
  PagedMessageBuilder builder_;
  FramedParts parts_;  // of the builder's
};

}  // namespace shoal
