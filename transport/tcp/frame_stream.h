// FrameStream: frames (transport/frame.h) on a TLS connection. Reads one frame at a time, never more of it
// than its place allows, and a chunk only once it is told where to; writes what is queued in order.
#pragma once

#include "shoal/bytes.h"
#include "shoal/status.h"
#include "transport/frame.h"
#include "transport/tcp/tls.h"

namespace shoal::transport {

// Small frames that wait to be written; who queues more first flushes.
inline constexpr size_t kStreamQueueBytes = size_t{64} << 10;

class FrameStream {
 public:
  explicit FrameStream(TlsStream tls) : tls_(std::move(tls)) {}

  TlsStream& tls() { return tls_; }
  const TlsStream& tls() const { return tls_; }

  // --- reading ---
  enum class Event {
    nothing,    // no whole frame now
    frame,      // header() and payload() are a frame, until the next call
    announced,  // header() announces a chunk: fetch_into is called before the next of it is read
    fetched,    // the chunk is where it was to be
    malformed,  // header() is none, or its payload is over the bound: all that follows is dropped
  };
  // Takes what it reads from `budget_bytes`, and stops where that is used up. A payload of a small frame has
  // at most `payload_bytes_max` bytes. Not OK: the connection is over.
  Result<Event> read(size_t payload_bytes_max, size_t* budget_bytes);
  ByteView header() const { return header_; }
  ByteView payload() const { return payload_; }
  void fetch_into(MutableByteView room);  // as many bytes as were announced; valid until Event::fetched
  bool awaits_room() const { return state_ == State::announced; }
  bool is_fetching() const { return state_ == State::chunk; }
  // Reads on to the end of the stream, and drops it.
  void ignore_rest() { state_ = State::ignoring; }

  // --- writing ---
  void push(const FrameHeaderBytes& header, ByteView payload);  // copied
  // Beyond what is queued; `payload` stays valid until is_bulk_written(). One at a time.
  void push_chunk(const FrameHeaderBytes& header, ByteView payload);
  bool is_bulk_written() const { return bulk_.empty(); }
  size_t queued_bytes() const { return queue_.size() - written_; }
  // Of small frames and headers of chunks, since the beginning.
  uint64_t pushed_bytes() const { return written_before_ + queue_.size(); }
  uint64_t written_bytes() const { return written_before_ + written_; }
  bool has_output() const {
    return queued_bytes() != 0 || tls_.has_unsent() || !bulk_.empty() || !later_.empty();
  }
  // As far as the connection takes it, and as `budget_bytes` goes.
  Status flush(size_t* budget_bytes);

 private:
  enum class State { header, payload, announced, chunk, ignoring };
  // Reads into [*filled, into.size()). True once it is full.
  Result<bool> fill(MutableByteView into, size_t* filled, size_t* budget_bytes);
  Result<Event> drop(size_t* budget_bytes);
  Status write(ByteView from, size_t* written, size_t* budget_bytes);

  TlsStream tls_;
  State state_ = State::header;
  FrameHeaderBytes header_{};
  Bytes payload_;
  MutableByteView room_;
  size_t filled_ = 0;  // of the part that is being read

  Bytes queue_;                  // small frames, and the header of the chunk that follows them
  size_t written_ = 0;           // of queue_
  uint64_t written_before_ = 0;  // what is in queue_ no more
  ByteView bulk_;
  size_t bulk_written_ = 0;
  Bytes later_;  // small frames that were pushed after a chunk
};

}  // namespace shoal::transport
