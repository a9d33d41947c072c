// CUDA graphs used in the ways in which frameworks use them: graphs USE [LAUNCHES]. Prints what the kernels summed up.
//
//   relaunch     one graph, again and again        instantiate  instantiated, launched and destroyed each time
//   parameters   nodes get new parameters          child        child graphs, one of them exchanged
//   update       the whole is updated              copies       copies and memsets inside, with new addresses
//   recapture    captured again, then updated      memory       memory allocated and freed inside
//   disable      a node is switched off and on     streams      two graphs on two streams
//   upload       uploaded before each launch

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#define CHECK(call)                                                                             \
  do {                                                                                          \
    cudaError_t error_ = (call);                                                                \
    if (error_ != cudaSuccess) {                                                                \
      std::fprintf(stderr, "%s, line %d: %s\n", #call, __LINE__, cudaGetErrorString(error_));   \
      std::exit(9);                                                                             \
    }                                                                                           \
  } while (0)

namespace {

constexpr int kCount = 1 << 16;
constexpr int kNodes = 20;

__global__ void add(float *values, float by, int count) {
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) values[index] += by;
}

float *first, *second, *third;
cudaStream_t stream, other;

// The parameters of a node that adds to `values`; they point into it.
struct Adding {
  float *values;
  float by = 1;
  int count = kCount;
  void *arguments[3] = {&values, &by, &count};
  cudaKernelNodeParams params{};
  explicit Adding(float *to) : values(to) {
    params.func = reinterpret_cast<void *>(add);
    params.gridDim = dim3(kCount / 256);
    params.blockDim = dim3(256);
    params.kernelParams = arguments;
  }
};

struct Graph {
  cudaGraph_t graph;
  cudaGraphExec_t exec = nullptr;
  std::vector<cudaGraphNode_t> nodes;
  explicit Graph(float *values, int count = kNodes) {
    CHECK(cudaGraphCreate(&graph, 0));
    for (int i = 0; i < count; i++) {
      Adding adding(values);
      cudaGraphNode_t node;
      CHECK(cudaGraphAddKernelNode(&node, graph, nodes.empty() ? nullptr : &nodes.back(), nodes.empty() ? 0 : 1, &adding.params));
      nodes.push_back(node);
    }
  }
  Graph &ready() {
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    return *this;
  }
};

cudaGraph_t captured(const std::function<void()> &work) {
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  work();
  CHECK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

void launch(cudaGraphExec_t exec, cudaStream_t where = stream) { CHECK(cudaGraphLaunch(exec, where)); }

using Step = std::function<void(int)>;

Step relaunch() {
  auto *graph = &(new Graph(first))->ready();
  return [=](int) { launch(graph->exec); };
}

Step parameters() {
  auto *graph = &(new Graph(first))->ready();
  return [=](int turn) {
    Adding adding(turn % 2 ? second : first);
    for (cudaGraphNode_t node : graph->nodes) CHECK(cudaGraphExecKernelNodeSetParams(graph->exec, node, &adding.params));
    launch(graph->exec);
  };
}

Step update() {
  auto *graph = &(new Graph(first))->ready();
  auto *changed = new Graph(second);
  return [=](int turn) {
    cudaGraphExecUpdateResultInfo result{};
    CHECK(cudaGraphExecUpdate(graph->exec, turn % 2 ? changed->graph : graph->graph, &result));
    launch(graph->exec);
  };
}

Step recapture() {
  auto *graph = &(new Graph(first, 1))->ready();
  return [=](int turn) {
    float *values = turn % 2 ? second : first;
    cudaGraph_t fresh = captured([=] { add<<<kCount / 256, 256, 0, stream>>>(values, 1, kCount); });
    cudaGraphExecUpdateResultInfo result{};
    CHECK(cudaGraphExecUpdate(graph->exec, fresh, &result));
    CHECK(cudaGraphDestroy(fresh));
    launch(graph->exec);
  };
}

Step instantiate() {
  auto *graph = new Graph(first);
  cudaGraphNode_t copy;
  CHECK(cudaGraphAddMemcpyNode1D(&copy, graph->graph, nullptr, 0, third, second, 4, cudaMemcpyDeviceToDevice));
  return [=](int) {
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph->graph, 0));
    launch(exec);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
  };
}

