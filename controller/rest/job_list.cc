// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/job_list.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "controller/kube/objects.h"
#include "controller/rest/summary.h"

namespace starling::service {
namespace {

using kube::Json;

Place PlaceOf(const JobState& state) {
  return {kube::StringAt(state.job(), "/metadata/creationTimestamp"), state.uid()};
}

bool Before(const Place& a, const Place& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

Json PastSummary(const history::ListedJob& job) {
  Json summary = job.summary;
  summary.erase("deleting");
  if (job.gone) summary["deleted"] = kube::FormatTimestamp(*job.gone);
  return summary;
}

std::string Signature(const std::string& text, const std::string& key) {
  return bytes::ToHex(bytes::Hmac(key, text)).substr(0, 32);
}

std::string WritePlace(const Place& place, const std::string& key) {
  const std::string text = absl::StrCat(place.first, "~", place.second);
  return absl::WebSafeBase64Escape(absl::StrCat(Signature(text, key), text));
}

std::optional<Place> OpenPlace(const std::string& token, const std::string& key) {
  std::string text;
  if (!absl::WebSafeBase64Unescape(token, &text) || text.size() < 32) return std::nullopt;
  const std::string body = text.substr(32);
  const std::size_t middle = body.find('~');
  if (Signature(body, key) != text.substr(0, 32) || middle == std::string::npos) {
    return std::nullopt;
  }
  return Place{body.substr(0, middle), body.substr(middle + 1)};
}

}  // namespace

std::variant<std::optional<Place>, rest::Problem> ReadPlace(const std::string& next,
                                                            const std::string& key) {
  if (next.empty()) return std::optional<Place>();
  std::optional<Place> place = OpenPlace(next, key);
  if (place) return place;
  return rest::MakeProblem("Expired", "continue is no place that was given out here");
}

Json ListPage(const std::vector<JobStatePtr>& live, const std::vector<history::ListedJob>& past,
              std::size_t limit, const std::optional<Place>& after, const std::string& key) {
  // Only those on the page are put into words: there may be many thousands beside them.
  struct Entry {
    Place place;
    const JobState* live;
    const history::ListedJob* past;
  };
  std::vector<Entry> ordered;
  std::set<std::string> there;
  for (const JobStatePtr& state : live) {
    there.insert(state->uid());
    Place place = PlaceOf(*state);
    if (!after || Before(*after, place))
      ordered.push_back({std::move(place), state.get(), nullptr});
  }
  for (const history::ListedJob& job : past) {
    if (!there.contains(job.uid)) ordered.push_back({{job.created, job.uid}, nullptr, &job});
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const Entry& a, const Entry& b) { return Before(a.place, b.place); });
  Json page = {{"items", Json::array()}};
  for (std::size_t i = 0; i < ordered.size() && i < limit; ++i) {
    page["items"].push_back(ordered[i].live != nullptr ? SummaryOf(ordered[i].live->job())
                                                       : PastSummary(*ordered[i].past));
  }
  if (ordered.size() > limit) page["continue"] = WritePlace(ordered[limit - 1].place, key);
  return page;
}

}  // namespace starling::service
