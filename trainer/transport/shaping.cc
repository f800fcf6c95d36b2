// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/shaping.h"

#include <cstring>
#include <fstream>
#include <span>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/bytes/bytes.h"

namespace starling::transport {
namespace {

std::string BandwidthText(double bytes_per_second) {
  const double bits = 8 * bytes_per_second;
  if (bits >= 1e9) return absl::StrCat(bits / 1e9, " Gbit/s");
  return absl::StrCat(bits / 1e6, " Mbit/s");
}

// Of its digest.
template <typename Number>
Number FirstBytes(const std::string& text) {
  const bytes::Digest digest = bytes::Sha256Of(std::as_bytes(std::span(text)));
  Number number = 0;
  std::memcpy(&number, digest.data(), sizeof(number));
  return number;
}

bool Names(std::string_view name, std::string_view pod) {
  if (!pod.ends_with(name)) return false;
  pod.remove_suffix(name.size());
  return pod.empty() || pod.back() == '-';
}

}  // namespace

std::string TextOf(const Shaping& shaping) {
  std::vector<std::string> texts;
  if (shaping.bytes_per_second > 0) texts.push_back(BandwidthText(shaping.bytes_per_second));
  if (shaping.delay > absl::ZeroDuration()) {
    texts.push_back(absl::StrCat(absl::ToDoubleMilliseconds(shaping.delay), " ms"));
  }
  if (shaping.pods_per_host > 1) {
    texts.push_back(absl::StrCat(shaping.pods_per_host, " pods on a card"));
  }
  if (!shaping.links.empty()) {
    const bool one = shaping.links.size() == 1;
    texts.push_back(one ? "a link of its own"
                        : absl::StrCat(shaping.links.size(), " links of their own"));
  }
  return absl::StrCat("emulated ", absl::StrJoin(texts, ", "));
}

std::string HostOf(std::string_view pod, int pods_per_host) {
  if (pods_per_host <= 1) return "";
  const std::size_t dash = pod.rfind('-');
  std::uint32_t index = 0;
  if (dash == std::string_view::npos ||
      !absl::SimpleAtoi(std::string(pod.substr(dash + 1)), &index)) {
    return "";
  }
  return absl::StrCat(std::string(pod.substr(0, dash + 1)),
                      index / static_cast<std::uint32_t>(pods_per_host));
}

const LinkShaping* LinkBetween(std::string_view a, std::string_view b, const Shaping& shaping) {
  const auto leads = [](const LinkShaping& link, std::string_view from, std::string_view to) {
    return (link.from.empty() || Names(link.from, from)) && Names(link.to, to);
  };
  for (auto link = shaping.links.rbegin(); link != shaping.links.rend(); ++link) {
    if (leads(*link, a, b) || leads(*link, b, a)) return &*link;
  }
  return nullptr;
}

// Cards, delays and links may differ: they are each member's own.
std::uint64_t NetworkOf(const Shaping& shaping) {
  if (!shaping.enabled()) return 0;
  return FirstBytes<std::uint64_t>(absl::StrCat(shaping.machine, " ", shaping.pods_per_host)) | 1;
}

std::uint32_t ThisMachine() {
  static const std::uint32_t kMachine = [] {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string boot;
    std::getline(file, boot);
    return FirstBytes<std::uint32_t>(boot);
  }();
  return kMachine;
}

}  // namespace starling::transport
