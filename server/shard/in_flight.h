// Counts the operations of a shard that have begun and not ended. The host keeps the shard alive
// until none is left. Thread-safe.
#ifndef HOTBED_SERVER_SHARD_IN_FLIGHT_H_
#define HOTBED_SERVER_SHARD_IN_FLIGHT_H_

#include <atomic>
#include <cstdint>
#include <utility>

namespace hotbed {

class InFlight {
 public:
  // One operation, which ends with its token.
  class Token {
   public:
    Token() = default;
    Token(Token&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    Token& operator=(Token&& other) noexcept {
      if (this == &other) return *this;
      End();
      of_ = std::exchange(other.of_, nullptr);
      return *this;
    }
    ~Token() { End(); }
    void End() {
      if (of_ != nullptr)
        std::exchange(of_, nullptr)->count_.fetch_sub(1, std::memory_order_release);
    }
    // The operation outlives this token; InFlight::Adopt makes the token that ends it. For a
    // completion that has no space for a token.
    void Detach() { of_ = nullptr; }

   private:
    friend class InFlight;
    explicit Token(InFlight* of) : of_(of) {}
    InFlight* of_ = nullptr;
  };

  InFlight() = default;
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  Token Begin() {
    count_.fetch_add(1, std::memory_order_relaxed);
    return Token(this);
  }
  // The token of an operation whose token was detached.
  Token Adopt() { return Token(this); }
  bool none() const { return count_.load(std::memory_order_acquire) == 0; }

 private:
  std::atomic<int64_t> count_{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_IN_FLIGHT_H_
