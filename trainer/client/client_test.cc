// SPDX-License-Identifier: Apache-2.0
// A worker's client and one server, without a job around them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "trainer/client/parameter_reader.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/testing/transports.h"

namespace starling::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using transport::testing::Soon;

std::shared_ptr<parameter_server::TableSpec> Table(parameter_server::TableKind kind,
                                                   std::uint64_t rows) {
  auto table = std::make_shared<parameter_server::TableSpec>();
  table->kind = kind;
  table->rows = rows;
  table->rule = optimizer::MakeAdd();
  return table;
}

class ClientTest : public ::testing::Test {
 protected:
  static constexpr int kRounds = 20;

  // Serves these shards while `use` has a pipe that is ready; what the server was sent meanwhile.
  static parameter_server::ServerCounts With(
      const std::vector<parameter_server::ShardOptions>& shards, std::size_t kept_keys,
      const std::function<void(ParameterServerClient& pipe)>& use) {
    transport::testing::Members members(transport::testing::Kind::kInproc, 2);
    const auto meshes = members.OpenAll(1);
    const parameter_server::Ranks ranks = {{"server", 0}, {"worker", 0}};
    parameter_server::ShardView view;
    view.group.epoch = 1;
    view.group.members.push_back(ranks[0]);
    view.clients = {{ranks[1], 1}};
    const std::vector<parameter_server::ShardView> views(shards.size(), view);
    parameter_server::ServerLoop server(ranks[0], shards, {}, kept_keys);
    std::thread serving([&] { (void)server.Serve(views, ranks, *meshes[0]); });
    ParameterServerClient pipe(ranks[1], shards.size(),
                               {absl::InfiniteDuration(), absl::InfiniteDuration()},
                               /*key_cache=*/true);
    bool ready = false;
    pipe.SetHandlers({nullptr, [&](parameter_server::Clock) { ready = true; }, nullptr});
    pipe.Enter(
        {1, 1, std::vector(shards.size(), parameter_server::ClientView::Ends{ranks[0], ranks[0]})},
        ranks, *meshes[1]);
    EXPECT_TRUE(pipe.Await([&] { return ready; }, Soon()).ok());
    use(pipe);
    pipe.Leave();
    for (const auto& mesh : meshes) mesh->Cancel(absl::AbortedError("the view is over"));
    serving.join();
    return server.counts();
  }
  static void Push(ParameterServerClient& pipe, std::size_t shard, int round,
                   const parameter_server::Update& update) {
    parameter_server::Entry entry;
    entry.clock = round;
    entry.lease = static_cast<parameter_server::Lease>(round) + 2;
    entry.update = parameter_server::Encode(update);
    pipe.Push(shard, entry);
    EXPECT_TRUE(pipe.Await([&] { return pipe.unacknowledged(shard) == 0; }, Soon()).ok());
  }
  static void PushRows(ParameterServerClient& pipe, int round, std::span<const std::uint64_t> keys,
                       std::span<const float> values, std::size_t shard = 0) {
    Push(pipe, shard, round, {parameter_server::UpdateKind::kRows, 0, 0, 0, keys, values, {}});
  }

  // Reads five rows and adds one to each, twenty times.
  parameter_server::ServerCounts CountsWith(std::size_t kept_keys) {
    const parameter_server::ShardOptions shard{Table(parameter_server::TableKind::kSparse, 0),
                                               {0, parameter_server::kHashEnd},
                                               consistency::Asynchronous{},
                                               {}};
    return With({shard}, kept_keys, [this](ParameterServerClient& pipe) {
      const std::vector<float> ones(keys_.size(), 1);
      for (int round = 0; round < kRounds; ++round) {
        EXPECT_THAT(Rows(pipe), Each(static_cast<float>(round)));
        PushRows(pipe, round, keys_, ones);
      }
      EXPECT_THAT(Rows(pipe), Each(static_cast<float>(kRounds)));
    });
  }
  std::vector<float> Rows(ParameterServerClient& pipe) {
    std::vector<float> values;
    parameter_server::Read read;
    read.keys = keys_;
    pipe.Read(0, read, [&](const parameter_server::ReadDone& done) {
      values.resize(done.values->size() / sizeof(float));
      std::memcpy(values.data(), done.values->data(), done.values->size());
    });
    EXPECT_TRUE(pipe.Await([&] { return !values.empty(); }, Soon()).ok());
    EXPECT_THAT(values, SizeIs(keys_.size()));
    return values;
  }

