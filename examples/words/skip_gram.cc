#include "examples/words/skip_gram.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hotbed {
namespace {

uint64_t StreamSeed(uint64_t seed, int epoch, int part) {
  return seed * 1000003 + static_cast<uint64_t>(epoch) * 4099 + static_cast<uint64_t>(part);
}

// -log s(x), without overflow.
double NegativeLogSigmoid(double x) {
  return x > 0 ? std::log1p(std::exp(-x)) : std::log1p(std::exp(x)) - x;
}

}  // namespace

void SkipGramBatch::Clear() {
  centres.clear();
  outputs.clear();
  contexts.clear();
  first.assign(1, 0);
  words_read = 0;
  pairs = 0;
}

WindowStream::WindowStream(const WindowSource* source, int epoch, int part, int parts)
    : source_(source), random_(StreamSeed(source->options.seed, epoch, part)) {
  for (size_t s = part; s < source->corpus->train.size(); s += parts) {
    order_.push_back(static_cast<uint32_t>(s));
  }
  std::shuffle(order_.begin(), order_.end(), random_);
}

bool WindowStream::NextSentence(SkipGramBatch* batch) {
  if (next_sentence_ >= order_.size()) return false;
  const std::vector<uint32_t>& words = source_->corpus->train[order_[next_sentence_++]];
  batch->words_read += words.size();
  sentence_.clear();
  for (const uint32_t word : words) {
    const float keep = source_->keep[word];
    if (keep >= 1.0f || random_.Double() < keep) sentence_.push_back(word);
  }
  next_centre_ = 0;
  return true;
}

void WindowStream::AddCentre(size_t at, SkipGramBatch* batch) {
  const size_t reach = 1 + random_.Uniform(source_->options.window);
  const size_t begin = at > reach ? at - reach : 0;
  const size_t end = std::min(sentence_.size(), at + reach + 1);
  if (end - begin < 2) return;  // alone in its sentence
  batch->centres.push_back(sentence_[at]);
  for (size_t i = begin; i < end; ++i) {
    if (i != at) batch->outputs.push_back(sentence_[i]);
  }
  const auto contexts = static_cast<uint32_t>(end - begin - 1);
  for (int k = 0; k < source_->options.negatives; ++k) {
    batch->outputs.push_back(source_->noise.Draw(&random_));
  }
  batch->contexts.push_back(contexts);
  batch->pairs += contexts;
  batch->first.push_back(static_cast<uint32_t>(batch->outputs.size()));
}

bool WindowStream::Next(size_t centres, SkipGramBatch* batch) {
  batch->Clear();
  while (batch->centres.size() < centres) {
    if (next_centre_ >= sentence_.size()) {
      if (!NextSentence(batch)) break;
    } else {
      AddCentre(next_centre_++, batch);
    }
  }
  return !batch->centres.empty();
}

float Dot(const float* a, const float* b, uint32_t dim) {
  float lanes[8] = {};
  uint32_t d = 0;
  for (; d + 8 <= dim; d += 8) {
    for (uint32_t l = 0; l < 8; ++l) lanes[l] += a[d + l] * b[d + l];
  }
  for (; d < dim; ++d) lanes[0] += a[d] * b[d];
  return std::accumulate(lanes, lanes + 8, 0.0f);
}

void AddScaled(float factor, const float* __restrict from, uint32_t dim, float* __restrict to) {
  uint32_t d = 0;
  for (; d + 8 <= dim; d += 8) {
    for (uint32_t l = 0; l < 8; ++l) to[d + l] += factor * from[d + l];
  }
  for (; d < dim; ++d) to[d] += factor * from[d];
}

double SkipGramGradient(const SkipGramBatch& batch, uint32_t dim, const float* inputs,
                        const float* outputs, float* input_gradients, float* output_gradients) {
  double loss = 0;
  std::fill(input_gradients, input_gradients + batch.centres.size() * dim, 0.0f);
  std::fill(output_gradients, output_gradients + batch.outputs.size() * dim, 0.0f);
  for (size_t c = 0; c < batch.centres.size(); ++c) {
    const float* const input = inputs + c * dim;
    float* const input_gradient = input_gradients + c * dim;
    for (size_t o = batch.first[c]; o < batch.first[c + 1]; ++o) {
      const bool context = o < batch.first[c] + batch.contexts[c];
      const double weight = context ? 1 : batch.contexts[c];
      const double x = Dot(input, outputs + o * dim, dim);
      loss += weight * NegativeLogSigmoid(context ? x : -x);
      // d loss / d x
      const auto slope = static_cast<float>(weight * (1 / (1 + std::exp(-x)) - (context ? 1 : 0)));
      AddScaled(slope, outputs + o * dim, dim, input_gradient);
      AddScaled(slope, input, dim, output_gradients + o * dim);
    }
  }
  return loss;
}

}  // namespace hotbed
