// What is said of CUDA's errors (base/cuda/status.hpp).
#include "base/cuda/status.hpp"

#include <gmock/gmock.h>

namespace {

using attune::StatusCode;
using attune::base::cuda::call_status;
using attune::base::cuda::status_of;
using testing::HasSubstr;
using testing::Not;

TEST(CudaStatus, NamesTheKernelAndTheDriversText) {
  const attune::Status s = status_of(cudaErrorInvalidValue, "merge_states");
  EXPECT_EQ(s.code(), StatusCode::device_error);
  EXPECT_THAT(s.text(), HasSubstr("merge_states: "));
  EXPECT_THAT(s.text(), HasSubstr(cudaGetErrorName(cudaErrorInvalidValue)));
  EXPECT_THAT(s.text(), Not(HasSubstr("lost")));
}

TEST(CudaStatus, ALostContextIsCalledLost) {
  for (const cudaError_t error :
       {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorLaunchTimeout})
    EXPECT_THAT(call_status(error, "paged_decode").text(), HasSubstr("the CUDA context is lost"));
}

TEST(CudaStatus, MemoryThatDoesNotSufficeHasItsOwnCode) {
  EXPECT_EQ(status_of(cudaErrorMemoryAllocation, "cudaMalloc").code(), StatusCode::out_of_memory);
}

}  // namespace
