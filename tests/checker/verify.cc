// The end of a kill test: no step is open any more, and every weight is compared.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "tests/checker/check_client.h"

namespace hotbed::checker {
namespace {

constexpr uint64_t kRowsAPull = 4096;
constexpr int kExplainedMax = 10;

class Comparison {
 public:
  Comparison(const Workload& workload, std::vector<uint64_t> last_steps, Client* client,
             const std::function<void(const std::string&)>& report)
      : workload_(workload),
        last_steps_(std::move(last_steps)),
        client_(client),
        report_(report),
        ledger_(&workload, 0, workload.options().clients) {
    for (uint32_t c = 0; c < last_steps_.size(); ++c) {
      for (uint64_t step = 1; step <= last_steps_[c]; ++step) ledger_.Add(c, step);
    }
  }

  // `replicas_only`: tables of one replica are skipped.
  absl::Status Run(bool replicas_only) {
    if (ledger_.Max() >= kExactSumMax) {
      return absl::FailedPreconditionError(
          absl::StrCat("a sum reached ", ledger_.Max(), ", beyond the ", kExactSumMax,
                       " that fp32 holds exactly: use more --rows or fewer --seconds"));
    }
    for (uint32_t t = 0; t < workload_.tables(); ++t) {
      if (replicas_only && workload_.Table(t).replicas < 2) continue;
      HOTBED_RETURN_IF_ERROR(CompareTable(t));
    }
    if (differences_ == 0) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(differences_, " of ", compared_, " cells differ"));
  }
  uint64_t compared() const { return compared_; }

 private:
  absl::Status CompareTable(uint32_t t) {
    const WorkloadOptions& o = workload_.options();
    HOTBED_ASSIGN_OR_RETURN(const Table* table, client_->OpenTable(workload_.Table(t).name));
    std::vector<uint64_t> ids;
    std::vector<float> weights;
    for (uint64_t first = 0; first < o.rows; first += kRowsAPull) {
      ids.clear();
      const uint64_t count = std::min(kRowsAPull, o.rows - first);
      for (uint64_t i = 0; i < count; ++i) ids.push_back(workload_.IdOf(t, first + i));
      weights.assign(count * o.dim, -1.0f);
      PullFeature feature;
      feature.table = table;
      feature.ids = ids;
      feature.rows = weights.data();
      HOTBED_RETURN_IF_ERROR(client_->Pull({&feature, 1}).Wait());
      for (uint64_t i = 0; i < count; ++i) CompareRow(t, first + i, &weights[i * o.dim]);
    }
    return absl::OkStatus();
  }

  void CompareRow(uint32_t t, uint64_t row, const float* weights) {
    const WorkloadOptions& o = workload_.options();
    for (uint32_t c = 0; c < o.clients; ++c) {
      const absl::Span<const int64_t> want = ledger_.Of(t, row, c);
      std::array<int64_t, kColumns> found;
      for (uint32_t k = 0; k < kColumns; ++k)
        found[k] = -static_cast<int64_t>(weights[kColumns * c + k]);
      ++compared_;
      if (std::equal(want.begin(), want.end(), found.begin())) continue;
      if (++differences_ > kExplainedMax) continue;
      std::string why = Explain(workload_, t, row, c, last_steps_[c], want, found);
      report_(absl::StrCat(workload_.Table(t).name, " row ", row, ", client ", c, ": [",
                           absl::StrJoin(found, " "), "], expected [", absl::StrJoin(want, " "),
                           "] ", why.empty() ? "more than one step" : why));
    }
    for (uint32_t k = kColumns * o.clients; k < o.dim; ++k) {
      ++compared_;
      if (weights[k] == 0.0f) continue;
      if (++differences_ <= kExplainedMax) {
        report_(absl::StrCat(workload_.Table(t).name, " row ", row, ": column ", k, " holds ",
                             weights[k], " and nobody writes it"));
      }
    }
  }

  const Workload& workload_;
  const std::vector<uint64_t> last_steps_;  // by client
  Client* client_;
  const std::function<void(const std::string&)>& report_;
  Ledger ledger_;
  uint64_t compared_ = 0;
  uint64_t differences_ = 0;
};

}  // namespace

absl::Status Verify(const std::string& target, const std::string& journal_dir,
                    const Workload& workload,
                    const std::function<void(const std::string&)>& report) {
  std::vector<std::unique_ptr<CheckClient>> clients;
  std::vector<uint64_t> last_steps;
  uint64_t resolved = 0;
  for (uint32_t c = 0; c < workload.options().clients; ++c) {
    CheckClientOptions options;
    options.target = target;
    options.journal_dir = journal_dir;
    options.client = c;
    HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<CheckClient> client,
                            CheckClient::Open(options, &workload));
    resolved += client->journal().open_steps().size();
    HOTBED_RETURN_IF_ERROR(client->Resolve());
    last_steps.push_back(client->journal().last_step());
    clients.push_back(std::move(client));
  }
  const uint64_t steps = std::accumulate(last_steps.begin(), last_steps.end(), uint64_t{0});
  Comparison comparison(workload, std::move(last_steps), clients[0]->client(), report);
  HOTBED_RETURN_IF_ERROR(comparison.Run(/*replicas_only=*/false));
  report(absl::StrCat("exact: ", steps, " steps of ", clients.size(), " clients, ", resolved,
                      " of them open at the end and sent again; ", comparison.compared(),
                      " cells compared"));
  return absl::OkStatus();
}

absl::Status VerifyReplicas(const std::string& target, const std::string& journal_dir,
                            const Workload& workload,
                            const std::function<void(const std::string&)>& report) {
  std::vector<uint64_t> last_steps;
  for (uint32_t c = 0; c < workload.options().clients; ++c) {
    const std::string path = absl::StrCat(journal_dir, "/client-", c, ".journal");
    HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Journal> journal,
                            Journal::Open(path, FileSystem::Real()));
    if (!journal->open_steps().empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": ", journal->open_steps().size(), " steps are open: verify first"));
    }
    last_steps.push_back(journal->last_step());
  }
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(target));
  Comparison comparison(workload, std::move(last_steps), client.get(), report);
  HOTBED_RETURN_IF_ERROR(comparison.Run(/*replicas_only=*/true));
  report(absl::StrCat("exact: ", comparison.compared(), " cells of other replicas compared"));
  return absl::OkStatus();
}

}  // namespace hotbed::checker
