// SPDX-License-Identifier: Apache-2.0
// What servers store: tables, cut into ranges of rows. A ShardStore is one table's rows in one
// range, with the update rule's state beside them and, where the rule asks for it, what each client
// last read.
//
//   dense     `rows` rows of `width` floats, all there from the start
//   sparse    rows of `width` floats named by any 64-bit number; a row comes to life when it is
//             first pushed, and reads as its initial values until then
//   keyValue  texts named by 64-bit numbers; the last put wins
//
// Everything that changes a shard is a pure function of its bytes and of what is applied, so that
// replicas which apply the same sequence hold the same bytes. To add a kind of table: a ShardStore
// here, a case in MakeShard, a row above.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ranges/ranges.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/consistency/clocks.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/parameter_server/update.h"

namespace starling::parameter_server {

using consistency::Client;

enum class TableKind { kDense, kSparse, kKeyValue };
enum class Combine { kMean, kSum };  // of the pushes that become one update

// [begin, end) of a table's rows; of a sparse or key-value table, of its keys' hashes.
using RowRange = ranges::Range<std::uint64_t>;

struct TableSpec {
  std::string name;
  TableKind kind = TableKind::kDense;
  std::uint64_t rows = 0;  // of a dense table
  std::uint32_t width = 1;
  Combine combine = Combine::kMean;
  std::shared_ptr<const optimizer::Optimizer> rule;  // of numbers
  std::function<double(std::int64_t number)> learning_rate = [](std::int64_t) { return 1.0; };
  // Initial values: uniform in [-scale, scale) by (seed, row, column); 0: zeros.
  float initial_scale = 0;
  std::uint64_t seed = 0;
};

// Where a sparse or key-value key lies: its hash, below kHashEnd.
inline constexpr std::uint64_t kHashEnd = std::uint64_t{1} << 63;
std::uint64_t HashOfKey(std::uint64_t key);

// One contribution to an update.
struct Part {
  const Update* update = nullptr;
  double weight = 1;
  const Client* client = nullptr;
};

// The numbers of a shard, for snapshots: views into it, or into `owned`.
struct Tensors {
  std::vector<checkpoint::TensorView> views;
  std::deque<std::vector<std::int64_t>> owned;
  std::deque<std::string> texts;
};

// Thread-compatible.
class ShardStore {
 public:
  virtual ~ShardStore() = default;

  // INVALID_ARGUMENT unless Apply, or Read, can take it. Asked before anything is ordered.
  virtual absl::Status Check(const Update& update) const = 0;
  virtual absl::Status Check(const Selection& selection) const = 0;
  // The parts become one update: by their weighted mean or their sum.
  virtual void Apply(const optimizer::Update& update, std::span<const Part> parts) = 0;
  // The named rows get these values, whatever they were, and what the rule keeps for them starts
  // anew; `first` is the update that comes next. Takes kRange, kRows and kPairs.
  virtual void Assign(const optimizer::Update& first, const Update& values) = 0;
  // The selected rows' values, in order; of key-value tables lengths (u64 each) and texts.
  virtual std::string Read(const Selection& selection) const = 0;

  // What the rule wants to know of this read is kept until the client's next one.
  virtual void Remember(const Client& client, const Selection& selection) = 0;
  // The parameters as they were remembered for the client; NOT_FOUND.
  virtual absl::StatusOr<std::string> ReadRemembered(const Client& client,
                                                     const Selection& selection) const = 0;
  // Forgets the reads of all others.
  virtual void KeepOnly(const std::vector<Client>& clients) = 0;

  virtual void Save(Tensors& tensors) const = 0;
  virtual absl::Status Load(const checkpoint::Decoded& snapshot) = 0;
  // Of parameters and of what the rule keeps beside them.
  virtual std::uint64_t bytes() const = 0;
};

std::unique_ptr<ShardStore> MakeShard(std::shared_ptr<const TableSpec> spec, RowRange range);
std::unique_ptr<ShardStore> MakeDenseShard(std::shared_ptr<const TableSpec> spec, RowRange range);
std::unique_ptr<ShardStore> MakeSparseShard(std::shared_ptr<const TableSpec> spec, RowRange range);
std::unique_ptr<ShardStore> MakeKeyValueShard(std::shared_ptr<const TableSpec> spec,
                                              RowRange range);

// The initial values of one row.
void FillInitial(const TableSpec& spec, std::uint64_t row, std::span<float> values);

}  // namespace starling::parameter_server
