#include "admin/checkpoint_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "base/helper_threads.h"
#include "gpu/dtype_conversion.h"

namespace shoal::admin {

namespace {

constexpr size_t kChunkElements = 1024;                     // compared at once
constexpr uint64_t kParallelReadBytes = uint64_t{1} << 20;  // below this, a second thread costs more

// Compares runs of elements of one type and keeps what a ValueDifference reports.
class ElementCompare {
 public:
  ElementCompare(DType dtype, uint64_t element_bytes) : dtype_(dtype), element_bytes_(element_bytes) {}

  // The place of the first different element in these runs, which have the same length.
  std::optional<uint64_t> add(ByteView a, ByteView b) {
    std::optional<uint64_t> first;
    const uint64_t chunk_bytes = kChunkElements * element_bytes_;
    for (uint64_t at = 0; at < a.size(); at += chunk_bytes) {
      const uint64_t bytes = std::min<uint64_t>(chunk_bytes, a.size() - at);
      if (std::memcmp(a.data() + at, b.data() + at, bytes) == 0) continue;
      const uint64_t in_chunk = add_chunk(a.subspan(at, bytes), b.subspan(at, bytes));
      if (!first) first = at / element_bytes_ + in_chunk;
    }
    return first;
  }

  uint64_t different = 0, not_numbers = 0;
  std::optional<double> largest;

 private:
  uint64_t add_chunk(ByteView a, ByteView b) {
    switch (dtype_) {
      case DType::i8:
        return by_number<int8_t>(a, b);
      case DType::u8:
        return by_number<uint8_t>(a, b);
      case DType::i16:
        return by_number<int16_t>(a, b);
      case DType::u16:
        return by_number<uint16_t>(a, b);
      case DType::i32:
        return by_number<int32_t>(a, b);
      case DType::u32:
        return by_number<uint32_t>(a, b);
      case DType::i64:
        return by_number<int64_t>(a, b);
      case DType::u64:
        return by_number<uint64_t>(a, b);
      case DType::f32:
        return by_number<float>(a, b);
      case DType::f64:
        return by_number<double>(a, b);
      case DType::c64:
        return by_complex(a, b);
      default:
        if (gpu::converts_between(dtype_, DType::f32)) return by_float(a, b);
        return each_different(a, b, [](size_t) {});
    }
  }

  // Calls visit(i) for each different element. Returns the first.
  template <class Visit>
  uint64_t each_different(ByteView a, ByteView b, Visit&& visit) {
    const size_t count = a.size() / element_bytes_;
    size_t first = count;
    for (size_t i = 0; i < count; ++i) {
      if (std::memcmp(a.data() + i * element_bytes_, b.data() + i * element_bytes_, element_bytes_) == 0) {
        continue;
      }
      first = std::min(first, i);
      ++different;
      visit(i);
    }
    return first;
  }

  template <class Number>
  static Number number_at(ByteView bytes, size_t i) {
    Number number;
    std::memcpy(&number, bytes.data() + i * sizeof(Number), sizeof(Number));
    return number;
  }

  template <class Number>
  uint64_t by_number(ByteView a, ByteView b) {
    return each_different(a, b, [&](size_t i) {
      const Number x = number_at<Number>(a, i), y = number_at<Number>(b, i);
      if constexpr (std::is_integral_v<Number>) {
        using Unsigned = std::make_unsigned_t<Number>;
        const auto larger = static_cast<Unsigned>(std::max(x, y));
        note(static_cast<double>(static_cast<Unsigned>(larger - static_cast<Unsigned>(std::min(x, y)))));
      } else {
        note(std::abs(static_cast<double>(x) - static_cast<double>(y)));
      }
    });
  }

  uint64_t by_complex(ByteView a, ByteView b) {
    const auto part = [](ByteView bytes, size_t i) { return double{number_at<float>(bytes, i)}; };
    return each_different(a, b, [&](size_t i) {
      note(std::hypot(part(a, 2 * i) - part(b, 2 * i), part(a, 2 * i + 1) - part(b, 2 * i + 1)));
    });
  }

