#include "tests/device/ptx/ptx_warp.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "row_math/position.h"

namespace hotbed {
namespace device {

void PtxMemory::Add(const void* memory, uint64_t bytes) {
  uint64_t& range = ranges_[reinterpret_cast<uintptr_t>(memory)];
  range = std::max(range, bytes);
}

void PtxMemory::Remove(const void* memory) {
  ranges_.erase(reinterpret_cast<uintptr_t>(memory));
  last_bytes_ = 0;
}

bool PtxMemory::Contains(uint64_t address, uint64_t bytes) const {
  if (address - last_begin_ < last_bytes_ && last_bytes_ - (address - last_begin_) >= bytes) {
    return true;
  }
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return false;
  --after;
  last_begin_ = after->first;
  last_bytes_ = after->second;
  return address - last_begin_ < last_bytes_ && last_bytes_ - (address - last_begin_) >= bytes;
}

PtxWarp::PtxWarp(const PtxKernel& of)
    : kernel(&of),
      words(static_cast<uint32_t*>(std::aligned_alloc(64, (4ull * of.words + 127) / 64 * 64)),
            std::free),
      defined(of.registers),
      half_defined(of.registers),
      local(uint64_t{of.local_bytes} * kWarpLanes),
      local_defined(local.size()) {
  std::memset(words.get(), 0, 4ull * of.words);
  for (const PtxConstant& constant : of.constants) {
    if (constant.at.kind == 'p') {
      Mask(constant.at) = static_cast<uint32_t>(constant.bits);
    } else if (constant.at.kind == 'w') {
      std::fill_n(Lanes<uint32_t>(constant.at), kWarpLanes, static_cast<uint32_t>(constant.bits));
    } else {
      std::fill_n(Lanes<uint64_t>(constant.at), kWarpLanes, constant.bits);
    }
  }
}

void PtxWarp::Begin(PtxLaunch* of, uint32_t warp) {
  launch = of;
  number = warp;
  const uint32_t warps_of_block = of->block_threads / kWarpLanes;
  const uint32_t first = warp % warps_of_block * kWarpLanes;
  std::fill(defined.begin(), defined.end(), 0);
  std::fill(half_defined.begin(), half_defined.end(), 0);
  for (const PtxConstant& constant : kernel->constants) defined[constant.at.index] = ~0u;
  const uint32_t values[kSpecials] = {first, of->block_threads, warp / warps_of_block, of->blocks,
                                      0};
  for (uint32_t i = 0; i < kSpecials; ++i) {
    defined[kernel->special[i].index] = ~0u;
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      const uint32_t own = i == kTid || i == kLane ? lane : 0;
      Lanes<uint32_t>(kernel->special[i])[lane] = values[i] + own;
    }
  }
  std::fill(local_defined.begin(), local_defined.end(), 0);
  std::fill_n(pc, kWarpLanes, 0);
  std::fill_n(awaited, kWarpLanes, 0);
  clocks.Reset();
  live = ~0u;
  waiting = 0;
  if (of->profile != nullptr) timing.Begin(kernel->registers);
}

std::string PtxWarp::Hex(uint32_t lanes) const {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08x", lanes);
  return text;
}

void PtxWarp::Fail(const PtxInstruction& at, uint32_t lane, const std::string& what) {
  if (!launch->error.empty()) return;
  const std::string& text = kernel->texts[static_cast<size_t>(&at - kernel->code.data())];
  launch->error = kernel->full_name + ", PTX line " + std::to_string(at.line) + " (" + text +
                  "), warp " + std::to_string(number) + " lane " + std::to_string(lane) + ": " +
                  what;
}

uint64_t PtxWarp::Random() {
  launch->random = Mix64(launch->random + 1);
  return launch->random >> 8;
}

// Lanes at one address: those at the smallest, or, in a random order, often others and not all.
bool PtxWarp::ChooseGroup(Group* group) {
  const uint32_t ready = live & ~waiting;
  if (ready == 0) return false;
  uint32_t place = ~0u;
  for (uint32_t rest = ready; rest != 0; rest &= rest - 1) {
    place = std::min(place, pc[__builtin_ctz(rest)]);
  }
  uint32_t some = ready;
  group->steps = ~0ull;
  if (launch->random != 0) {
    const uint64_t r = Random();
    group->steps = 1 + r % 64;
    if ((r >> 8) % 4 == 0) {
      uint32_t lane = (r >> 16) % kWarpLanes;
      while ((ready >> lane & 1) == 0) lane = (lane + 1) % kWarpLanes;
      place = pc[lane];
      if ((r >> 32) % 2 == 0) some = (static_cast<uint32_t>(Random()) | 1u << lane) & ready;
    }
  }
  group->pc = place;
  group->lanes = 0;
  group->limit = ~0u;
  for (uint32_t rest = ready; rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    if (pc[lane] == place && (some >> lane & 1) != 0) {
      group->lanes |= 1u << lane;
    } else if (launch->random == 0) {
      group->limit = std::min(group->limit, pc[lane]);
    }
  }
  return true;
}

bool PtxWarp::Run(uint64_t steps) {
  const uint64_t end = launch->steps_left > steps ? launch->steps_left - steps : 0;
  while (live != 0 && launch->error.empty() && launch->steps_left > end) {
    Group group;
    if (!ChooseGroup(&group)) {
      FailOfDeadlock();
      break;
    }
    group.steps = std::min(group.steps, launch->steps_left - end);
    RunGroup(&group);
  }
  if (launch->steps_left == 0 && launch->error.empty()) {
    launch->error = kernel->full_name + ": no end in sight; raise the limit of instructions";
  }
  if (live == 0 && launch->profile != nullptr) launch->profile->EndWarp(timing);
  return live != 0 && launch->error.empty();
}

// Until lanes part, wait, reach others or have gone on for long enough.
void PtxWarp::RunGroup(Group* group) {
  uint32_t at = group->pc, lanes = group->lanes;
  while (lanes != 0 && at < group->limit && group->steps > 0 && launch->error.empty()) {
    const PtxInstruction& in = kernel->code[at];
    --group->steps;
    --launch->steps_left;
    const uint32_t exec = in.guarded ? Guarded(in, lanes) : lanes;
    touched = 0;
    switch (in.operation->kind) {
      case OperationKind::kPlain:
      case OperationKind::kMemory:
        if (exec != 0) RunPlain(in, exec);
        ++at;
        break;
      case OperationKind::kBranch:
        if (exec != 0 && exec != lanes) {
          Place(exec, in.target);
          Place(lanes & ~exec, at + 1);
          lanes = 0;  // chosen again
        }
        at = exec != 0 ? in.target : at + 1;
        break;
      case OperationKind::kReturn:
        live &= ~exec;
        lanes &= ~exec;
        ++at;
        break;
      case OperationKind::kSync:
        Arrive(in, at, lanes);
        lanes = 0;
        break;
    }
    if (launch->profile != nullptr) Count(in, exec);
  }
  Place(lanes, at);
}

void PtxWarp::Place(uint32_t lanes, uint32_t at) {
  for (; lanes != 0; lanes &= lanes - 1) pc[__builtin_ctz(lanes)] = at;
}

uint32_t PtxWarp::Guarded(const PtxInstruction& in, uint32_t lanes) {
  const uint32_t unknown = lanes & ~defined[in.guard.index];
  if (unknown != 0) {
    Fail(in, static_cast<uint32_t>(__builtin_ctz(unknown)),
         "goes by a predicate that was never written");
  }
  return lanes & (in.negated ? ~Mask(in.guard) : Mask(in.guard));
}

void PtxWarp::Count(const PtxInstruction& in, uint32_t lanes) {
  const uint32_t values = in.operation->is_store ? in.from_count - 1u : in.to_count;
  const uint32_t width = in.operation->bytes * std::max(1u, values);
  launch->profile->Issue(in, lanes, touched, addresses, width, &timing);
}

// Results of undefined values are undefined; an address or a stored value must not be.
void PtxWarp::RunPlain(const PtxInstruction& in, uint32_t lanes) {
  uint32_t known = lanes;
  uint32_t half = 0;
  if (in.operation->packs && in.from_count == 2) {
    half = lanes & defined[in.from[0].index] & ~defined[in.from[1].index];
  }
  if (in.operation->narrows) {
    known &= defined[in.from[0].index] | half_defined[in.from[0].index];
  } else if (in.operation->selects) {
    const uint32_t first = Mask(in.from[2]);
    known &= defined[in.from[2].index] &
             ((first & defined[in.from[0].index]) | (~first & defined[in.from[1].index]));
  } else {
    for (uint32_t i = 0; i < in.from_count; ++i) known &= defined[in.from[i].index];
  }
  const bool is_memory = in.operation->kind == OperationKind::kMemory;
  if (is_memory && known != lanes) {
    Fail(in, static_cast<uint32_t>(__builtin_ctz(lanes & ~known)),
         "uses a value that was never written");
    return;
  }
  // Before it runs: what comes from local memory may be undefined again.
  for (uint32_t i = 0; i < in.to_count; ++i) {
    uint32_t& to = defined[in.to[i].index];
    to = (to & ~lanes) | known;
    uint32_t& to_half = half_defined[in.to[i].index];
    to_half = (to_half & ~lanes) | half;
  }
  in.operation->run(this, in, lanes);
}

// Lanes wait until all whom they name are at the same place.
void PtxWarp::Arrive(const PtxInstruction& in, uint32_t place, uint32_t lanes) {
  const PtxOperand& mask = in.from[in.from_count - 1];
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    for (uint32_t i = 0; i < in.from_count; ++i) {
      if ((defined[in.from[i].index] >> lane & 1) == 0) {
        return Fail(in, lane, "uses a value that was never written");
      }
    }
    awaited[lane] = Lanes<uint32_t>(mask)[lane];
    pc[lane] = place;
    if ((awaited[lane] >> lane & 1) == 0) {
      return Fail(in, lane, "its mask " + Hex(awaited[lane]) + " does not name it");
    }
  }
  waiting |= lanes;
  for (uint32_t rest = lanes; rest != 0;) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint32_t all = awaited[lane];
    rest &= ~(all & lanes);
    if (!IsComplete(in, place, lane)) continue;
    in.operation->run(this, in, all);
    for (uint32_t i = 0; i < in.to_count; ++i) defined[in.to[i].index] |= all;
    if (in.operation->orders) clocks.Sync(all);
    waiting &= ~all;
    Place(all, place + 1);
  }
}

