// The tag of an operation on a completion queue, embedded in the call that started the operation.
#ifndef HOTBED_SERVER_NET_RPC_TAG_H_
#define HOTBED_SERVER_NET_RPC_TAG_H_

namespace hotbed {

// The address of an RpcTag is the tag given to gRPC; it must outlive the operation.
class RpcTag {
 public:
  using Complete = void (*)(void* owner, bool ok);
  RpcTag(void* owner, Complete complete) : owner_(owner), complete_(complete) {}
  void Run(bool ok) { complete_(owner_, ok); }

 private:
  void* owner_;
  Complete complete_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_RPC_TAG_H_