  uint64_t by_float(ByteView a, ByteView b) {
    const size_t count = a.size() / element_bytes_;
    const auto widen = [&](ByteView from, std::array<float, kChunkElements>& to) {
      const Status status =
          gpu::convert_elements(dtype_, from, DType::f32, std::as_writable_bytes(std::span(to).first(count)));
      SHOAL_CHECK(status.ok());
    };
    widen(a, a_floats_);
    widen(b, b_floats_);
    return each_different(a, b,
                          [&](size_t i) { note(std::abs(double{a_floats_[i]} - double{b_floats_[i]})); });
  }

  void note(double difference) {
    if (std::isnan(difference)) {
      ++not_numbers;
    } else {
      largest = std::max(largest.value_or(0), difference);
    }
  }

  const DType dtype_;
  const uint64_t element_bytes_;
  std::array<float, kChunkElements> a_floats_, b_floats_;
};

// The index in the whole tensor of the row-major position `element` of a box.
Dims index_in_tensor(const Box& box, uint64_t element) {
  Dims index(box.sizes.size());
  for (size_t i = index.size(); i-- > 0;) {
    index[i] = box.offsets[i] + element % box.sizes[i];
    element /= box.sizes[i];
  }
  return index;
}

bool have_same_boxes(const std::vector<CheckpointContents::Piece>& a,
                     const std::vector<CheckpointContents::Piece>& b) {
  return std::ranges::equal(a, b, {}, &CheckpointContents::Piece::box, &CheckpointContents::Piece::box);
}

bool has_equal_block(const CheckpointContents::Piece& a, const CheckpointContents::Piece& b, uint64_t block) {
  return block < a.digests.size() && block < b.digests.size() && a.digests[block] == b.digests[block];
}

// Elements per window: whole rows where they fit, so that each piece is read in few long runs.
uint64_t elements_per_window(const TensorMetadata& tensor, uint64_t elements, uint64_t element_bytes) {
  const uint64_t most = kDiffWindowBytes / element_bytes;
  const uint64_t row = tensor.shape.empty() || tensor.shape[0] == 0 ? 1 : elements / tensor.shape[0];
  return row == 0 || row > most ? most : most / row * row;
}

class Comparison {
 public:
  Comparison(const DiffSide& a, const DiffSide& b, const DiffOptions& options,
             std::atomic<uint64_t>* bytes_done)
      : a_(a), b_(b), options_(options), bytes_done_(bytes_done) {}

  Result<DiffReport> run() {
    auto a = a_.values.begin(), b = b_.values.begin();
    while (a != a_.values.end() || b != b_.values.end()) {
      if (!options_.keeps_going()) return Status(Code::aborted, "interrupted");
      ++report_.values;
      if (b == b_.values.end() || (a != a_.values.end() && a->fqn < b->fqn)) {
        report_.differences.push_back({ValueDifference::What::only_in_a, a->fqn, *a, {}});
        ++a;
      } else if (a == a_.values.end() || b->fqn < a->fqn) {
        report_.differences.push_back({ValueDifference::What::only_in_b, b->fqn, {}, *b});
        ++b;
      } else {
        SHOAL_RETURN_IF_ERROR(compare(*a++, *b++));
      }
    }
    return std::move(report_);
  }

 private:
  Status compare(const TensorMetadata& a, const TensorMetadata& b) {
    ValueDifference found{ValueDifference::What::bytes, a.fqn, a, b};
    if (a.kind != b.kind) {
      found.what = ValueDifference::What::kind;
    } else if (a.dtype != b.dtype) {
      found.what = ValueDifference::What::dtype;
    } else if (a.shape != b.shape) {
      found.what = ValueDifference::What::shape;
    } else {
      SHOAL_RETURN_IF_ERROR(a.kind == LayoutEntry::Kind::object ? compare_objects(a, &found)
                                                                : compare_tensors(a, &found));
      if (found.different_elements == 0) return ok_status();
    }
    report_.differences.push_back(std::move(found));
    return ok_status();
  }

