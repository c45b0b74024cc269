// Fail-over, moves and drains in a seeded random world: servers that die, fall silent and come
// back, tables that come and go, moves and drains without end, coordinators that restart, rivals
// that take over while the deposed one continues, and a store that fails. After every transaction
// the store is checked; in the end, healed, everything is as wished.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "planner/coordinator/state/record_text.h"
#include "tests/common/test_seed.h"
#include "tests/coordinator/fleet.h"
#include "tests/coordinator/store_invariants.h"

namespace hotbed {
namespace membership_random_test {

constexpr int kServers = 5;
constexpr int kTables = 3;
constexpr int kDrainsMax = 2;  // with three replicas there must be a place

class MembershipWorld {
 public:
  explicit MembershipWorld(uint64_t seed) : random_(seed) {
    for (CoreRig* rig : {&first_, &second_}) {
      rig->after_commit = [this, rig](const Transaction& txn, const TxnResult& result) {
        Committed(*rig, txn, result);
      };
      rig->outcome = [this] { return Outcome(); };
    }
    fleet_.may_fail = true;
    TakeOver(&first_);
    for (int i = 1; i <= kServers; ++i) fleet_.Start(absl::StrCat("s", i));
  }

  void Run(int actions) {
    for (int i = 0; i < actions && !::testing::Test::HasFatalFailure(); ++i) {
      SCOPED_TRACE(absl::StrCat("action ", i));
      Act();
    }
    if (!::testing::Test::HasFatalFailure()) Heal();
  }
  uint64_t epochs() const { return epochs_; }
  uint64_t moves_asked() const { return moves_asked_; }
  uint64_t deposed_tries() const { return deposed_tries_; }

 private:
  CoreRig::Outcome Outcome() {
    if (healed_ || !random_.OneIn(200)) return CoreRig::Outcome::kOk;
    return random_.OneIn(2) ? CoreRig::Outcome::kLost : CoreRig::Outcome::kWrittenButLost;
  }

  void Committed(const CoreRig& rig, const Transaction& txn, const TxnResult& result) {
    if (deposed_.count(rig.token) > 0) {
      ++deposed_tries_;
      ASSERT_FALSE(result.succeeded) << "a write of the deposed " << rig.token << " landed";
    }
    if (!result.succeeded) return;
    for (const Op& op : txn.ops()) {
      if (op.key == keys::kLeaderKey) {
        for (const std::string& token : leaders_) {
          if (token != op.value) deposed_.insert(token);
        }
        leaders_.insert(op.value);
      }
      epochs_ += absl::StartsWith(op.key, keys::kShards);
    }
    invariants_.Check(store_);
  }

  // A coordinator process starts on the store and leads; servers hear of it later.
  void TakeOver(CoreRig* rig) {
    rig->Start();
    rig->Pump();
    leading_ = rig;
  }

  std::string AnyServer() { return absl::StrCat("s", 1 + random_.Uniform(kServers)); }
  ServerId IdOf(const std::string& name) {
    auto it = fleet_.all().find(name);
    return it == fleet_.all().end() ? 0 : it->second.id;
  }

  void Act() {
    switch (random_.Uniform(18)) {
      case 0:
        fleet_.Start(AnyServer());
        fleet_.Start(AnyServer());
        return;
      case 1:
        if (const std::string s = AnyServer(); IdOf(s) != 0) fleet_.Kill(s);
        return;
      case 2:
        if (const std::string s = AnyServer(); IdOf(s) != 0) fleet_.Silence(s);
        return;
      case 3:
        if (const std::string s = AnyServer(); IdOf(s) != 0) fleet_.at(s).state = Fleet::State::kUp;
        return;
      case 4:
        if (const std::string s = AnyServer(); IdOf(s) != 0) {
          fleet_.at(s).stopping = !fleet_.at(s).stopping;
        }
        return;
      case 5:
        return CreateOrDrop();
      case 6:
        if (random_.OneIn(3)) TakeOver(leading_);
        return;
      case 7:
        // A rival, while the servers still speak to the one that it deposes.
        if (random_.OneIn(3)) TakeOver(leading_ == &first_ ? &second_ : &first_);
        return;
      case 8:
        followed_ = leading_;
        fleet_.Follow(followed_);
        return;
      case 9:
        return Drain();
      case 10:
        return Control();
      case 11:
      case 12:
      case 13:
        return Move();
      default:
        fleet_.Run(100 * (1 + random_.Uniform(random_.OneIn(10) ? 50 : 5)));
        if (followed_->core->phase() == Core::Phase::kOvertaken && random_.OneIn(2)) {
          followed_ = leading_;
          fleet_.Follow(followed_);
        }
    }
  }

  void CreateOrDrop() {
    const std::string name = absl::StrCat("t", random_.Uniform(kTables));
    if (random_.OneIn(4)) {
      (void)followed_->Drop(name);
      return;
    }
    v1::CreateTableRequest request = CoreRig::Table(name, 1000);
    request.set_shards(1 + random_.Uniform(6));
    const uint32_t replicas = 1 + random_.Uniform(3);
    if (replicas > 1) {
      request.mutable_spec()->set_durability(v1::DURABILITY_REPLICATED);
      request.mutable_spec()->set_replicas(replicas);
    } else {
      request.mutable_spec()->set_durability(v1::DURABILITY_LOG);
    }
    request.mutable_spec()->set_data_parallel(random_.OneIn(4));
    (void)followed_->Create(request);
  }

