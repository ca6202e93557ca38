#include "gpu/dtype_conversion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gpu/kernels/element_conversion.h"
#include "tests/gpu/kernels/kernel_runner.h"

namespace shoal::gpu {
namespace {

// What PyTorch makes of the inputs of every_input(), as hash_of() of all results.
struct Golden {
  DType from;
  DType to;
  uint64_t hash;
};
constexpr Golden kGolden[] = {
#include "tests/gpu/kernels/dtype_golden.inc"
};

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e5m2};

std::string pair_name(DType from, DType to) {
  const auto name = [](DType dtype) {
    switch (dtype) {
      case DType::f32:
        return "f32";
      case DType::f16:
        return "f16";
      case DType::bf16:
        return "bf16";
      case DType::f8_e4m3:
        return "f8_e4m3";
      default:
        return "f8_e5m2";
    }
  };
  return std::string(name(from)) + " to " + name(to);
}

// As make_dtype_golden.py has them.
std::vector<uint32_t> every_input(DType from) {
  std::vector<uint32_t> inputs;
  if (from != DType::f32) {
    inputs.resize(size_t{1} << (8 * element_bytes(from)));
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<uint32_t>(i);
    return inputs;
  }
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    for (uint32_t i = 0; i < 48; ++i) {
      inputs.push_back(upper << 16 | ((i / 3 * 0x1000 + i % 3 + 0xFFFF) & 0xFFFF));
    }
  }
  return inputs;
}

uint64_t hash_of(const std::vector<uint32_t>& values) {
  uint64_t sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    uint64_t mixed = values[i] + (i + 1) * 0x9E3779B97F4A7C15;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
    sum += mixed ^ mixed >> 31;
  }
  return sum;
}

std::vector<std::byte> bytes_of(const std::vector<uint32_t>& elements, DType dtype) {
  const unsigned width = element_bytes(dtype);
  std::vector<std::byte> bytes(elements.size() * width);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(elements[i / width] >> (8 * (i % width)));
  }
  return bytes;
}

std::vector<uint32_t> elements_of(ByteView bytes, DType dtype) {
  const unsigned width = element_bytes(dtype);
  std::vector<uint32_t> elements(bytes.size() / width);
  for (size_t i = 0; i < bytes.size(); ++i) {
    elements[i / width] |= static_cast<uint32_t>(bytes[i]) << (8 * (i % width));
  }
  return elements;
}

std::vector<uint32_t> converted(DType from, const std::vector<uint32_t>& inputs, DType to) {
  const std::vector<std::byte> source = bytes_of(inputs, from);
  std::vector<std::byte> target(inputs.size() * element_bytes(to));
  EXPECT_TRUE(convert_elements(from, source, to, target).ok());
  return elements_of(target, to);
}

// A second definition of the formats, in double precision: sign, exponent and mantissa by ldexp.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  // Of the bits below the sign; those of an infinity mean the value that would come after the largest.
  double value(uint32_t bits) const {
    const int exponent = static_cast<int>(bits >> mantissa_bits);
    const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias() - mantissa_bits);
    return std::ldexp(mantissa + (1u << mantissa_bits), exponent - bias() - mantissa_bits);
  }
  // The bits of infinity, or of the largest value where there is none.
  uint32_t largest() const {
    const uint32_t all = sign_bit() - 1;
    return has_infinity ? all - ((1u << mantissa_bits) - 1) : all - 1;
  }
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {8, 23, true};
    case DType::f16:
      return {5, 10, true};
    case DType::bf16:
      return {8, 7, true};
    case DType::f8_e4m3:
      return {4, 3, false};
    default:
      return {5, 2, true};
  }
}

// The bits of the nearest value, by search.
uint32_t nearest(double value, Format format) {
  uint32_t low = 0;
  uint32_t high = format.largest();
  if (value >= format.value(high)) return high;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (format.value(middle) <= value ? low : high) = middle;
  }
  const double below = value - format.value(low);
  const double above = format.value(high) - value;
  if (below == above) return low % 2 == 0 ? low : high;
  return below < above ? low : high;
}

TEST(ConvertElements, EqualsPyTorchBitForBit) {
  EXPECT_EQ(std::size(kGolden), 20u);
  for (const Golden& golden : kGolden) {
    EXPECT_EQ(hash_of(converted(golden.from, every_input(golden.from), golden.to)), golden.hash)
        << pair_name(golden.from, golden.to);
  }
}

TEST(ConvertElements, GivesTheNearestValueAndOfTwoTheEvenOne) {
  for (DType from : kDTypes) {
    const std::vector<uint32_t> inputs = every_input(from);
    const Format source = format_of(from);
    for (DType to : kDTypes) {
      const Format target = format_of(to);
      const std::vector<uint32_t> found = converted(from, inputs, to);
      const size_t step = from == DType::f32 ? 5 : 1;
      for (size_t i = 0; i < inputs.size(); i += step) {
        const uint32_t bits = inputs[i] & (source.sign_bit() - 1);
        const bool is_infinite = source.has_infinity && bits == source.largest();
        if (bits > source.largest()) continue;  // NaN
        const double value = is_infinite ? std::numeric_limits<double>::infinity() : source.value(bits);
        const uint32_t sign = bits == inputs[i] ? 0 : target.sign_bit();
        ASSERT_EQ(found[i], sign | nearest(value, target))
            << pair_name(from, to) << ", input " << std::hex << inputs[i];
      }
    }
  }
}