  // Calls both reads at once if they are worth a thread.
  template <class ReadA, class ReadB>
  Status read_both(uint64_t bytes, ReadA&& read_a, ReadB&& read_b) {
    if (a_window_.size() < bytes) a_window_.resize(bytes);
    if (b_window_.size() < bytes) b_window_.resize(bytes);
    Status of_a, of_b;
    base::for_each_by_threads(2, bytes >= kParallelReadBytes ? 2 : 1, [&](size_t side) {
      if (side == 0) of_a = read_a(MutableByteView(a_window_).first(bytes));
      if (side == 1) of_b = read_b(MutableByteView(b_window_).first(bytes));
    });
    report_.bytes_read += bytes;
    if (!of_a.ok()) return of_a;
    return of_b;
  }

  void count_done(uint64_t bytes) { bytes_done_->fetch_add(bytes, std::memory_order_relaxed); }

  void know_equal(uint64_t bytes) {
    report_.bytes_known_equal += bytes;
    count_done(bytes);
  }

  struct TensorInWork {
    const TensorMetadata& tensor;
    uint64_t element_bytes;
    ElementCompare elements;
    std::optional<Dims> first;
  };

  Status compare_boxes(const std::vector<Box>& boxes, TensorInWork& work) {
    if (!options_.keeps_going()) return Status(Code::aborted, "interrupted");
    uint64_t bytes = 0;
    for (const Box& box : boxes) bytes += box.elements() * work.element_bytes;
    SHOAL_RETURN_IF_ERROR(read_both(
        bytes, [&](MutableByteView out) { return a_.contents->read(work.tensor, boxes, out); },
        [&](MutableByteView out) { return b_.contents->read(work.tensor, boxes, out); }));
    uint64_t at = 0;
    for (const Box& box : boxes) {
      const uint64_t box_bytes = box.elements() * work.element_bytes;
      const auto first = work.elements.add(ByteView(a_window_).subspan(at, box_bytes),
                                           ByteView(b_window_).subspan(at, box_bytes));
      at += box_bytes;
      if (!first) continue;
      Dims index = index_in_tensor(box, *first);
      if (!work.first || index < *work.first) work.first = std::move(index);
    }
    count_done(bytes);
    return ok_status();
  }

  // Both sides have stored the tensor in these pieces.
  Status compare_pieces(const CheckpointContents::Piece& a, const CheckpointContents::Piece& b,
                        TensorInWork& work) {
    for (uint64_t at = 0; at < a.bytes;) {
      uint64_t end = std::min(a.bytes, at + base::kDigestBlockBytes);
      if (has_equal_block(a, b, at / base::kDigestBlockBytes)) {
        know_equal(end - at);
        at = end;
        continue;
      }
      while (end < a.bytes && end - at < kDiffBlocksBytes &&
             !has_equal_block(a, b, end / base::kDigestBlockBytes)) {
        end = std::min(a.bytes, end + base::kDigestBlockBytes);
      }
      SHOAL_RETURN_IF_ERROR(
          compare_boxes(boxes_of_range(a.box, at / work.element_bytes, end / work.element_bytes), work));
      at = end;
    }
    return ok_status();
  }

  Status compare_windows(uint64_t elements, TensorInWork& work) {
    const uint64_t step = elements_per_window(work.tensor, elements, work.element_bytes);
    for (uint64_t begin = 0; begin < elements; begin += step) {
      const uint64_t end = std::min(elements, begin + step);
      SHOAL_RETURN_IF_ERROR(compare_boxes(boxes_of_range(whole(work.tensor.shape), begin, end), work));
    }
    return ok_status();
  }

  Status compare_tensors(const TensorMetadata& tensor, ValueDifference* found) {
    SHOAL_ASSIGN_OR_RETURN(const uint64_t element_bytes, dtype_bytes(tensor.dtype));
    found->elements = whole(tensor.shape).elements();
    if (found->elements == 0) return ok_status();
    if (are_files_equal()) {
      know_equal(found->elements * element_bytes);
      return ok_status();
    }
    SHOAL_ASSIGN_OR_RETURN(const auto a, a_.contents->pieces(tensor));
    SHOAL_ASSIGN_OR_RETURN(const auto b, b_.contents->pieces(tensor));
    TensorInWork work{tensor, element_bytes, ElementCompare(tensor.dtype, element_bytes), {}};
    if (have_same_boxes(a, b)) {
      for (size_t i = 0; i < a.size(); ++i) SHOAL_RETURN_IF_ERROR(compare_pieces(a[i], b[i], work));
    } else {
      SHOAL_RETURN_IF_ERROR(compare_windows(found->elements, work));
    }
    found->different_elements = work.elements.different;
    found->largest_difference = work.elements.largest;
    found->not_numbers = work.elements.not_numbers;
    if (work.first) found->first_index = std::move(*work.first);
    return ok_status();
  }

