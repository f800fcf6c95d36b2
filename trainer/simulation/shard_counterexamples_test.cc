// SPDX-License-Identifier: Apache-2.0
// The shortest known histories for rules of replicated shards that need luck to be missed. Each is
// played twice: with all rules nothing is violated, without the one rule something is.
#include <deque>
#include <memory>
#include <set>

#include "gtest/gtest.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/simulation/shard_invariants.h"

namespace starling::simulation {
namespace {

using namespace parameter_server;  // NOLINT(google-build-using-namespace)

const MemberId kA{"a", 0};
const MemberId kB{"b", 0};
const Client kClient{{"worker", 0}, 1};
const Client kOther{{"other", 0}, 1};

// Two real servers of one shard, whose every message the script delivers or withholds.
class Script {
 public:
  explicit Script(const Rules& rules) : invariants_(1) {
    auto table = std::make_shared<TableSpec>();
    table->name = "units";
    table->kind = TableKind::kDense;
    table->rows = 4;
    table->combine = Combine::kSum;
    table->rule = optimizer::MakeAdd();
    for (const MemberId& id : {kA, kB}) {
      servers_[id] = std::make_unique<ChainServer>(
          ChainServer::Options{id, {table, {0, 4}, consistency::Asynchronous{}, rules}, {}});
    }
  }

  // Withholds all that goes to `id` from now on.
  void Cut(const MemberId& id) { cut_.insert(id); }
  void Mend() { cut_.clear(); }

  // Without `copied` nobody's request for a copy arrives.
  void View(ViewNumber number, const std::vector<MemberId>& chain, bool copied = true) {
    copies_ = copied;
    ShardView view;
    view.group.epoch = number;
    view.group.since = past_;
    for (const MemberId& id : chain) view.group.members.push_back(id);
    view.clients = {kClient, kOther};
    for (const MemberId& id : chain) Carry(servers_.at(id)->OnView(view));
    past_.push_back({number, chain});
    Run();
  }
  void Push(ViewNumber view, const MemberId& head, const Client& client, std::size_t unit) {
    const std::vector<float> one = {1};
    Entry entry;
    entry.client = client;
    entry.sequence = 1;
    entry.update = Encode({UpdateKind::kRange, 0, unit, 1, {}, one, {}});
    units_[client] = unit;
    Carry(servers_.at(head)->OnMessage(parameter_server::Push{view, entry}));
    Run();
  }
  void Greet(ViewNumber view, const MemberId& tail, const Client& client) {
    Carry(servers_.at(tail)->OnMessage(Hello{view, client}));
    Run();
  }
  const std::string& violation() const { return invariants_.violation(); }

 private:
  void Carry(const Sends& sends) {
    for (const Send& send : sends) {
      const bool copy = std::holds_alternative<CopyRequest>(send.message);
      if (!cut_.contains(send.to) && (copies_ || !copy)) under_way_.push_back(send);
    }
  }
  void Run() {
    Check();
    while (!under_way_.empty()) {
      const Send send = under_way_.front();
      under_way_.pop_front();
      const auto server = servers_.find(send.to);
      if (server != servers_.end()) {
        Carry(server->second->OnMessage(send.message));
      } else if (const auto* acknowledgement = std::get_if<Acknowledgement>(&send.message)) {
        invariants_.OnAcknowledged(0, acknowledgement->view, units_.at(acknowledgement->client));
      } else if (const auto* welcome = std::get_if<Welcome>(&send.message)) {
        if (welcome->last > 0) {
          invariants_.OnAcknowledged(0, welcome->view, units_.at(welcome->client));
        }
      }
      Check();
    }
  }
  void Check() {
    for (const auto& [id, server] : servers_) {
      const std::optional<StateId> state = server->state_id();
      if (!state) continue;
      if (based_[id] != state->view) {
        based_[id] = state->view;
        invariants_.OnBase(0, state->view, *server->state(), false);
      }
      invariants_.OnState(0, *state, *server->state());
    }
  }

  std::map<MemberId, std::unique_ptr<ChainServer>> servers_;
  std::set<MemberId> cut_;
  bool copies_ = true;
  std::deque<Send> under_way_;
  std::vector<membership::PastView> past_;
  std::map<Client, std::size_t> units_;
  std::map<MemberId, ViewNumber> based_;
  ShardInvariants invariants_;
};

// The head has an entry of its own; the other went on alone and has another of the same index.
std::string EqualIndices(const Rules& rules) {
  Script script(rules);
  script.View(1, {kA, kB});
  script.Cut(kB);
  script.Push(1, kA, kClient, 0);  // reaches the head alone
  script.Mend();
  script.View(2, {kB});
  script.Push(2, kB, kOther, 1);  // acknowledged
  script.View(3, {kA, kB});
  return script.violation();
}

TEST(ShardCounterexample, ViewInStateId) {
  EXPECT_EQ(EqualIndices({}), "");
  Rules rules;
  rules.sync.view_in_state_id = false;
  EXPECT_NE(EqualIndices(rules), "");
}

// The tail of the next view alone has an entry, says so, and dies before the head has copied it.
std::string AnswerBeforeTheCopy(const Rules& rules) {
  Script script(rules);
  script.View(1, {kA, kB});
  script.Cut(kB);
  script.Push(1, kA, kClient, 0);
  script.Mend();
  script.View(2, {kB, kA}, /*copied=*/false);
  script.Greet(2, kA, kClient);
  script.Mend();
  script.View(3, {kB});
  return script.violation();
}

TEST(ShardCounterexample, OpenBeforeAnyReply) {
  EXPECT_EQ(AnswerBeforeTheCopy({}), "");
  Rules rules;
  rules.open = false;
  EXPECT_NE(AnswerBeforeTheCopy(rules), "");
}

}  // namespace
}  // namespace starling::simulation
