# libattune_cuda.so: every CUDA backend, opened with dlopen by registry/loader.cpp. Absent where there is no nvcc.
