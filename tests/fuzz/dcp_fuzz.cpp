// Fuzzes what `shoal import` reads of a DCP folder. Input: a byte that says what follows, then it: 0 a
// pickle, 1 the archive of a tensor, 2 the archive of an object.
#include <vector>

#include "admin/dcp/pickle.h"
#include "admin/dcp/plain_value.h"
#include "admin/dcp/torch_archive.h"
#include "tests/fuzz/fuzz_target.h"

using namespace shoal;

namespace {

constexpr uint32_t kMaxValues = 100'000;
constexpr uint64_t kMaxPlainBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxGatheredBytes = uint64_t{1} << 20;

void read_pickle(ByteView bytes) {
  admin::PickleRules rules;
  rules.where = "input";
  rules.allows = [](std::string_view module, std::string_view) { return module != "os"; };
  rules.has_persistent = true;
  rules.values_max = kMaxValues;
  auto pickle = admin::Pickle::read(bytes, rules);
  if (!pickle.ok()) return;
  SHOAL_CHECK(!pickle->is_named(pickle->root(), "os", "system"));
  if (auto plain = admin::encode_plain(*pickle, pickle->root(), kMaxPlainBytes)) {
    SHOAL_CHECK(plain->size() <= kMaxPlainBytes + bytes.size());
  }
}

// All elements lie in the storage, and in order they are the same bytes as gathered.
void read_tensor(ByteView bytes) {
  auto tensor = admin::read_tensor_archive(bytes, "input");
  if (!tensor.ok() || tensor->bytes() > kMaxGatheredBytes) return;
  std::vector<std::byte> gathered(tensor->bytes());
  tensor->gather(gathered);
  if (const auto in_order = tensor->in_order()) {
    SHOAL_CHECK(std::equal(in_order->begin(), in_order->end(), gathered.begin(), gathered.end()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const ByteView bytes = view_of_input(data, size).subspan(1);
  if (data[0] == 0) read_pickle(bytes);
  if (data[0] == 1) read_tensor(bytes);
  if (data[0] == 2) (void)admin::read_object_archive(bytes, "input", false);
  return 0;
}
