// Loads, stores and atomics, each access with its checks: inside memory that the device has, at a
// multiple of its size, and in order with those of other lanes.
#include <algorithm>
#include <string>

#include "tests/device/ptx/ptx_lanes.h"

namespace hotbed {
namespace device {
namespace {

enum class Space { kGeneric, kLocal, kParam };

std::string AddressText(uint64_t address, uint32_t bytes) {
  char text[64];
  std::snprintf(text, sizeof(text), "%u bytes at address 0x%llx", bytes,
                static_cast<unsigned long long>(address));
  return text;
}

// Where the bytes are; null after a failure. `defined`: of local memory.
uint8_t* LocalAt(PtxWarp* warp, const PtxInstruction& in, uint32_t lane, uint64_t address,
                 uint32_t bytes, uint8_t** defined) {
  const uint32_t size = warp->kernel->local_bytes;
  if (address > size || size - address < bytes) {
    warp->Fail(in, lane,
               AddressText(address, bytes) + " of local memory, which has " + std::to_string(size));
    return nullptr;
  }
  *defined = warp->local_defined.data() + uint64_t{size} * lane + address;
  return warp->local.data() + uint64_t{size} * lane + address;
}

uint8_t* GlobalAt(PtxWarp* warp, const PtxInstruction& in, uint32_t lane, uint64_t address,
                  uint32_t bytes, Access access) {
  const PtxLaunch& launch = *warp->launch;
  if (!launch.memory->Contains(address, bytes)) {
    warp->Fail(in, lane, AddressText(address, bytes) + ": outside of all device memory");
    return nullptr;
  }
  if (launch.arrays != nullptr && !launch.arrays->Contains(address, bytes)) {
    warp->Fail(in, lane, AddressText(address, bytes) + ": outside of all arrays of the launch");
    return nullptr;
  }
  if (launch.races != nullptr) {
    launch.races->Note(access, address, bytes, {warp->number, lane, in.line, &warp->clocks});
  }
  warp->touched |= 1u << lane;
  warp->addresses[lane] = address;
  return reinterpret_cast<uint8_t*>(address);
}

template <Space kSpace>
uint8_t* Reach(PtxWarp* warp, const PtxInstruction& in, uint32_t lane, uint32_t bytes,
               Access access, uint8_t** defined) {
  *defined = nullptr;
  if (!warp->launch->error.empty()) return nullptr;
  const uint64_t address =
      warp->Lanes<uint64_t>(in.from[0])[lane] + static_cast<uint64_t>(in.offset);
  if (address % bytes != 0) {
    warp->Fail(in, lane, AddressText(address, bytes) + ": misaligned");
    return nullptr;
  }
  if (kSpace == Space::kParam) {
    std::vector<uint8_t>& params = warp->launch->params;
    if (address <= params.size() && params.size() - address >= bytes) return &params[address];
    warp->Fail(in, lane, AddressText(address, bytes) + ": outside of the parameters");
    return nullptr;
  }
  if (kSpace == Space::kLocal) return LocalAt(warp, in, lane, address, bytes, defined);
  if (address >= kLocalWindow) {
    return LocalAt(warp, in, lane, address - kLocalWindow, bytes, defined);
  }
  return GlobalAt(warp, in, lane, address, bytes, access);
}

// With zeros or the sign above, as wide as the register.
template <typename T>
void PutLane(PtxWarp* warp, const PtxOperand& to, uint32_t lane, T value) {
  if (to.kind == 'd') {
    if constexpr (std::is_signed_v<T> && !std::is_floating_point_v<T>) {
      warp->Lanes<uint64_t>(to)[lane] = static_cast<uint64_t>(static_cast<int64_t>(value));
    } else {
      warp->Lanes<uint64_t>(to)[lane] = ToBits<T>(value);
    }
  } else if constexpr (sizeof(T) == 1 && std::is_signed_v<T>) {
    warp->Lanes<uint32_t>(to)[lane] = static_cast<uint32_t>(static_cast<int32_t>(value));
  } else if constexpr (sizeof(T) <= 4) {
    warp->Lanes<uint32_t>(to)[lane] = ToBits<T>(value);
  }
}

template <typename T, Space kSpace>
void Load(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  const uint32_t bytes = sizeof(T) * in.to_count;
  ForLanes(lanes, [&](uint32_t lane) {
    uint8_t* defined = nullptr;
    const uint8_t* const at = Reach<kSpace>(warp, in, lane, bytes, Access::kRead, &defined);
    if (at == nullptr) return;
    for (uint32_t i = 0; i < in.to_count; ++i) {
      T value;
      std::memcpy(&value, at + sizeof(T) * i, sizeof(T));
      PutLane<T>(warp, in.to[i], lane, value);
      if (defined == nullptr) continue;
      const uint8_t* const first = defined + sizeof(T) * i;
      if (std::find(first, first + sizeof(T), 0) == first + sizeof(T)) continue;
      warp->defined[in.to[i].index] &= ~(1u << lane);
    }
  });
}

template <typename T, Space kSpace>
void Store(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  const uint32_t count = in.from_count - 1u;
  const uint32_t bytes = sizeof(T) * count;
  ForLanes(lanes, [&](uint32_t lane) {
    uint8_t* defined = nullptr;
    uint8_t* const at = Reach<kSpace>(warp, in, lane, bytes, Access::kWrite, &defined);
    if (at == nullptr) return;
    for (uint32_t i = 0; i < count; ++i) {
      const PtxOperand& from = in.from[1 + i];
      const uint64_t bits =
          from.kind == 'd' ? warp->Lanes<uint64_t>(from)[lane] : warp->Lanes<uint32_t>(from)[lane];
      std::memcpy(at + sizeof(T) * i, &bits, sizeof(T));
    }
    if (defined != nullptr) std::fill_n(defined, bytes, 1);
  });
}

template <typename T>
struct AtomicAnd {
  static T Do(T old, T a, T) { return old & a; }
};
template <typename T>
struct AtomicOr {
  static T Do(T old, T a, T) { return old | a; }
};
template <typename T>
struct AtomicXor {
  static T Do(T old, T a, T) { return old ^ a; }
};
template <typename T>
struct AtomicAdd {
  static T Do(T old, T a, T) { return old + a; }
};
template <typename T>
struct AtomicMin {
  static T Do(T old, T a, T) { return std::min(old, a); }
};
template <typename T>
struct AtomicMax {
  static T Do(T old, T a, T) { return std::max(old, a); }
};
template <typename T>
struct AtomicExchange {
  static T Do(T, T a, T) { return a; }
};
template <typename T>
struct AtomicCompare {
  static T Do(T old, T a, T b) { return old == a ? b : old; }
};

// Changes nothing, and may name any address.
void Prefetch(PtxWarp*, const PtxInstruction&, uint32_t) {}

// Lane after lane, of values without a sign. kOld: what was there goes into a register.
template <typename T, typename F, bool kOld>
void Atomic(PtxWarp* warp, const PtxInstruction& in, uint32_t lanes) {
  const PtxOperand& last = in.from[in.from_count - 1];
  ForLanes(lanes, [&](uint32_t lane) {
    uint8_t* defined = nullptr;
    uint8_t* const at =
        Reach<Space::kGeneric>(warp, in, lane, sizeof(T), Access::kAtomic, &defined);
    if (at == nullptr) return;
    T old;
    std::memcpy(&old, at, sizeof(T));
    const T made = F::Do(old, warp->Lanes<T>(in.from[1])[lane], warp->Lanes<T>(last)[lane]);
    std::memcpy(at, &made, sizeof(T));
    if (kOld) warp->Lanes<T>(in.to[0])[lane] = old;
  });
}

template <typename T, typename F>
void AddAtomic(const std::string& name, OperationTable* table) {
  const bool is_double = sizeof(T) == 8;
  const bool compares = name.rfind("cas", 0) == 0;
  for (const char* space : {"", "global."}) {
    Operation old = {OperationKind::kMemory, is_double ? "d=md" : "w=mw", &Atomic<T, F, true>};
    if (compares) old.shape = is_double ? "d=mdd" : "w=mww";
    Operation none = {OperationKind::kMemory, is_double ? "md" : "mw", &Atomic<T, F, false>};
    old.bytes = none.bytes = sizeof(T);
    old.is_store = none.is_store = true;
    (*table)["atom." + (space + name)] = old;
    if (!compares) (*table)["red." + (space + name)] = none;
  }
}

template <typename T>
void AddAtomicsOfWidth(const std::string& bits, OperationTable* table) {
  AddAtomic<T, AtomicAnd<T>>("and.b" + bits, table);
  AddAtomic<T, AtomicOr<T>>("or.b" + bits, table);
  AddAtomic<T, AtomicXor<T>>("xor.b" + bits, table);
  AddAtomic<T, AtomicAdd<T>>("add.u" + bits, table);
  AddAtomic<T, AtomicMin<T>>("min.u" + bits, table);
  AddAtomic<T, AtomicMax<T>>("max.u" + bits, table);
  AddAtomic<T, AtomicExchange<T>>("exch.b" + bits, table);
  AddAtomic<T, AtomicCompare<T>>("cas.b" + bits, table);
}

std::string Opcode(const char* what, const std::string& space, const char* vector,
                   const std::string& type) {
  return what + space + vector + type;
}

template <typename T>
void AddAccesses(const std::string& type, OperationTable* table) {
  const auto add = [&](const std::string& space, LaneFunction load, LaneFunction store) {
    for (const char* vector : {"", "v2.", "v4."}) {
      Operation operation = {OperationKind::kMemory, "V=m", load};
      operation.bytes = sizeof(T);
      (*table)[Opcode("ld.", space, vector, type)] = operation;
      if (store == nullptr) continue;
      operation = {OperationKind::kMemory, "mV", store};
      operation.bytes = sizeof(T);
      operation.is_store = true;
      (*table)[Opcode("st.", space, vector, type)] = operation;
    }
  };
  add("", &Load<T, Space::kGeneric>, &Store<T, Space::kGeneric>);
  add("global.nc.", &Load<T, Space::kGeneric>, nullptr);
  for (const char* plain : {"volatile.", "volatile.global."}) {  // which orders nothing here
    add(plain, &Load<T, Space::kGeneric>, &Store<T, Space::kGeneric>);
  }
  for (const char* cached : {"global.", "global.cs."}) {
    add(cached, &Load<T, Space::kGeneric>, &Store<T, Space::kGeneric>);
  }
  add("local.", &Load<T, Space::kLocal>, &Store<T, Space::kLocal>);
  add("param.", &Load<T, Space::kParam>, nullptr);
}

}  // namespace

void AddMemoryOperations(OperationTable* table) {
  for (const char* letter : {"b", "u"}) {
    AddAccesses<uint8_t>(letter + std::string("8"), table);
    AddAccesses<uint16_t>(letter + std::string("16"), table);
    AddAccesses<uint32_t>(letter + std::string("32"), table);
    AddAccesses<uint64_t>(letter + std::string("64"), table);
  }
  AddAccesses<int8_t>("s8", table);
  AddAccesses<int16_t>("s16", table);
  AddAccesses<int32_t>("s32", table);
  AddAccesses<int64_t>("s64", table);
  AddAccesses<uint32_t>("f32", table);
  AddAccesses<uint64_t>("f64", table);
  (*table)["prefetch.global.L2"] = {OperationKind::kPlain, "m", &Prefetch};
  AddAtomicsOfWidth<uint32_t>("32", table);
  AddAtomicsOfWidth<uint64_t>("64", table);
}

}  // namespace device
}  // namespace hotbed
