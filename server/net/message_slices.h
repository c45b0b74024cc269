// A received message as proto/wire.h reads it: the slices of its ByteBuffer and a view of each.
// Thread-compatible.
#ifndef HOTBED_SERVER_NET_MESSAGE_SLICES_H_
#define HOTBED_SERVER_NET_MESSAGE_SLICES_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <vector>

#include "proto/wire.h"

namespace hotbed {

struct MessageSlices {
  std::vector<grpc::Slice> slices;  // own the memory
  std::vector<Fragment> fragments;  // point into `slices`
  uint64_t bytes = 0;

  // Takes references to the slices of `message`. A compressed message, which no peer of ours sends,
  // loads as empty.
  void Load(const grpc::ByteBuffer& message) {
    Clear();
    bytes = message.Length();
    if (!message.Dump(&slices).ok()) slices.clear();
    for (const grpc::Slice& slice : slices) fragments.emplace_back(slice.begin(), slice.size());
  }
  // Releases the memory and keeps the vectors' capacity.
  void Clear() {
    slices.clear();
    fragments.clear();
    bytes = 0;
  }
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_MESSAGE_SLICES_H_
