#include "actors/messages/link_messages.h"

#include <capnp/message.h>

#include "base/host_port.h"
#include "local/status/job_status.h"
#include "schema/checked_reader_internal.h"
#include "schema/wire.capnp.h"
#include "storage/decisions/decision.h"
#include "storage/root/run_root.h"
#include "transport/handshake.h"

namespace shoal::actors {

namespace {

struct LinkEncoder {
  schema::Link::Builder out;

  void operator()(const link::ServeAsRelay& received) { out.setServeAsRelay(received.children_max); }
  void operator()(const link::RelayReady& received) {
    auto ready = out.initRelayReady();
    ready.setAddress(schema::text_of(received.address));
    ready.setChildren(received.children_max);
  }
  void operator()(const link::RelayFailed& received) {
    out.setRelayFailed(schema::text_of(clean_line(received.cause, storage::kMaxCauseBytes)));
  }
  void operator()(const link::UseRelay& received) {
    auto go = out.initUseRelay();
    go.setAddress(schema::text_of(received.address));
    go.setCause(schema::text_of(clean_line(received.cause, storage::kMaxCauseBytes)));
  }
  void operator()(const link::ChildUp& received) {
    auto up = out.initChildUp();
    up.setChild(received.child);
    up.setName(schema::text_of(received.name));
    up.setIncarnation(schema::data_of(received.incarnation));
  }
  void operator()(const link::ChildLost& received) {
    auto lost = out.initChildLost();
    lost.setChild(received.child);
    lost.setCause(schema::text_of(clean_line(received.cause, storage::kMaxCauseBytes)));
  }
  void operator()(const link::FromChild& received) {
    auto from = out.initFromChild();
    from.setChild(received.child);
    from.setMessage(schema::data_of(ByteView(received.message)));
  }
  void operator()(const link::ToChild& received) {
    auto to = out.initToChild();
    to.setChild(received.child);
    to.setMessage(schema::data_of(ByteView(received.message)));
  }
  void operator()(const link::DropChild& received) {
    auto drop = out.initDropChild();
    drop.setChild(received.child);
    drop.setCause(schema::text_of(clean_line(received.cause, storage::kMaxCauseBytes)));
  }
  void operator()(const link::Welcome&) { out.setWelcome(); }
  void operator()(const link::JobStatusRequest&) { out.setJobStatusRequest(); }
  void operator()(const link::JobStatusTable& received) {
    out.setJobStatus(schema::data_of(ByteView(received.status)));
  }
  void operator()(const link::HostStatusRequest&) { out.setHostStatusRequest(); }
  void operator()(const link::HostStatusReport& received) {
    out.setHostStatus(schema::data_of(ByteView(received.status)));
  }
};

Result<std::string> read_text(capnp::Text::Reader in, size_t bytes_max, const char* what) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, bytes_max, what).status());
  std::string text(in.begin(), in.size());
  if (!is_clean_utf8(text))
    return Status(Code::corrupt, std::string(what) + " is not valid UTF-8 without control characters");
  return text;
}

Result<Bytes> read_bytes(capnp::Data::Reader in, size_t bytes_max, const char* what) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, bytes_max, what).status());
  const ByteView bytes = schema::view_of(in);
  return Bytes(bytes.begin(), bytes.end());
}