  const std::vector<std::uint64_t> keys_ = {3, 9, 27, 81, 243};
};

TEST_F(ClientTest, AServerThatKeepsListsIsToldOnce) {
  const parameter_server::ServerCounts counts = CountsWith(5);
  EXPECT_EQ(counts.pushes, kRounds);
  EXPECT_EQ(counts.reads, kRounds + 1);
}

TEST_F(ClientTest, AListThatAServerDoesNotKeepCostsOneMoreMessageEachTimeAndNothingElse) {
  const parameter_server::ServerCounts counts = CountsWith(4);
  EXPECT_EQ(counts.pushes, 2 * kRounds) << "named, asked for, and listed";
  EXPECT_EQ(counts.reads, 2 * kRounds + 1) << "the first was not named";
}

// What the server refuses it would refuse again, and no answer will ever come.
TEST_F(ClientTest, APushThatIsRefusedAsMalformedEndsEveryWait) {
  const parameter_server::ShardOptions shard{
      Table(parameter_server::TableKind::kDense, 5), {0, 5}, consistency::Asynchronous{}, {}};
  With({shard}, 0, [this](ParameterServerClient& pipe) {
    const std::vector<float> values(keys_.size(), 1);
    parameter_server::Entry entry;
    entry.update = parameter_server::Encode(
        {parameter_server::UpdateKind::kPairs, 0, 0, 0, keys_, values, {}});
    pipe.Push(0, entry);
    for (int time = 0; time < 2; ++time) {
      const absl::Status status = pipe.Await([] { return false; }, Soon());
      EXPECT_TRUE(absl::IsInternal(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("refuses what this worker pushes"));
    }
  });
}

// Tables as the coordinator, servers and workers of a job cut them.
class ParameterReaderTest : public ClientTest {
 protected:
  static parameter_server::JobTables Cut(parameter_server::TableKind kind, std::uint64_t rows,
                                         const std::vector<std::uint64_t>& begins,
                                         std::uint64_t end) {
    parameter_server::JobTables tables;
    const auto table = Table(kind, rows);
    for (std::size_t i = 0; i < begins.size(); ++i) {
      const parameter_server::RowRange range{begins[i],
                                             i + 1 < begins.size() ? begins[i + 1] : end};
      tables.ids.push_back({0, range});
      tables.shards.push_back({table, range, consistency::Asynchronous{}, {}});
    }
    tables.parameter_shards = tables.shards.size();
    return tables;
  }
  static absl::Status ReadAll(ParameterReader& reader, std::span<const std::uint64_t> rows) {
    return reader.Read(0, rows, compression::kIdentity, [] { return true; });
  }

  const clock::SystemClock clock_;
};

TEST_F(ParameterReaderTest, ADenseTablesShardsComeToTheirPlacesInTheBuffer) {
  const auto tables = Cut(parameter_server::TableKind::kDense, 5, {0, 2}, 5);
  With(tables.shards, 0, [&](ParameterServerClient& pipe) {
    const std::vector<float> low = {1, 2}, high = {3, 4, 5};
    Push(pipe, 0, 0, {parameter_server::UpdateKind::kRange, 0, 0, 2, {}, low, {}});
    Push(pipe, 1, 0, {parameter_server::UpdateKind::kRange, 0, 2, 3, {}, high, {}});
    std::vector<float> buffer(5, -1);
    ParameterReader reader(pipe, tables, clock_, buffer, /*sparse=*/false);
    EXPECT_TRUE(ReadAll(reader, {}).ok());
    EXPECT_THAT(buffer, ElementsAre(1, 2, 3, 4, 5));
    EXPECT_EQ(reader.version(0), 1);
    EXPECT_EQ(reader.version(1), 1);
  });
}

TEST_F(ParameterReaderTest, OfASparseTableTheRowsThatAreAskedForComeAndNoOthers) {
  constexpr std::uint64_t kMiddle = parameter_server::kHashEnd / 2;
  const auto tables =
      Cut(parameter_server::TableKind::kSparse, 0, {0, kMiddle}, parameter_server::kHashEnd);
  With(tables.shards, 100, [&](ParameterServerClient& pipe) {
    std::vector<std::vector<std::uint64_t>> of_shard(2);
    for (std::uint64_t row = 0; row < 10; ++row) {
      of_shard[parameter_server::HashOfKey(row) < kMiddle ? 0 : 1].push_back(row);
    }
    for (std::size_t shard = 0; shard < 2; ++shard) {
      std::vector<float> values(of_shard[shard].begin(), of_shard[shard].end());
      PushRows(pipe, 0, of_shard[shard], values, shard);
    }
    std::vector<float> buffer(10, -1);
    ParameterReader reader(pipe, tables, clock_, buffer, /*sparse=*/true);
    const std::vector<std::uint64_t> rows = {2, 3, 7, 9};
    EXPECT_TRUE(ReadAll(reader, rows).ok());
    EXPECT_THAT(buffer, ElementsAre(-1, -1, 2, 3, -1, -1, -1, 7, -1, 9));
    EXPECT_EQ(reader.rows(0).size() + reader.rows(1).size(), rows.size());
  });
}

TEST_F(ParameterReaderTest, AReadThatNoViewCanAnswerIsTheJobsFailure) {
  const auto tables = Cut(parameter_server::TableKind::kDense, 5, {0}, 5);
  With(tables.shards, 0, [&](ParameterServerClient& pipe) {
    std::vector<float> buffer(5);
    ParameterReader reader(pipe, tables, clock_, buffer, /*sparse=*/false);
    constexpr compression::CodecNumber kOfALaterVersion = 99;
    const absl::Status status = reader.Read(0, {}, kOfALaterVersion, [] { return true; });
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("must be of one version"));
  });
}