  void Move() {
    v1::MoveShardsRequest request;
    for (uint64_t i = 0, n = random_.OneIn(4) ? 3 : 1; i < n; ++i) {
      if (followed_->core->state().shards().empty()) return;
      auto it = followed_->core->state().shards().begin();
      std::advance(it, random_.Uniform(followed_->core->state().shards().size()));
      v1::MoveShardsRequest::Move* move = request.add_moves();
      move->set_shard(it->first);
      move->set_to(IdOf(AnyServer()));
    }
    moves_asked_ += followed_->Call<v1::MoveShardsReply>(request).ok();
  }

  void Drain() {
    v1::DrainServerRequest request;
    request.set_server(AnyServer());
    int draining = 0;
    bool already = false;
    for (const auto& [id, info] : followed_->core->state().servers()) {
      draining += info.draining();
      already |= info.draining() && info.name() == request.server();
    }
    request.set_undo(already && random_.OneIn(2));
    if (!request.undo() && draining >= kDrainsMax) return;
    (void)followed_->Call<v1::DrainServerReply>(request);
  }

  void Control() {
    v1::ControlMovesRequest request;
    request.set_action(random_.OneIn(3)   ? v1::ControlMovesRequest::PAUSE
                       : random_.OneIn(3) ? v1::ControlMovesRequest::ABORT
                                          : v1::ControlMovesRequest::RESUME);
    (void)followed_->Call<v1::ControlMovesReply>(request);
  }

  void Heal() {
    healed_ = true;
    TakeOver(&first_);
    followed_ = leading_;
    fleet_.Follow(followed_);
    fleet_.may_fail = false;
    for (int i = 1; i <= kServers; ++i) fleet_.Start(absl::StrCat("s", i));
    v1::ControlMovesRequest resume;
    resume.set_action(v1::ControlMovesRequest::RESUME);
    ASSERT_TRUE(followed_->Call<v1::ControlMovesReply>(resume).ok());
    fleet_.Run(60000);
    const ClusterState& state = followed_->core->state();
    ASSERT_TRUE(state.goals().empty())
        << state.goals().begin()->second.ShortDebugString() << "\n"
        << RecordText(state.shards().at(state.goals().begin()->first))
        << followed_->core->membership().WaitsFor(state.goals().begin()->first);
    for (const auto& [packed, record] : state.shards()) CheckWished(state, record);
  }

  void CheckWished(const ClusterState& state, const ShardRecord& record) {
    SCOPED_TRACE(absl::StrCat(RecordText(record), " waits for ",
                              followed_->core->membership().WaitsFor(record.shard.packed())));
    const v1::TableSpec& spec = state.tables().at(record.shard.table);
    ASSERT_TRUE(record.active);
    const bool replicated = spec.durability() == v1::DURABILITY_REPLICATED;
    ASSERT_EQ(record.members.size(), replicated ? spec.replicas() : 1);
    size_t able = 0;
    for (const auto& [id, info] : state.servers()) able += !info.draining();
    for (const Member& m : record.members) {
      ASSERT_FALSE(state.servers().at(m.server).draining());
    }
    ASSERT_EQ(record.learners.size(), spec.data_parallel() ? able - record.members.size() : 0);
  }

  Random random_;
  MapMetaStore store_;
  CoreRig first_{&store_, "first "};
  CoreRig second_{&store_, "second "};
  CoreRig* leading_ = &first_;   // started last
  CoreRig* followed_ = &first_;  // the coordinator that servers and people talk to
  Fleet fleet_{&first_};
  StoreInvariants invariants_;
  std::set<std::string> leaders_;
  std::set<std::string> deposed_;
  bool healed_ = false;
  uint64_t epochs_ = 0;
  uint64_t moves_asked_ = 0;
  uint64_t deposed_tries_ = 0;
};

TEST(MembershipRandom, EverythingIsAsWishedAfterHealing) {
  const TestSeed seed(20260205);
  uint64_t epochs = 0;
  uint64_t moves = 0;
  uint64_t deposed = 0;
  for (int world = 0; world < 60; ++world) {
    SCOPED_TRACE(absl::StrCat("world ", world));
    MembershipWorld w(seed.value() * 1000 + world);
    w.Run(150);
    epochs += w.epochs();
    moves += w.moves_asked();
    deposed += w.deposed_tries();
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(epochs, 60 * 50u) << "records written: too few to show anything";
  EXPECT_GT(moves, 60u);
  std::cout << epochs << " records written, " << moves << " requests for moves, " << deposed
            << " tries of deposed coordinators\n";
  EXPECT_GT(deposed, 0u) << "no deposed coordinator tried to write";
}

}  // namespace membership_random_test
}  // namespace hotbed
