// Streams and memory of an engine: the contract, for the CUDA device with the fake driver, and what is CUDA's alone.
#include "tests/transfer/cuda/cuda_fixture.hpp"
#include "tests/transfer/stream_contract.hpp"

namespace terrace::contract {
namespace {

template <CopyMethod method>
class CudaEngine {
 public:
  CudaEngine() : context_{cuda_.driver(), 0} {
    for (StreamHandle& each : streams_) each = make_stream(cuda_.driver());
  }
  ~CudaEngine() {
    device_.reset();
    streams_ = {};
    memory_.clear();
  }
  void open(const EnginePool& pool) {
    const PoolMemory cuda_pool{.slots = engine_slots, .host = &pool.arena, .share = pool.share, .regions = pool.regions};
    CudaOptions options;
    options.only_method = method;
    device_ = std::make_unique<DriverDevice>(cuda_.driver(), std::array{cuda_pool}, options);
  }
  Device& device() { return *device_; }
  StreamRef stream(int number) { return streams_.at(static_cast<std::size_t>(number)).get(); }
  void run(int stream, std::function<void()> work) {
    cuda_.run_on(streams_.at(static_cast<std::size_t>(stream)).get(), std::move(work));
  }
  void synchronize(int stream) { cuda_.synchronize(streams_.at(static_cast<std::size_t>(stream)).get()); }
  std::uint64_t allocate(std::size_t bytes) {
    memory_.push_back(allocate_device(cuda_.driver(), Bytes{bytes}, "a test's regions"));
    return memory_.back().get();
  }
  std::byte* at(std::uint64_t address) { return cuda_.at(address); }

 private:
  test::FakeCuda cuda_;
  PrimaryContext context_;
  std::vector<DeviceMemory> memory_;
  std::array<StreamHandle, 3> streams_;
  std::unique_ptr<DriverDevice> device_;
};

using Engines = testing::Types<CudaEngine<CopyMethod::batch>, CudaEngine<CopyMethod::plain>, CudaEngine<CopyMethod::kernel>>;
INSTANTIATE_TYPED_TEST_SUITE_P(FakeCuda, StreamContract, Engines);

}  // namespace
}  // namespace terrace::contract

namespace terrace::test {
namespace {

using enum Direction;

/// An engine whose first stream is held, so that a copy that is on its stream has not ended.
class CudaAwait : public CudaOnFake {
 protected:
  void start_held() {
    start(Layout::regions);
    cuda_->run_on(engine_.get(), [gate = gate_] { gate.wait(); });
    const Result<Fence> point = device_->signal(engine_.get());
    ASSERT_TRUE(point);
    other_ = make_stream(cuda_->driver());
    submit(1, swap_in, {run(3, 4, 1)}, *point);
  }
  Result<void> await() {
    const std::uint64_t token = 1;
    Result<void> ordered = device_->await(other_.get(), std::span{&token, 1});
    while (!ordered && ordered.error() == Errc::not_ready) ordered = device_->await(other_.get(), std::span{&token, 1});
    return ordered;
  }
  void TearDown() override {
    gate_.open();
    EXPECT_EQ(await_done(under_way_).size(), under_way_);
    other_ = {};
  }
  Gate gate_;
  StreamHandle other_;
  std::size_t under_way_ = 1;
};

TEST_F(CudaAwait, is_refused_for_a_stream_that_is_being_captured) {
  start_held();
  cuda_->set_capturing(other_.get(), true);
  const int waits = cuda_->calls("cuStreamWaitEvent");
  EXPECT_EQ(await().error(), Errc::invalid_argument);
  EXPECT_EQ(device_->await(other_.get(), Fence{1}).error(), Errc::invalid_argument);
  cuda_->set_capturing(other_.get(), false);
  EXPECT_LE(cuda_->calls("cuStreamWaitEvent"), waits + 1) << "only the copy stream's";
  EXPECT_TRUE(await());
}

TEST_F(CudaAwait, says_where_the_driver_fails) {
  start_held();
  ASSERT_TRUE(await());
  cuda_->fail("cuStreamWaitEvent", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(await().error(), Errc::io_failed);
  EXPECT_EQ(device_->facts().first_failure.substr(0, 17), "cuStreamWaitEvent");
  cuda_->fail("cuStreamIsCapturing", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(await().error(), Errc::io_failed);
  cuda_->fail("cuCtxPushCurrent", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(await().error(), Errc::io_failed);
  EXPECT_TRUE(await());
}

TEST_F(CudaAwait, says_that_a_copy_could_not_be_put_on_its_stream) {
  start_held();
  ASSERT_TRUE(await()) << "the first command is on its stream";
  under_way_ = 2;
  cuda_->fail("cuMemcpyHtoDAsync", CUDA_ERROR_UNKNOWN);
  cuda_->fail("memcpy_batch_13000", CUDA_ERROR_UNKNOWN);
  cuda_->fail("cuLaunchKernel", CUDA_ERROR_UNKNOWN);
  submit(2, swap_in, {run(5, 5, 1)});
  const std::uint64_t token = 2;
  Result<void> ordered = device_->await(other_.get(), std::span{&token, 1});
  while (!ordered && ordered.error() == Errc::not_ready) ordered = device_->await(other_.get(), std::span{&token, 1});
  EXPECT_EQ(ordered.error(), Errc::io_failed);
}

TEST_F(CudaAwait, uses_no_more_events_however_often_it_is_called) {
  start_held();
  ASSERT_TRUE(await());
  const int made = cuda_->calls("cuEventCreate");
  for (int i = 0; i < 1'000; ++i) ASSERT_TRUE(await());
  EXPECT_EQ(cuda_->calls("cuEventCreate"), made);
}

}  // namespace
}  // namespace terrace::test
