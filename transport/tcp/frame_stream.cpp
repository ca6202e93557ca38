#include <algorithm>
#include <array>
#include <utility>

#include "transport/frame.h"
#include "transport/tcp/frame_stream.h"

namespace shoal::transport {

namespace {
constexpr size_t kDropBytes = size_t{16} << 10;
}  // namespace

Result<bool> FrameStream::fill(MutableByteView into, size_t* filled, size_t* budget_bytes) {
  while (*filled < into.size() && *budget_bytes > 0) {
    const size_t room = std::min(into.size() - *filled, *budget_bytes);
    SHOAL_ASSIGN_OR_RETURN(size_t moved, tls_.read(into.subspan(*filled, room)));
    if (moved == 0) return false;
    *filled += moved;
    *budget_bytes -= moved;
  }
  return *filled == into.size();
}

Result<FrameStream::Event> FrameStream::read(size_t payload_bytes_max, size_t* budget_bytes) {
  if (state_ == State::ignoring) return drop(budget_bytes);
  if (state_ == State::announced) return Event::nothing;
  if (state_ == State::chunk) {
    SHOAL_ASSIGN_OR_RETURN(bool is_full, fill(room_, &filled_, budget_bytes));
    if (!is_full) return Event::nothing;
    state_ = State::header;
    filled_ = 0;
    return Event::fetched;
  }
  if (state_ == State::header) {
    SHOAL_ASSIGN_OR_RETURN(bool is_full, fill(header_, &filled_, budget_bytes));
    if (!is_full) return Event::nothing;
    filled_ = 0;
    payload_.clear();
    auto decoded = decode_frame_header(header_);
    const bool is_chunk = decoded.ok() && decoded->kind == FrameKind::chunk;
    if (!decoded.ok() || (!is_chunk && decoded->payload_bytes > payload_bytes_max)) {
      state_ = State::ignoring;
      return Event::malformed;
    }
    if (is_chunk) {
      state_ = State::announced;
      return Event::announced;
    }
    payload_.resize(decoded->payload_bytes);
    state_ = State::payload;
  }
  SHOAL_ASSIGN_OR_RETURN(bool is_full, fill(payload_, &filled_, budget_bytes));
  if (!is_full) return Event::nothing;
  state_ = State::header;
  filled_ = 0;
  return Event::frame;
}

void FrameStream::fetch_into(MutableByteView room) {
  SHOAL_CHECK(state_ == State::announced);
  room_ = room;
  state_ = State::chunk;
}

Result<FrameStream::Event> FrameStream::drop(size_t* budget_bytes) {
  std::array<std::byte, kDropBytes> dropped;
  while (*budget_bytes > 0) {
    SHOAL_ASSIGN_OR_RETURN(size_t moved, tls_.read(dropped));
    if (moved == 0) break;
    *budget_bytes -= std::min(moved, *budget_bytes);
  }
  return Event::nothing;
}

void FrameStream::push(const FrameHeaderBytes& header, ByteView payload) {
  Bytes& out = bulk_.empty() ? queue_ : later_;
  append(out, header);
  append(out, payload);
}

void FrameStream::push_chunk(const FrameHeaderBytes& header, ByteView payload) {
  SHOAL_CHECK(bulk_.empty() && !payload.empty());
  append(queue_, header);
  bulk_ = payload;
  bulk_written_ = 0;
}

Status FrameStream::write(ByteView from, size_t* written, size_t* budget_bytes) {
  while (*written < from.size() && *budget_bytes > 0) {
    SHOAL_ASSIGN_OR_RETURN(size_t moved, tls_.write(from.subspan(*written)));
    if (moved == 0) return ok_status();
    *written += moved;
    *budget_bytes -= std::min(moved, *budget_bytes);
  }
  return ok_status();
}

Status FrameStream::flush(size_t* budget_bytes) {
  SHOAL_RETURN_IF_ERROR(write(queue_, &written_, budget_bytes));
  if (written_ == queue_.size() || written_ >= kStreamQueueBytes) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(written_));
    written_before_ += std::exchange(written_, 0);
  }
  if (queue_.empty() && !bulk_.empty()) {
    SHOAL_RETURN_IF_ERROR(write(bulk_, &bulk_written_, budget_bytes));
    if (bulk_written_ == bulk_.size()) {
      bulk_ = {};
      std::swap(queue_, later_);
    }
  }
  return tls_.flush();
}

}  // namespace shoal::transport
