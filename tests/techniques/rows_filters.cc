// SPDX-License-Identifier: Apache-2.0
// Of row PS-1: the filters that stand at both ends of a job's links.
#include <memory>
#include <vector>

#include "tests/techniques/flock.h"
#include "tests/techniques/rows.h"
#include "trainer/parameter_server/filters.h"

namespace starling::techniques {

// The rows of a read, and then of a push of the same: the filters that stand at both ends of a
// job's links.
void NameRows(const Setting& setting, Report& report) {
  parameter_server::RowSender sender({.key_cache = true}, 1);
  parameter_server::RowReceiver receiver;
  std::vector<std::uint64_t> keys(1000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i * 7919 + setting.seed;
  const auto listed = [](const parameter_server::Message& push) {
    const auto update =
        parameter_server::DecodeUpdate(*std::get<parameter_server::Push>(push).entry.update);
    return update.ok() ? std::vector<std::uint64_t>(update->keys.begin(), update->keys.end())
                       : std::vector<std::uint64_t>();
  };
  const auto sent = [&](const parameter_server::Message& message) {
    return sender.Pack(0, {"server", 0}, message).value_or(message);
  };
  parameter_server::Read read;
  read.client = ClientOf(0);
  read.keys = keys;
  (void)receiver.Unpack(sent(read));
  const auto push_of = [&] {
    const std::vector<float> values(keys.size(), 1);
    parameter_server::Push push;
    push.entry.client = ClientOf(0);
    push.entry.update = std::make_shared<const std::string>(
        parameter_server::Encode({parameter_server::UpdateKind::kRows, 0, 0, 0, keys, values, {}}));
    return parameter_server::Message(push);
  };
  const parameter_server::Message named = sent(push_of());
  report.Each("the same 1,000 keys pushed again: keys on the wire",
              static_cast<double>(listed(named).size()), Rule::kEqual, 0);
  const auto unpacked = receiver.Unpack(named);
  const bool known = unpacked.whole && listed(*unpacked.whole) == keys;
  report.Each("of them known to the receiver", known ? 1000 : 0, Rule::kEqual, 1000);
  keys[0] += 1;
  report.Control("one key is another: keys on the wire",
                 static_cast<double>(listed(sent(push_of())).size()), Rule::kEqual, 1000);
}

}  // namespace starling::techniques
