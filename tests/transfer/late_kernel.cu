extern "C" __global__ void terrace_test_late_write() {}
