// Goal: the model's value and gradient agree with the formula. Method: the O(fields^2) sum as twin
// for the value, central differences of the loss for the gradient.
#include "trainer/fm_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/random.h"

namespace hotbed {
namespace fm_model_test {

struct Case {
  FmShape shape{.fields = 4, .dim = 6};
  size_t count = 3;
  std::vector<std::vector<float>> rows;
  std::vector<float> labels;

  explicit Case(Loss loss) {
    shape.loss = loss;
    shape.offset = 0.3f;
    Random random(7);
    rows.resize(shape.fields);
    for (auto& column : rows) {
      for (size_t i = 0; i < count * shape.dim; ++i)
        column.push_back(static_cast<float>(random.Double() - 0.5));
    }
    labels = {1.0f, 0.0f, 1.0f};
  }
  std::vector<const float*> pointers() const {
    std::vector<const float*> p;
    for (const auto& column : rows) p.push_back(column.data());
    return p;
  }
};

double NaivePrediction(const Case& c, size_t i, double bias) {
  double y = c.shape.offset + bias;
  const int dim = c.shape.dim;
  for (int f = 0; f < c.shape.fields; ++f) {
    y += c.rows[f][i * dim];
    for (int g = f + 1; g < c.shape.fields; ++g) {
      for (int k = 1; k < dim; ++k) y += double{c.rows[f][i * dim + k]} * c.rows[g][i * dim + k];
    }
  }
  return y;
}

double NaiveLoss(const Case& c, double bias) {
  double loss = 0;
  for (size_t i = 0; i < c.count; ++i) {
    const double y = NaivePrediction(c, i, bias);
    loss += c.shape.loss == Loss::kLogistic ? std::log1p(std::exp(c.labels[i] > 0.5f ? -y : y))
                                            : 0.5 * (y - c.labels[i]) * (y - c.labels[i]);
  }
  return loss;
}

class FmModelTest : public ::testing::TestWithParam<Loss> {};

TEST_P(FmModelTest, PredictionAndGradientMatchTheFormula) {
  Case c(GetParam());
  std::vector<float> predictions(c.count);
  FmPredict(c.shape, c.pointers(), 0.2f, c.count, predictions.data());
  for (size_t i = 0; i < c.count; ++i)
    EXPECT_NEAR(predictions[i], NaivePrediction(c, i, 0.2), 1e-5);

  std::vector<std::vector<float>> gradients(c.shape.fields,
                                            std::vector<float>(c.count * c.shape.dim));
  std::vector<float*> out;
  for (auto& g : gradients) out.push_back(g.data());
  float bias_gradient = 0;
  const double loss = FmGradient(c.shape, c.pointers(), c.labels.data(), predictions.data(),
                                 c.count, out, &bias_gradient);
  EXPECT_NEAR(loss, NaiveLoss(c, 0.2), 1e-5);
  constexpr float kStep = 1e-2f;
  EXPECT_NEAR(bias_gradient, (NaiveLoss(c, 0.2 + kStep) - NaiveLoss(c, 0.2 - kStep)) / (2 * kStep),
              1e-3);
  for (int f = 0; f < c.shape.fields; ++f) {
    for (size_t j = 0; j < gradients[f].size(); ++j) {
      const float saved = c.rows[f][j];
      c.rows[f][j] = saved + kStep;
      const double above = NaiveLoss(c, 0.2);
      c.rows[f][j] = saved - kStep;
      const double below = NaiveLoss(c, 0.2);
      c.rows[f][j] = saved;
      EXPECT_NEAR(gradients[f][j], (above - below) / (2 * kStep), 1e-3)
          << "field " << f << " element " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, FmModelTest, ::testing::Values(Loss::kLogistic, Loss::kSquared));

TEST(FmModelTest, DecayIsAddedOnceAnExample) {
  Case c(Loss::kSquared);
  std::vector<float> predictions(c.count);
  FmPredict(c.shape, c.pointers(), 0, c.count, predictions.data());
  auto gradient = [&](float l2) {
    c.shape.l2 = l2;
    std::vector<std::vector<float>> g(c.shape.fields, std::vector<float>(c.count * c.shape.dim));
    std::vector<float*> out;
    for (auto& column : g) out.push_back(column.data());
    float bias;
    FmGradient(c.shape, c.pointers(), c.labels.data(), predictions.data(), c.count, out, &bias);
    return g;
  };
  const auto plain = gradient(0), decayed = gradient(0.5f);
  for (int f = 0; f < c.shape.fields; ++f) {
    for (size_t j = 0; j < plain[f].size(); ++j) {
      EXPECT_NEAR(decayed[f][j] - plain[f][j], 0.5f * c.rows[f][j], 1e-6);
    }
  }
}

}  // namespace fm_model_test
}  // namespace hotbed