TEST(ConvertElements, MakesNaNOfNaNAlone) {
  for (DType from : kDTypes) {
    const std::vector<uint32_t> inputs = every_input(from);
    const Format source = format_of(from);
    for (DType to : kDTypes) {
      const Format target = format_of(to);
      const std::vector<uint32_t> found = converted(from, inputs, to);
      for (size_t i = 0; i < inputs.size(); ++i) {
        ASSERT_EQ((found[i] & (target.sign_bit() - 1)) > target.largest(),
                  (inputs[i] & (source.sign_bit() - 1)) > source.largest())
            << pair_name(from, to) << ", input " << std::hex << inputs[i];
      }
    }
  }
}

TEST(ConvertElements, RejectsOtherDTypesAndSizesThatDoNotMatch) {
  std::vector<std::byte> target(8);
  const std::vector<std::byte> source(8);
  EXPECT_EQ(convert_elements(DType::f64, source, DType::f32, target).code(), Code::invalid_argument);
  EXPECT_EQ(convert_elements(DType::f32, source, DType::i32, target).code(), Code::invalid_argument);
  EXPECT_EQ(convert_elements(DType::f32, source, DType::bf16, target).code(), Code::invalid_argument);
  EXPECT_EQ(convert_elements(DType::f32, ByteView(source).first(7), DType::f32, target).code(),
            Code::invalid_argument);
  EXPECT_TRUE(convert_elements(DType::f32, {}, DType::bf16, {}).ok());
  EXPECT_FALSE(converts_between(DType::u8, DType::f32));
  EXPECT_FALSE(converts_between(DType::f16, DType::f8_e5m2fnuz));
  EXPECT_TRUE(converts_between(DType::f16, DType::f16));
}

class ConversionKernel : public ::testing::TestWithParam<RunsOn> {
 protected:
  void SetUp() override {
    std::string reason;
    runner_ = make_runner(GetParam(), &reason);
    if (runner_ == nullptr) GTEST_SKIP() << reason;
  }

  std::unique_ptr<KernelRunner> runner_;
};

TEST_P(ConversionKernel, EqualsTheHostOnEveryInputOfEveryPair) {
  for (DType from : kDTypes) {
    const std::vector<uint32_t> inputs = every_input(from);
    auto source = runner_->allocate(inputs.size() * element_bytes(from));
    source->write(bytes_of(inputs, from));
    for (DType to : kDTypes) {
      auto target = runner_->allocate(inputs.size() * element_bytes(to));
      std::vector<ConversionPiece> pieces;
      append_conversion({source->address(), target->address(), inputs.size(), from, to}, &pieces);
      runner_->run_conversions(pieces);
      EXPECT_EQ(elements_of(target->read(), to), converted(from, inputs, to)) << pair_name(from, to);
    }
  }
}

// All pairs, several lengths and odd addresses, in one launch.
TEST_P(ConversionKernel, ConvertsManyPiecesAtAnyAddressInOneLaunch) {
  const std::vector<std::byte> bytes = random_bytes(4 << 20, 4);
  auto source = runner_->allocate(bytes.size());
  source->write(bytes);
  std::vector<std::byte> expected(4 << 20, std::byte{0xA5});
  auto target = runner_->allocate(expected.size());
  target->write(expected);
  std::vector<ConversionPiece> pieces;
  size_t from_byte = 0;
  size_t to_byte = 0;
  for (size_t elements : {0, 1, 31, 33, 4095, 4096, 4097, 9000}) {
    for (DType from : kDTypes) {
      for (DType to : kDTypes) {
        const size_t source_bytes = elements * element_bytes(from);
        const size_t target_bytes = elements * element_bytes(to);
        append_conversion({source->address() + from_byte, target->address() + to_byte, elements, from, to},
                          &pieces);
        ASSERT_TRUE(convert_elements(from, ByteView(bytes).subspan(from_byte, source_bytes), to,
                                     MutableByteView(expected).subspan(to_byte, target_bytes))
                        .ok());
        from_byte += source_bytes + 1;
        to_byte += target_bytes + 3;
      }
    }
  }
  runner_->run_conversions(pieces);
  EXPECT_EQ(target->read(), expected);
}

INSTANTIATE_TEST_SUITE_P(On, ConversionKernel, ::testing::Values(RunsOn::emulator, RunsOn::device),
                         [](const auto& where) { return name_of(where.param); });

}  // namespace
}  // namespace shoal::gpu
