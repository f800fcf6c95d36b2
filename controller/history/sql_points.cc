// SPDX-License-Identifier: Apache-2.0
#include "controller/history/sql_points.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/json/json.h"
#include "common/status/macros.h"

namespace starling::history {
namespace {

constexpr std::size_t kPiecePoints = 64;
constexpr std::int64_t kMostPieces = kMostPoints / kPiecePoints;

// The last piece of a curve.
struct Tail {
  std::int64_t piece = 0;
  Points points;
  std::int64_t bytes = 0;  // as it is stored
};

// Where one curve is written. Confined to its transaction.
class StoredCurve {
 public:
  StoredCurve(sql::Transaction& transaction, const std::string& uid, const std::string& metric,
              Tail tail)
      : transaction_(transaction), uid_(uid), metric_(metric), tail_(std::move(tail)) {}

  absl::StatusOr<std::int64_t> Append(const Points& points) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      const Point& point = points[i];
      if (!tail_.points.empty() && point.step == tail_.points.back().step) continue;
      const bool goes_on = tail_.points.empty() || point.step > tail_.points.back().step;
      if (!goes_on || tail_.piece >= kMostPieces) {
        RETURN_IF_ERROR(WriteTail());
        RETURN_IF_ERROR(Rewrite({points.begin() + static_cast<std::ptrdiff_t>(i), points.end()}));
        return grown_;
      }
      const Point next = Behind(tail_.points, point);
      if (tail_.points.size() == kPiecePoints) {
        RETURN_IF_ERROR(WriteTail());
        tail_ = {tail_.piece + 1, {}, 0};
      }
      tail_.points.push_back(next);
      written_ = false;
    }
    RETURN_IF_ERROR(WriteTail());
    return grown_;
  }

 private:
  absl::Status WriteTail() {
    if (std::exchange(written_, true) || tail_.points.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::int64_t bytes, Write(tail_.piece, tail_.points));
    grown_ += bytes - tail_.bytes;
    tail_.bytes = bytes;
    return absl::OkStatus();
  }

  absl::StatusOr<std::int64_t> Write(std::int64_t piece, const Points& points) {
    std::string body = json::Dump(ToJson(points));
    const auto bytes = static_cast<std::int64_t>(body.size());
    RETURN_IF_ERROR(transaction_
                        .Run("INSERT INTO history_points(uid, metric, piece, body) "
                             "VALUES($1, $2, $3, $4) ON CONFLICT(uid, metric, piece) "
                             "DO UPDATE SET body = excluded.body",
                             {uid_, metric_, piece, std::move(body)})
                        .status());
    return bytes;
  }

  // All of it: for what is rare, a curve that is full or was set back.
  absl::Status Rewrite(const Points& added) {
    ASSIGN_OR_RETURN(auto all, ReadPoints(transaction_, uid_, metric_));
    Points curve = std::move(all[metric_]);
    for (const Point& point : added) AddPoint(point, curve);
    if (curve.size() >= kMostPoints - kPiecePoints) curve = Thin(curve, kMostPoints / 2);
    ASSIGN_OR_RETURN(const sql::Rows removed,
                     transaction_.Run("DELETE FROM history_points WHERE uid = $1 AND metric = $2 "
                                      "RETURNING length(body)",
                                      {uid_, metric_}));
    for (const sql::Row& row : removed) grown_ -= row.Int(0);
    for (std::size_t begin = 0; begin < curve.size(); begin += kPiecePoints) {
      const auto first = curve.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto size = std::min(kPiecePoints, curve.size() - begin);
      ASSIGN_OR_RETURN(const std::int64_t bytes,
                       Write(static_cast<std::int64_t>(begin / kPiecePoints),
                             {first, first + static_cast<std::ptrdiff_t>(size)}));
      grown_ += bytes;
    }
    return absl::OkStatus();
  }

  sql::Transaction& transaction_;
  const std::string& uid_;
  const std::string& metric_;
  Tail tail_;
  bool written_ = true;
  std::int64_t grown_ = 0;
};

absl::StatusOr<std::map<std::string, Tail>> ReadTails(sql::Transaction& transaction,
                                                      const std::string& uid) {
  ASSIGN_OR_RETURN(const sql::Rows rows,
                   transaction.Run("SELECT metric, piece, body FROM history_points AS p "
                                   "WHERE uid = $1 AND piece = (SELECT max(piece) "
                                   "FROM history_points WHERE uid = p.uid AND metric = p.metric)",
                                   {uid}));
  std::map<std::string, Tail> tails;
  for (const sql::Row& row : rows) {
    const std::string& body = row.Text(2);
    tails[row.Text(0)] = {row.Int(1), PointsFromJson(kube::Json::parse(body, nullptr, false)),
                          static_cast<std::int64_t>(body.size())};
  }
  return tails;
}

}  // namespace

absl::StatusOr<std::int64_t> AppendPoints(sql::Transaction& transaction, const std::string& uid,
                                          const std::map<std::string, Points>& points) {
  if (points.empty()) return 0;
  ASSIGN_OR_RETURN(auto tails, ReadTails(transaction, uid));
  std::int64_t grown = 0;
  for (const auto& [metric, fresh] : points) {
    if (tails.size() >= kMostMetrics && !tails.contains(metric)) continue;
    StoredCurve curve(transaction, uid, metric, tails[metric]);
    ASSIGN_OR_RETURN(const std::int64_t bytes, curve.Append(fresh));
    grown += bytes;
  }
  return grown;
}

absl::StatusOr<std::map<std::string, Points>> ReadPoints(sql::Transaction& transaction,
                                                         const std::string& uid,
                                                         const std::string& metric) {
  ASSIGN_OR_RETURN(const sql::Rows rows,
                   transaction.Run("SELECT metric, body FROM history_points WHERE uid = $1 "
                                   "AND ($2 = '' OR metric = $2) ORDER BY metric, piece",
                                   {uid, metric}));
  std::map<std::string, Points> curves;
  for (const sql::Row& row : rows) {
    Points& curve = curves[row.Text(0)];
    for (const Point& point : PointsFromJson(kube::Json::parse(row.Text(1), nullptr, false))) {
      curve.push_back(point);
    }
  }
  return curves;
}

}  // namespace starling::history
