#include "model/cuda/cuda_recording.hpp"

#include <utility>

#include "base/cuda/status.hpp"

namespace attune::model::cuda {
namespace {

class CudaRecording final : public Recording {
 public:
  CudaRecording(cudaGraphExec_t graph, const std::int64_t& growths, cudaStream_t stream,
                Status& failure)
      : graph_(graph),
        growths_(growths),
        recorded_at_(growths),
        stream_(stream),
        failure_(failure) {}
  ~CudaRecording() override { (void)cudaGraphExecDestroy(graph_); }
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;

  [[nodiscard]] bool stale() const override { return growths_ != recorded_at_; }
  void replay() override {
    if (failure_.ok())
      failure_ = base::cuda::call_status(cudaGraphLaunch(graph_, stream_), "replaying a graph");
  }

 private:
  cudaGraphExec_t graph_;
  const std::int64_t& growths_;
  std::int64_t recorded_at_;
  cudaStream_t stream_;
  Status& failure_;
};

}  // namespace

Result<std::unique_ptr<Recording>> record_graph(cudaStream_t stream,
                                                const std::function<Status()>& body,
                                                const std::int64_t& growths, Status& failure) {
  using base::cuda::call_status;
  if (Status s =
          call_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
      !s.ok())
    return s;
  Status issued = body();
  if (issued.ok()) issued = std::exchange(failure, Status{});
  cudaGraph_t graph = nullptr;
  // Ends the capture whatever happened in it, so that the stream works again.
  const Status ended = call_status(cudaStreamEndCapture(stream, &graph), "capture");
  failure = {};
  cudaGraphExec_t made = nullptr;
  Status s = !issued.ok() ? issued : ended;
  if (s.ok()) s = call_status(cudaGraphInstantiate(&made, graph, 0), "cudaGraphInstantiate");
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  if (!s.ok()) {
    (void)cudaGetLastError();
    return s;
  }
  return std::unique_ptr<Recording>(
      std::make_unique<CudaRecording>(made, growths, stream, failure));
}

}  // namespace attune::model::cuda
