// Measures of the quality of predictions: AUC, log loss, RMSE. Thread-compatible.
#ifndef HOTBED_TRAINER_QUALITY_H_
#define HOTBED_TRAINER_QUALITY_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace hotbed {

// Logits with their labels.
class BinaryScores {
 public:
  void Add(float logit, bool label) {
    scores_.push_back({logit, label});
    positives_ += label;
  }
  uint64_t size() const { return scores_.size(); }

  // Area under the ROC curve: the probability that a positive scores above a negative, with
  // ties counted half (the Mann-Whitney statistic, exact). 0.5 when one class is missing.
  double Auc() const;
  // Mean of log(1 + exp(-logit)) over positives and log(1 + exp(logit)) over negatives, in nats.
  double LogLoss() const;

 private:
  std::vector<std::pair<float, bool>> scores_;
  uint64_t positives_ = 0;
};

struct SquaredErrors {
  double sum = 0;
  uint64_t count = 0;
  void Add(double error) {
    sum += error * error;
    ++count;
  }
  double Rmse() const;  // 0 when empty
};

}  // namespace hotbed

#endif  // HOTBED_TRAINER_QUALITY_H_