Step child() {
  auto *inner = new Graph(first, 5), *exchanged = new Graph(second, 5), *outer = new Graph(first, 1);
  cudaGraphNode_t node;
  CHECK(cudaGraphAddChildGraphNode(&node, outer->graph, &outer->nodes.back(), 1, inner->graph));
  outer->ready();
  return [=](int turn) {
    CHECK(cudaGraphExecChildGraphNodeSetParams(outer->exec, node, turn % 2 ? exchanged->graph : inner->graph));
    launch(outer->exec);
  };
}

Step copies() {
  auto *graph = new Graph(first, 1);
  cudaGraphNode_t copy, set;
  CHECK(cudaGraphAddMemcpyNode1D(&copy, graph->graph, &graph->nodes.back(), 1, second, first, kCount * 4, cudaMemcpyDeviceToDevice));
  cudaMemsetParams params{};
  params.dst = third;
  params.elementSize = 4;
  params.width = kCount;
  params.height = 1;
  CHECK(cudaGraphAddMemsetNode(&set, graph->graph, nullptr, 0, &params));
  graph->ready();
  return [=](int turn) mutable {
    float *to = turn % 2 ? second : third;
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(graph->exec, copy, to, first, kCount * 4, cudaMemcpyDeviceToDevice));
    launch(graph->exec);
  };
}

Step memory() {
  cudaGraph_t graph = captured([] {
    float *inside;
    CHECK(cudaMallocAsync(&inside, kCount * 4, stream));
    CHECK(cudaMemsetAsync(inside, 0, kCount * 4, stream));
    add<<<kCount / 256, 256, 0, stream>>>(inside, 1, kCount);
    CHECK(cudaMemcpyAsync(first, inside, kCount * 4, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaFreeAsync(inside, stream));
  });
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  return [=](int) { launch(exec); };
}

Step disable() {
  auto *graph = &(new Graph(first))->ready();
  return [=](int turn) {
    CHECK(cudaGraphNodeSetEnabled(graph->exec, graph->nodes[3], turn % 2));
    launch(graph->exec);
  };
}

Step streams() {
  auto *left = &(new Graph(first))->ready(), *right = &(new Graph(second))->ready();
  return [=](int) {
    launch(left->exec);
    launch(right->exec, other);
  };
}

Step upload() {
  auto *graph = &(new Graph(first))->ready();
  return [=](int) {
    CHECK(cudaGraphUpload(graph->exec, stream));
    launch(graph->exec);
  };
}

const std::map<std::string, Step (*)()> kUses = {
    {"relaunch", relaunch}, {"parameters", parameters}, {"update", update}, {"recapture", recapture},
    {"instantiate", instantiate}, {"child", child}, {"copies", copies}, {"memory", memory},
    {"disable", disable}, {"streams", streams}, {"upload", upload}};

}  // namespace

int main(int count, char **words) {
  auto use = kUses.find(count > 1 ? words[1] : "");
  if (use == kUses.end()) {
    std::fprintf(stderr, "graphs USE [LAUNCHES]; the uses stand at the head of graphs.cu\n");
    return 2;
  }
  int launches = count > 2 ? std::atoi(words[2]) : 4000;
  for (float **values : {&first, &second, &third}) {
    CHECK(cudaMalloc(values, kCount * sizeof(float)));
    CHECK(cudaMemset(*values, 0, kCount * sizeof(float)));
  }
  for (cudaStream_t *made : {&stream, &other}) CHECK(cudaStreamCreateWithFlags(made, cudaStreamNonBlocking));
  Step step = use->second();
  for (int turn = 0; turn < launches; turn++) {
    step(turn);
    if (turn % 20 == 19) CHECK(cudaStreamSynchronize(stream));
  }
  CHECK(cudaDeviceSynchronize());
  float sums[2];
  CHECK(cudaMemcpy(&sums[0], first, sizeof(float), cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(&sums[1], second, sizeof(float), cudaMemcpyDeviceToHost));
  std::printf("result %g %g\n", sums[0], sums[1]);
  return 0;
}
