// AVX, AVX2 and AVX-512, as far as the CPU has them; the state must survive system calls, signals and threads.
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static uint64_t digest(const void *p, size_t n) {
    uint64_t h = 1469598103934665603ULL;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211ULL;
    return h;
}

static float input[256];
static int indices[256];
static unsigned char bytes[4096];

__attribute__((target("avx2,fma"))) static void avx2(void) {
    float out[64];
    __m256 a = _mm256_loadu_ps(input), b = _mm256_loadu_ps(input + 8);
    _mm256_storeu_ps(out, _mm256_fmadd_ps(a, b, a));
    _mm256_storeu_ps(out + 8, _mm256_permutevar8x32_ps(a, _mm256_loadu_si256((__m256i *)indices)));
    __m256i g = _mm256_i32gather_epi32((const int *)bytes, _mm256_and_si256(_mm256_loadu_si256((__m256i *)indices), _mm256_set1_epi32(511)), 4);
    _mm256_storeu_si256((__m256i *)(out + 16), g);
    __m256i mask = _mm256_setr_epi32(-1, 0, -1, 0, 0, -1, -1, 0);
    memset(out + 24, 0, 32);
    _mm256_maskstore_epi32((int *)out + 24, mask, g);
    _mm256_storeu_si256((__m256i *)(out + 32), _mm256_maskload_epi32((int *)bytes, mask));
    _mm256_storeu_si256((__m256i *)(out + 40), _mm256_sad_epu8(g, _mm256_set1_epi8(3)));
    printf("avx2 %016lx movemask %08x\n", digest(out, 48 * 4), _mm256_movemask_epi8(g));
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))) static void avx512(void) {
    static uint64_t out[64];
    __m512i a = _mm512_loadu_si512(bytes), b = _mm512_loadu_si512(bytes + 100);
    __mmask64 k = _mm512_cmpgt_epi8_mask(a, b);
    _mm512_storeu_si512(out, _mm512_mask_blend_epi8(k, a, b));
    _mm512_storeu_si512(out + 8, _mm512_ternarylogic_epi64(a, b, _mm512_set1_epi64(0x0f0f), 0x96));
    _mm512_mask_compressstoreu_epi32(out + 16, (__mmask16)k, a);
    __m512i index = _mm512_and_si512(_mm512_loadu_si512(indices), _mm512_set1_epi32(255));
    _mm512_storeu_si512(out + 24, _mm512_mask_i32gather_epi32(a, (__mmask16)0x5a5a, index, bytes, 4));
    _mm512_mask_i32scatter_epi32(out + 32, (__mmask16)0x0ff0, _mm512_and_si512(index, _mm512_set1_epi32(15)), b, 4);
    _mm512_mask_storeu_epi8(out + 48, k, a);
    printf("avx512 %016lx mask %016lx\n", digest(out, sizeof out), (uint64_t)k);
}

static volatile int handled;

__attribute__((target("avx2"))) static void clobber(int signo) {
    (void)signo;
    __asm__ volatile("vpcmpeqd %%ymm0, %%ymm0, %%ymm0\nvmovdqa %%ymm0, %%ymm7\nvmovdqa %%ymm0, %%ymm15\nvzeroupper" : : : "xmm0", "xmm7", "xmm15");
    handled++;
}

// Vector registers keep their values over signals and system calls.
__attribute__((target("avx2"))) static void survive(void) {
    struct sigaction sa = {.sa_handler = clobber, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &sa, NULL);
    struct itimerval every = {{0, 500}, {0, 500}}, off = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    int wrong = 0;
    for (int i = 0; handled < 50 || i < 1000; i++) {
        uint64_t got[4], want[4] = {i, i * 3ULL, i * 5ULL, i * 7ULL};
        __m256i v = _mm256_loadu_si256((__m256i *)want);
        __asm__ volatile(
            "vmovdqa %1, %%ymm7\nmovl $2000, %%ecx\n1: decl %%ecx\njnz 1b\nmovl $39, %%eax\nsyscall\nvmovdqu %%ymm7, %0"
            : "=m"(got) : "x"(v) : "rax", "rcx", "r11", "xmm7", "memory");
        wrong += memcmp(got, want, 32) != 0;
    }
    setitimer(ITIMER_REAL, &off, NULL);
    printf("ymm7 changed %d times\n", wrong);
}

__attribute__((target("avx2"))) static void *keep(void *arg) {
    uint64_t want[4] = {(long)arg, (long)arg * 11, (long)arg * 13, (long)arg * 17}, got[4];
    long wrong = 0;
    for (int i = 0; i < 300; i++) {
        __m256i v = _mm256_loadu_si256((__m256i *)want);
        __asm__ volatile("vmovdqa %1, %%ymm9\nmovl $24, %%eax\nsyscall\nvmovdqu %%ymm9, %0"
                         : "=m"(got) : "x"(v) : "rax", "rcx", "r11", "xmm9", "memory");
        wrong += memcmp(got, want, 32) != 0;
    }
    return (void *)wrong;
}

int main(void) {
    for (int i = 0; i < 256; i++) input[i] = i * 0.37f - 20, indices[i] = (i * 37 + 11) & 0x3ff;
    for (int i = 0; i < 4096; i++) bytes[i] = (unsigned char)(i * 31 + (i >> 5));
    printf("cpu: avx2 %d fma %d avx512 %d\n", !!__builtin_cpu_supports("avx2"), !!__builtin_cpu_supports("fma"),
           __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"));
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        avx2();
        survive();
        pthread_t t[3];
        long wrong = 0;
        for (long i = 0; i < 3; i++) pthread_create(&t[i], NULL, keep, (void *)(i + 1));
        for (int i = 0; i < 3; i++) {
            void *r;
            pthread_join(t[i], &r);
            wrong += (long)r;
        }
        printf("threads: %ld wrong\n", wrong);
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        avx512();
    return 0;
}
