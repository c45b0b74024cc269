#include "planner/coordinator/shell/error_texts.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

class ErrorText : public grpc::experimental::Interceptor {
 public:
  explicit ErrorText(std::string method) : method_(std::move(method)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (batch->QueryInterceptionHookPoint(Point::PRE_SEND_STATUS)) {
      const grpc::Status status = batch->GetSendStatus();
      if (!status.ok() && status.error_message().empty()) batch->ModifySendStatus(Said(status));
    }
    batch->Proceed();
  }

 private:
  grpc::Status Said(const grpc::Status& status) const {
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                          absl::StrCat(method_,
                                       ": the request cannot be read; is it of another "
                                       "version, or damaged?"));
    }
    return grpc::Status(status.error_code(),
                        absl::StrCat(method_, ": the call ended without a reason"));
  }

  const std::string method_;
};

class ErrorTextFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new ErrorText(info->method());
  }
};

}  // namespace

std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> ErrorTexts() {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<ErrorTextFactory>());
  return factories;
}

}  // namespace hotbed
