/* AVX-512: masked loads and stores of every element width, compress and expand, broadcasts, gathers and scatters.
 * flags: -O1 -mavx512f -mavx512bw -mavx512vl -mavx512dq
 * needs: avx512f avx512bw avx512vl avx512dq */
#include <immintrin.h>
#include <stdio.h>

static unsigned table[512] __attribute__((aligned(64)));
static unsigned char bytes[1024] __attribute__((aligned(64)));
static unsigned long sum = 5381;
static void note(const void *p, unsigned n) {
    for (unsigned i = 0; i < n; i++) sum = sum * 33 + ((const unsigned char *)p)[i];
}
#define NOTE(v) note(&(v), sizeof(v))

__attribute__((noinline)) static void masked(unsigned long m) {
    __m512i a = _mm512_maskz_loadu_epi32((__mmask16)m, table + (m & 31));
    _mm512_mask_storeu_epi32(bytes + 64, (__mmask16)(m >> 3), a);
    __m512i b = _mm512_mask_loadu_epi8(a, m * 0x9e3779b97f4a7c15ul, bytes + (m & 15));
    _mm512_mask_storeu_epi16(bytes + 128, (__mmask32)(m * 77), b);
    __m512i c = _mm512_mask_add_epi64(b, (__mmask8)m, a, _mm512_loadu_si512(table + 5));
    __m512i d = _mm512_mask_add_epi32(c, (__mmask16)m, a, *(__m512i *)(table + 16));
    _mm512_mask_compressstoreu_epi32(bytes + 256, (__mmask16)m, d);
    __m512i e = _mm512_maskz_expandloadu_epi64((__mmask8)(m >> 2), table + 40);
    __m256i f = _mm256_maskz_loadu_epi16((__mmask16)m, bytes + 9);
    _mm512_mask_cvtepi32_storeu_epi8(bytes + 400, (__mmask16)m, d);
    __m512d g = _mm512_mask_broadcastsd_pd(_mm512_castsi512_pd(a), (__mmask8)m, _mm_load_sd((double *)(table + 6)));
    __m128 h = _mm_mask_load_ss(_mm_setzero_ps(), (__mmask8)(m & 1), (float *)(table + 3));
    _mm_mask_store_ss((float *)(bytes + 500), (__mmask8)(m >> 1 & 1), h);
    NOTE(a), NOTE(b), NOTE(c), NOTE(d), NOTE(e), NOTE(f), NOTE(g), NOTE(h);
}

__attribute__((noinline)) static void spread(unsigned long m) {
    __m512i idx = _mm512_and_si512(_mm512_loadu_si512(table + (m & 63)), _mm512_set1_epi32(63));
    __m256i idx8 = _mm512_castsi512_si256(idx);
    __m512i q = _mm512_cvtepu32_epi64(idx8);
    __m512i a = _mm512_mask_i32gather_epi32(idx, (__mmask16)m, idx, table, 4);
    __m512i b = _mm512_mask_i32gather_epi64(idx, (__mmask8)m, idx8, table + 2, 8);
    __m256i c = _mm512_mask_i64gather_epi32(idx8, (__mmask8)~m, q, bytes, 1);
    __m512i d = _mm512_i64gather_epi64(q, table, 4);
    _mm512_mask_i32scatter_epi32(bytes + 512, (__mmask16)m, idx, a, 4);
    _mm512_mask_i64scatter_epi64(bytes + 512, (__mmask8)(m >> 1), q, b, 2);
    _mm256_mask_i32scatter_epi32(bytes + 600, (__mmask8)m, idx8, c, 1);
    NOTE(a), NOTE(b), NOTE(c), NOTE(d);
}

int main(void) {
    for (unsigned i = 0; i < 512; i++) table[i] = i * 2654435761u >> 23, bytes[i] = (unsigned char)(i * 11);
    unsigned long m = 0xfedcba9876543210ul;
    for (int i = 0; i < 10; i++) {
        masked(m), spread(m);
        m = m * 6364136223846793005ul + 1442695040888963407ul;
    }
    masked(0), spread(0), masked(~0ul), spread(~0ul);
    note(bytes, sizeof bytes);
    _mm256_zeroupper();
    printf("%lx\n", sum);
    return 0;
}