bool PtxWarp::IsComplete(const PtxInstruction& in, uint32_t place, uint32_t lane) {
  const uint32_t all = awaited[lane];
  for (uint32_t rest = all; rest != 0; rest &= rest - 1) {
    const uint32_t other = static_cast<uint32_t>(__builtin_ctz(rest));
    const std::string name = "lane " + std::to_string(other);
    if ((live >> other & 1) == 0) {
      Fail(in, lane, "waits for " + name + " of its mask " + Hex(all) + ", which has returned");
      return false;
    }
    if ((waiting >> other & 1) == 0) return false;
    if (pc[other] == place && awaited[other] == all) continue;
    if ((awaited[other] >> lane & 1) == 0 && pc[other] != place) return false;
    Fail(in, lane,
         "waits for " + name + " of its mask " + Hex(all) + ", which waits at PTX line " +
             std::to_string(kernel->code[pc[other]].line) + " with mask " + Hex(awaited[other]));
    return false;
  }
  return true;
}

void PtxWarp::FailOfDeadlock() {
  std::string text = "deadlock:";
  for (uint32_t rest = waiting & live; rest != 0;) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    uint32_t alike = 0;
    for (uint32_t other = 0; other < kWarpLanes; ++other) {
      const bool same = pc[other] == pc[lane] && awaited[other] == awaited[lane];
      alike |= uint32_t{same && (rest >> other & 1) != 0} << other;
    }
    rest &= ~alike;
    text += " lanes " + Hex(alike) + " wait at PTX line " +
            std::to_string(kernel->code[pc[lane]].line) + " for lanes " + Hex(awaited[lane]) + ";";
  }
  const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(waiting & live));
  Fail(kernel->code[pc[lane]], lane, text + " returned: " + Hex(~live));
}

}  // namespace device
}  // namespace hotbed
