#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>

#include "storage/s3/s3_files_internal.h"

namespace shoal::storage {

namespace {

// Much less than abandoned-after-ms, the time after which an attempt that does not change counts as
// abandoned.
constexpr std::chrono::seconds kNoteInterval{2};
constexpr uint64_t kFirstBytes = uint64_t{64} << 10;  // that come with the opening of an object
constexpr uint64_t kGapBytes = uint64_t{64} << 10;    // between reads that follow each other
constexpr int kUploadsAgainMax = 3;                   // of one object
constexpr size_t kStreams = 4;                        // of reads that follow each other, in one object

}  // namespace

Result<std::unique_ptr<S3ReadFile>> S3ReadFile::open(S3Client& client, const std::string& key,
                                                     std::atomic<int64_t>& ahead_bytes_left) {
  std::unique_ptr<S3ReadFile> file(new S3ReadFile(client, key, ahead_bytes_left));
  file->first_.resize(kFirstBytes);
  S3Request request{
      .method = "GET", .key = key, .headers = {{"Range", fmt::format("bytes=0-{}", kFirstBytes - 1)}}};
  request.into = file->first_;
  SHOAL_ASSIGN_OR_RETURN(const S3Answer answer, client.send(request));
  if (answer.status == 416) {  // an empty object has no range
    file->first_.clear();
    return file;
  }
  if (!answer.ok()) return client.error(request, answer, "open");
  file->first_.resize(answer.into_bytes);
  file->size_ = answer.status == 206 ? answer.object_bytes : answer.into_bytes;
  file->etag_ = answer.etag;
  file->last_ends_.push_back(file->first_.size());
  return file;
}

S3ReadFile::~S3ReadFile() {
  while (!aheads_.empty()) drop(aheads_.begin());
}

void S3ReadFile::drop(std::list<Ahead>::iterator ahead) {
  ahead_bytes_left_ += static_cast<int64_t>(ahead->data.size());
  aheads_.erase(ahead);
}

size_t S3ReadFile::take_ahead(uint64_t offset, MutableByteView out) {
  std::lock_guard lock(mutex_);
  for (auto ahead = aheads_.begin(); ahead != aheads_.end(); ++ahead) {
    if (!ahead->contains(offset)) continue;
    const ByteView from = ByteView(ahead->data).subspan(offset - ahead->begin);
    const size_t bytes = std::min(from.size(), out.size());
    std::memcpy(out.data(), from.data(), bytes);
    if (bytes == from.size()) drop(ahead);  // whoever reads in order does not need it any more
    return bytes;
  }
  return 0;
}

bool S3ReadFile::follows_another(uint64_t offset, uint64_t end) {
  std::lock_guard lock(mutex_);
  const auto before = std::find_if(last_ends_.begin(), last_ends_.end(), [&](uint64_t last) {
    return offset >= last && offset - last <= kGapBytes;
  });
  const bool follows = before != last_ends_.end();
  if (follows) last_ends_.erase(before);
  last_ends_.push_front(end);
  if (last_ends_.size() > kStreams) last_ends_.pop_back();
  return follows;
}

Status S3ReadFile::read_and_ahead(uint64_t offset, MutableByteView out) {
  Ahead ahead{offset, {}};
  const uint64_t bytes = std::min(kAheadBytes, size_ - offset);
  if (ahead_bytes_left_.fetch_sub(static_cast<int64_t>(bytes)) < static_cast<int64_t>(bytes)) {
    ahead_bytes_left_ += static_cast<int64_t>(bytes);
    return read_range(offset, out);
  }
  ahead.data.resize(bytes);
  Status read = read_range(offset, ahead.data);
  if (!read.ok()) {
    ahead_bytes_left_ += static_cast<int64_t>(bytes);
    return read;
  }
  std::memcpy(out.data(), ahead.data.data(), out.size());
  std::lock_guard lock(mutex_);
  aheads_.push_front(std::move(ahead));
  if (aheads_.size() > kStreams) drop(std::prev(aheads_.end()));
  return ok_status();
}

Status S3ReadFile::read_at(uint64_t offset, MutableByteView out) {
  if (out.empty()) return ok_status();
  if (offset > size_ || out.size() > size_ - offset) {
    return Status(Code::corrupt,
                  fmt::format("s3://{}/{}: it ends at byte {}, but {} bytes from byte {} are expected",
                              client_.settings().bucket, key_, size_, out.size(), offset));
  }
  if (offset < first_.size()) {
    const size_t here = std::min<uint64_t>(out.size(), first_.size() - offset);
    std::memcpy(out.data(), first_.data() + offset, here);
    out = out.subspan(here);
    offset += here;
  }
  const bool follows = follows_another(offset, offset + out.size());
  while (!out.empty()) {
    const size_t here = take_ahead(offset, out);
    if (here == 0) break;
    out = out.subspan(here);
    offset += here;
  }
  if (out.empty()) return ok_status();
  const bool reads_ahead = follows && out.size() < std::min(kAheadBytes, size_ - offset);
  return reads_ahead ? read_and_ahead(offset, out) : read_range(offset, out);
}

Status S3ReadFile::read_range(uint64_t offset, MutableByteView out) {
  S3Request request{.method = "GET", .key = key_};
  request.headers = {{"Range", fmt::format("bytes={}-{}", offset, offset + out.size() - 1)}};
  if (!etag_.empty()) request.headers.emplace_back("If-Match", etag_);
  request.into = out;
  SHOAL_ASSIGN_OR_RETURN(const S3Answer answer, client_.send(request));
  if (answer.status == 412) {
    return Status(Code::busy, fmt::format("s3://{}/{}: it was replaced while it was read",
                                          client_.settings().bucket, key_));
  }
  if (!answer.ok()) return client_.error(request, answer, "read");
  if (answer.into_bytes == out.size()) return ok_status();
  return Status(Code::corrupt,
                fmt::format("s3://{}/{}: {} bytes from byte {} were requested, but {} came",
                            client_.settings().bucket, key_, out.size(), offset, answer.into_bytes));
}

S3WriteFile::~S3WriteFile() {
  for (Upload& upload : uploads_) upload.part.wait();  // they read what the caller keeps
  end_upload();
}

// Failures are ignored: while the note exists, sweeps abort the upload and remove the note.
void S3WriteFile::end_upload() {
  if (upload_.empty()) return;
  const Status aborted = is_published_ ? ok_status() : storage_.abort_upload(key_, upload_);
  if (aborted.ok()) (void)storage_.remove_key(note_key_);
  upload_.clear();
}

Status S3WriteFile::append(ByteView data) {
  if (part_.begin + part_.bytes == 0 && held_.empty()) patchable_bytes_ = data.size();
  return add(data, false);
}

Status S3WriteFile::append_kept(ByteView data) {
  return add(data, true);
}

Status S3WriteFile::add(ByteView data, bool is_kept) {
  SHOAL_RETURN_IF_ERROR(failed_);
  while (!data.empty()) {
    const ByteView piece = data.first(std::min<uint64_t>(data.size(), part_bytes_ - part_.bytes));
    data = data.subspan(piece.size());
    if (is_kept) {
      part_.pieces.push_back({{}, piece});
    } else {
      part_.pieces.push_back({Bytes(piece.begin(), piece.end()), {}});
    }
    part_.bytes += piece.size();
    if (part_.bytes == part_bytes_) SHOAL_RETURN_IF_ERROR(failed_ = end_part());
  }
  return ok_status();
}

// The part is full, or the object ends with it.
Status S3WriteFile::end_part() {
  auto part = std::make_shared<Part>(std::move(part_));
  part_ = Part{part->begin + part->bytes, 0, {}};
  const size_t number = number_of(*part);
  if (number > kS3PartsMax) {
    return Status(Code::too_large, fmt::format("s3://{}/{}: it needs more than {} parts of {}",
                                               storage_.client_.settings().bucket, key_, kS3PartsMax,
                                               human_bytes(part_bytes_)));
  }
  uploaded_.resize(number);
  if (is_held(*part)) {
    held_.push_back(std::move(part));
    return ok_status();
  }
  return start_upload(number, std::move(part));
}

std::vector<ByteView> S3WriteFile::body_of(const Part& part) {
  std::vector<ByteView> body;
  body.reserve(part.pieces.size());
  for (const Piece& piece : part.pieces) body.push_back(piece.view());
  return body;
}

Status S3WriteFile::start_upload(size_t number, std::shared_ptr<const Part> part) {
  if (upload_.empty()) {
    SHOAL_ASSIGN_OR_RETURN(upload_, storage_.begin_upload(key_, write_id_));
    SHOAL_RETURN_IF_ERROR(storage_.write_upload_note(note_key_, upload_, 0));
    noted_at_ = std::chrono::steady_clock::now();
  }
  if (uploads_.size() == kPartsInFlight) SHOAL_RETURN_IF_ERROR(finish_oldest());
  const bool is_kept = is_held(*part) || std::ranges::all_of(part->pieces, [](const Piece& piece) {
                         return piece.own.empty();
                       });
  if (is_kept) kept_.push_back(part);
  auto work = [this, number, part = std::move(part), upload = upload_] {
    return storage_.put_part(key_, upload, number, body_of(*part));
  };
  try {
    uploads_.push_back({number, std::async(std::launch::async, work)});
  } catch (const std::exception&) {  // no thread is to be had
    uploads_.push_back({number, std::async(std::launch::deferred, work)});
  }
  return ok_status();
}

Status S3WriteFile::finish_oldest() {
  Upload oldest = std::move(uploads_.front());
  uploads_.pop_front();
  SHOAL_ASSIGN_OR_RETURN(uploaded_[oldest.number - 1], oldest.part.get());
  ++parts_done_;
  const auto now = std::chrono::steady_clock::now();
  if (now - noted_at_ < kNoteInterval) return ok_status();
  noted_at_ = now;
  return storage_.write_upload_note(note_key_, upload_, parts_done_);
}

Status S3WriteFile::patch(uint64_t offset, ByteView data) {
  SHOAL_RETURN_IF_ERROR(failed_);
  SHOAL_CHECK(offset <= patchable_bytes_ && data.size() <= patchable_bytes_ - offset);
  std::vector<Part*> parts;
  for (const auto& part : held_) parts.push_back(part.get());
  parts.push_back(&part_);
  for (Part* part : parts) {
    uint64_t begin = part->begin;
    for (Piece& piece : part->pieces) {
      const uint64_t end = begin + piece.view().size();
      if (!data.empty() && offset >= begin && offset < end) {
        const size_t here = std::min<uint64_t>(data.size(), end - offset);
        std::memcpy(piece.own.data() + (offset - begin), data.data(), here);
        data = data.subspan(here);
        offset += here;
      }
      begin = end;
    }
  }
  SHOAL_CHECK(data.empty());
  return ok_status();
}

// After the store has given up an upload whose completion met another conditional write.
Status S3WriteFile::upload_again() {
  const std::vector<std::shared_ptr<const Part>> kept = std::exchange(kept_, {});
  if (kept.size() < uploaded_.size()) {
    return Status(
        Code::busy,
        fmt::format("s3://{}/{}: another write of this name met the end of this upload, whose bytes "
                    "are no longer in memory: write it again",
                    storage_.client_.settings().bucket, key_));
  }
  (void)storage_.abort_upload(key_, upload_);
  SHOAL_ASSIGN_OR_RETURN(upload_, storage_.begin_upload(key_, write_id_));
  parts_done_ = 0;
  SHOAL_RETURN_IF_ERROR(storage_.write_upload_note(note_key_, upload_, 0));
  for (const auto& part : kept) SHOAL_RETURN_IF_ERROR(start_upload(number_of(*part), part));
  while (!uploads_.empty()) SHOAL_RETURN_IF_ERROR(finish_oldest());
  return ok_status();
}

Result<bool> S3WriteFile::publish() {
  SHOAL_RETURN_IF_ERROR(failed_);
  const bool is_one_put = upload_.empty() && part_.begin + part_.bytes <= part_bytes_;
  auto published = is_one_put ? storage_.put_exclusive(key_, body_of(held_.empty() ? part_ : *held_.front()))
                              : publish_parts();
  is_published_ = published.ok() && *published;
  if (published.ok()) end_upload();
  return published;
}

Result<bool> S3WriteFile::publish_parts() {
  if (part_.bytes > 0) SHOAL_RETURN_IF_ERROR(end_part());
  for (const auto& part : held_) SHOAL_RETURN_IF_ERROR(start_upload(number_of(*part), part));
  while (!uploads_.empty()) SHOAL_RETURN_IF_ERROR(finish_oldest());
  Status completed = storage_.complete(key_, upload_, uploaded_);
  for (int again = 0; completed.code() == Code::busy && again < kUploadsAgainMax; ++again) {
    // The write that was in the way may have the name now.
    auto is_ours = storage_.is_of_write(key_, write_id_);
    if (is_ours.status().code() != Code::not_found) return is_ours;
    SHOAL_RETURN_IF_ERROR(upload_again());
    completed = storage_.complete(key_, upload_, uploaded_);
  }
  if (completed.ok()) return true;
  if (completed.code() != Code::already_exists) return completed;
  auto is_ours = storage_.is_of_write(key_, write_id_);
  if (is_ours.status().code() != Code::not_found) return is_ours;
  return Status(Code::not_found, completed.message() + "; another process removed what was written of it");
}

}  // namespace shoal::storage