// Only a restore makes a server forget what a client has read, and that is another view's matter.
TEST_F(ParameterReaderTest, AReadThatARestoreHasMadeVoidEndsTheView) {
  auto tables = Cut(parameter_server::TableKind::kDense, 5, {0}, 5);
  With(tables.shards, 0, [&](ParameterServerClient& pipe) {
    auto remembering = std::make_shared<parameter_server::TableSpec>(*tables.shards[0].table);
    remembering->rule = optimizer::MakeDelayCompensated({});
    tables.shards[0].table = remembering;
    std::vector<float> buffer(5);
    ParameterReader reader(pipe, tables, clock_, buffer, /*sparse=*/false);
    EXPECT_TRUE(absl::IsUnavailable(ReadAll(reader, {})));
  });
}

TEST_F(ParameterReaderTest, AReadThatIsNotWantedAnyMoreIsGivenUp) {
  const auto tables = Cut(parameter_server::TableKind::kDense, 5, {0}, 5);
  With(tables.shards, 0, [&](ParameterServerClient& pipe) {
    std::vector<float> buffer(5);
    ParameterReader reader(pipe, tables, clock_, buffer, /*sparse=*/false);
    EXPECT_TRUE(absl::IsAborted(reader.Read(0, {}, compression::kIdentity, [] { return false; })));
    EXPECT_TRUE(ReadAll(reader, {}).ok()) << "the next one is answered";
  });
}

}  // namespace
}  // namespace starling::client
