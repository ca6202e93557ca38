// FrameStream: frames (transport/frame.h) on a TLS connection. It reads one frame at a time, at most up to
// the bound of the frame's kind, and reads a chunk only after fetch_into. It writes queued frames in order.
#pragma once

#include "shoal/bytes.h"
#include "shoal/status.h"
#include "transport/frame.h"
#include "transport/tcp/tls.h"

namespace shoal::transport {

// Bound on small frames that wait to be written; call flush before you queue more.
inline constexpr size_t kStreamQueueBytes = size_t{64} << 10;

class FrameStream {
 public:
  explicit FrameStream(TlsStream tls) : tls_(std::move(tls)) {}

  TlsStream& tls() { return tls_; }
  const TlsStream& tls() const { return tls_; }

  // --- reading ---
  enum class Event {
    nothing,    // no whole frame is available now
    frame,      // header() and payload() hold a frame until the next call
    announced,  // header() announces a chunk; call fetch_into before the next read
    fetched,    // the chunk is complete in the memory from fetch_into
    malformed,  // the header is invalid, or its payload exceeds the bound; all further bytes are dropped
  };
  // Subtracts the bytes it reads from `budget_bytes` and stops when that is 0. The payload of a small frame
  // has at most `payload_bytes_max` bytes. An error means that the connection has ended.
  Result<Event> read(size_t payload_bytes_max, size_t* budget_bytes);
  ByteView header() const { return header_; }
  ByteView payload() const { return payload_; }
  void fetch_into(MutableByteView room);  // as many bytes as announced; must stay valid until Event::fetched
  bool awaits_room() const { return state_ == State::announced; }
  // Drops all further bytes up to the end of the stream.
  void ignore_rest() { state_ = State::ignoring; }

  // --- writing ---
  void push(const FrameHeaderBytes& header, ByteView payload);  // copies the payload
  // Queues a chunk after everything queued so far. `payload` must stay valid until is_bulk_written(). One
  // chunk at a time.
  void push_chunk(const FrameHeaderBytes& header, ByteView payload);
  bool is_bulk_written() const { return bulk_.empty(); }
  size_t queued_bytes() const { return queue_.size() - written_; }
  // Bytes of small frames and of chunk headers, since construction.
  uint64_t pushed_bytes() const { return written_before_ + queue_.size(); }
  uint64_t written_bytes() const { return written_before_ + written_; }
  bool has_output() const {
    return queued_bytes() != 0 || tls_.has_unsent() || !bulk_.empty() || !later_.empty();
  }
  // Writes as much as the connection accepts and `budget_bytes` allows.
  Status flush(size_t* budget_bytes);

 private:
  enum class State { header, payload, announced, chunk, ignoring };
  // Reads into [*filled, into.size()). True once `into` is full.
  Result<bool> fill(MutableByteView into, size_t* filled, size_t* budget_bytes);
  Result<Event> drop(size_t* budget_bytes);
  Status write(ByteView from, size_t* written, size_t* budget_bytes);

  TlsStream tls_;
  State state_ = State::header;
  FrameHeaderBytes header_{};
  Bytes payload_;
  MutableByteView room_;
  size_t filled_ = 0;  // bytes of the part that is being read

  Bytes queue_;                  // small frames, and the header of the chunk that follows them
  size_t written_ = 0;           // bytes of queue_
  uint64_t written_before_ = 0;  // bytes written and already removed from queue_
  ByteView bulk_;
  size_t bulk_written_ = 0;
  Bytes later_;  // small frames pushed after a chunk
};

}  // namespace shoal::transport
