// ATTUNE_VECTOR_CLONES: a function compiled for wider vectors as well, chosen when the program is
// loaded. Without fused multiply-adds: the sums are the same on every machine.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ATTUNE_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ATTUNE_VECTOR_CLONES
#endif