Result<LinkMessage> read_link(schema::Link::Reader in) {
  switch (in.which()) {
    case schema::Link::SERVE_AS_RELAY:
      return LinkMessage(link::ServeAsRelay{in.getServeAsRelay()});
    case schema::Link::RELAY_READY: {
      auto ready = in.getRelayReady();
      SHOAL_ASSIGN_OR_RETURN(std::string address,
                             read_text(ready.getAddress(), storage::kMaxAddressBytes, "address"));
      SHOAL_RETURN_IF_ERROR(base::parse_host_port(address).status());
      return LinkMessage(link::RelayReady{std::move(address), ready.getChildren()});
    }
    case schema::Link::RELAY_FAILED: {
      SHOAL_ASSIGN_OR_RETURN(std::string cause,
                             read_text(in.getRelayFailed(), storage::kMaxCauseBytes, "cause"));
      return LinkMessage(link::RelayFailed{std::move(cause)});
    }
    case schema::Link::USE_RELAY: {
      auto go = in.getUseRelay();
      SHOAL_ASSIGN_OR_RETURN(std::string address,
                             read_text(go.getAddress(), storage::kMaxAddressBytes, "address"));
      if (!address.empty()) SHOAL_RETURN_IF_ERROR(base::parse_host_port(address).status());
      SHOAL_ASSIGN_OR_RETURN(std::string cause, read_text(go.getCause(), storage::kMaxCauseBytes, "cause"));
      return LinkMessage(link::UseRelay{std::move(address), std::move(cause)});
    }
    case schema::Link::CHILD_UP: {
      auto up = in.getChildUp();
      SHOAL_ASSIGN_OR_RETURN(std::string name, read_text(up.getName(), transport::kMaxPeerNameBytes, "name"));
      SHOAL_ASSIGN_OR_RETURN(Nonce incarnation, Hash128::from_bytes(schema::view_of(up.getIncarnation())));
      return LinkMessage(link::ChildUp{up.getChild(), std::move(name), incarnation});
    }
    case schema::Link::CHILD_LOST: {
      auto lost = in.getChildLost();
      SHOAL_ASSIGN_OR_RETURN(std::string cause, read_text(lost.getCause(), storage::kMaxCauseBytes, "cause"));
      return LinkMessage(link::ChildLost{lost.getChild(), std::move(cause)});
    }
    case schema::Link::FROM_CHILD: {
      ByteView message = schema::view_of(in.getFromChild().getMessage());
      return LinkMessage(
          link::FromChild{in.getFromChild().getChild(), Bytes(message.begin(), message.end())});
    }
    case schema::Link::TO_CHILD: {
      ByteView message = schema::view_of(in.getToChild().getMessage());
      return LinkMessage(link::ToChild{in.getToChild().getChild(), Bytes(message.begin(), message.end())});
    }
    case schema::Link::DROP_CHILD: {
      auto drop = in.getDropChild();
      SHOAL_ASSIGN_OR_RETURN(std::string cause, read_text(drop.getCause(), storage::kMaxCauseBytes, "cause"));
      return LinkMessage(link::DropChild{drop.getChild(), std::move(cause)});
    }
    case schema::Link::WELCOME:
      return LinkMessage(link::Welcome{});
    case schema::Link::JOB_STATUS_REQUEST:
      return LinkMessage(link::JobStatusRequest{});
    case schema::Link::JOB_STATUS: {
      SHOAL_ASSIGN_OR_RETURN(Bytes status,
                             read_bytes(in.getJobStatus(), local::kMaxJobStatusBytes, "status of the job"));
      return LinkMessage(link::JobStatusTable{std::move(status)});
    }
    case schema::Link::HOST_STATUS_REQUEST:
      return LinkMessage(link::HostStatusRequest{});
    case schema::Link::HOST_STATUS: {
      SHOAL_ASSIGN_OR_RETURN(Bytes status,
                             read_bytes(in.getHostStatus(), local::kMaxHostStatusBytes, "status of a host"));
      return LinkMessage(link::HostStatusReport{std::move(status)});
    }
  }
  return Status(Code::version, "this program does not know this kind of message between links");
}

Result<std::optional<LinkMessage>> read_link_message(schema::Message::Reader in) {
  if (in.which() != schema::Message::LINK) return std::optional<LinkMessage>();
  SHOAL_ASSIGN_OR_RETURN(LinkMessage received, read_link(in.getLink()));
  return std::optional(std::move(received));
}

}  // namespace

Bytes encode_link(const LinkMessage& message) {
  capnp::MallocMessageBuilder builder;
  std::visit(LinkEncoder{builder.initRoot<schema::Message>().initLink()}, message);
  return schema::framed_bytes(builder);
}

Result<std::optional<LinkMessage>> decode_link(ByteView bytes) {
  schema::ReadLimits limits;
  limits.bytes_max = transport::kMaxMessageBytes;
  auto message = schema::read_checked<schema::Message>(bytes, limits, read_link_message);
  if (message.ok()) return message;
  return Status(Code::corrupt, message.status().message()).with_context("message of a node");
}

}  // namespace shoal::actors