  Status compare_objects(const TensorMetadata& object, ValueDifference* found) {
    if (are_files_equal()) return ok_status();
    SHOAL_ASSIGN_OR_RETURN(const auto a_pieces, a_.contents->pieces(object));
    SHOAL_ASSIGN_OR_RETURN(const auto b_pieces, b_.contents->pieces(object));
    if (a_pieces.empty() || b_pieces.empty()) {
      return Status(Code::corrupt, fmt::format("'{}': no file holds this object", object.fqn));
    }
    const CheckpointContents::Piece &a = a_pieces.front(), &b = b_pieces.front();
    found->a_bytes = a.bytes;
    found->b_bytes = b.bytes;
    found->elements = std::max(a.bytes, b.bytes);
    const uint64_t common = std::min(a.bytes, b.bytes);
    std::optional<uint64_t> first;
    for (uint64_t at = 0; at < common; at += base::kDigestBlockBytes) {
      const uint64_t block = at / base::kDigestBlockBytes;
      const uint64_t end = at + base::kDigestBlockBytes;
      const uint64_t a_end = std::min(a.bytes, end), b_end = std::min(b.bytes, end);
      if (a_end == b_end && has_equal_block(a, b, block)) {
        report_.bytes_known_equal += a_end - at;
        continue;
      }
      SHOAL_RETURN_IF_ERROR(read_both(
          std::max(a_end, b_end) - at,
          [&](MutableByteView out) {
            return a_.contents->read_object(object, at, a_end, out.first(a_end - at));
          },
          [&](MutableByteView out) {
            return b_.contents->read_object(object, at, b_end, out.first(b_end - at));
          }));
      ElementCompare bytes(DType::boolean, 1);  // its bytes are no numbers
      const uint64_t both = std::min(a_end, b_end) - at;
      const auto here = bytes.add(ByteView(a_window_).first(both), ByteView(b_window_).first(both));
      found->different_elements += bytes.different;
      if (here && !first) first = at + *here;
    }
    found->different_elements += found->elements - common;
    if (found->different_elements != 0) found->first_index = {first.value_or(common)};
    return ok_status();
  }

  // Equal names, sizes and headers of all files: the headers have the digests of all blocks.
  bool are_files_equal() const {
    return a_.contents_digest != Hash128{} && a_.contents_digest == b_.contents_digest;
  }

  const DiffSide &a_, &b_;
  const DiffOptions& options_;
  std::atomic<uint64_t>* const bytes_done_;
  DiffReport report_;
  Bytes a_window_, b_window_;
};

}  // namespace

std::string_view difference_name(ValueDifference::What what) {
  switch (what) {
    case ValueDifference::What::only_in_a:
      return "only_in_a";
    case ValueDifference::What::only_in_b:
      return "only_in_b";
    case ValueDifference::What::kind:
      return "kind";
    case ValueDifference::What::dtype:
      return "dtype";
    case ValueDifference::What::shape:
      return "shape";
    case ValueDifference::What::bytes:
      break;
  }
  return "bytes";
}

uint64_t bytes_to_compare(const DiffSide& a, const DiffSide& b) {
  uint64_t bytes = 0;
  auto other = b.values.begin();
  for (const TensorMetadata& value : a.values) {
    while (other != b.values.end() && other->fqn < value.fqn) ++other;
    if (other == b.values.end() || *other != value || value.kind == LayoutEntry::Kind::object) continue;
    bytes += whole(value.shape).elements() * dtype_bits(value.dtype) / 8;
  }
  return bytes;
}

Result<DiffReport> compare_checkpoints(const DiffSide& a, const DiffSide& b, const DiffOptions& options,
                                       std::atomic<uint64_t>* bytes_done) {
  return Comparison(a, b, options, bytes_done).run();
}

}  // namespace shoal::admin
