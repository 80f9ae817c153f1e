/* SSE and AVX2: wide loads and stores, masked moves, gathers of every index and element width, partly off.
 * flags: -O1 -mavx2 -mfma
 * needs: avx2 */
#include <immintrin.h>
#include <stdio.h>
#include <string.h>

static unsigned table[512] __attribute__((aligned(64)));
static unsigned char bytes[512] __attribute__((aligned(64)));
static unsigned long sum = 5381;
static void note(const void *p, unsigned n) {
    for (unsigned i = 0; i < n; i++) sum = sum * 33 + ((const unsigned char *)p)[i];
}
#define NOTE(v) note(&(v), sizeof(v))

__attribute__((noinline)) static void plain(int i) {
    __m256i x = _mm256_loadu_si256((void *)(table + i)), y = _mm256_load_si256((void *)(table + 64));
    x = _mm256_add_epi32(_mm256_mullo_epi32(x, y), _mm256_set1_epi32((int)table[i]));
    _mm256_storeu_si256((void *)(bytes + i), x);
    __m128i z = _mm_loadu_si128((void *)(bytes + i + 3));
    _mm_storel_epi64((void *)(bytes + 200), z);
    _mm_stream_si128((void *)(bytes + 256), z);
    _mm256_stream_si256((void *)(bytes + 288), x);
    __m256d d = _mm256_broadcast_sd((double *)(table + 2 * i));
    __m128 s = _mm_load_ss((float *)(table + i));
    _mm_storeh_pi((__m64 *)(bytes + 320), s);
    _mm256_storeu_pd((double *)(bytes + 328), d);
    *(int *)(bytes + 400) = _mm_extract_epi32(z, 2);
    bytes[404] = (unsigned char)_mm_extract_epi8(z, 5);
    __m128i ins = _mm_insert_epi16(z, *(short *)(bytes + i), 3);
    NOTE(ins);
    __m256i bc = _mm256_broadcastsi128_si256(*(__m128i *)(bytes + 16));
    NOTE(bc);
    NOTE(x);
}

__attribute__((noinline)) static void masked(int i) {
    __m256i m = _mm256_cmpgt_epi32(_mm256_set1_epi32(i * 40), _mm256_load_si256((void *)table));
    __m256i v = _mm256_maskload_epi32((int *)(table + i), m);
    _mm256_maskstore_epi32((int *)(bytes + 64 + i), m, v);
    __m256d d = _mm256_maskload_pd((double *)(table + i), m);
    _mm256_maskstore_pd((double *)(bytes + 100), _mm256_slli_epi64(m, 7), d);
    __m128i m4 = _mm256_castsi256_si128(m);
    __m128 f = _mm_maskload_ps((float *)(table + 2 * i), m4);
    _mm_maskstore_ps((float *)(bytes + 140), m4, f);
    _mm_maskmoveu_si128(_mm256_castsi256_si128(v), _mm256_castsi256_si128(m), (char *)(bytes + 160 + i));
    NOTE(v);
    NOTE(d);
    NOTE(f);
}

__attribute__((noinline)) static void gathers(int i) {
    __m256i idx = _mm256_and_si256(_mm256_loadu_si256((void *)(table + i)), _mm256_set1_epi32(63));
    __m256i all = _mm256_set1_epi32(-1), some = _mm256_cmpgt_epi32(idx, _mm256_set1_epi32(20 + i));
    __m128i idx4 = _mm256_castsi256_si128(idx);
    __m256i a = _mm256_i32gather_epi32((int *)table, idx, 4);
    __m256i b = _mm256_mask_i32gather_epi32(a, (int *)(table + 8), idx, some, 4);
    __m256i c = _mm256_i32gather_epi64((long long *)table, idx4, 8);
    __m256i d = _mm256_mask_i32gather_epi64(c, (long long *)table, idx4, _mm256_cvtepi32_epi64(_mm256_castsi256_si128(some)), 2);
    __m256i q = _mm256_cvtepi32_epi64(idx4);
    __m128i e = _mm256_i64gather_epi32((int *)bytes, q, 1);
    __m256i f = _mm256_mask_i64gather_epi64(all, (long long *)(table + 100), _mm256_sub_epi64(_mm256_setzero_si256(), q),
                                            _mm256_slli_epi64(q, 60), 4);
    __m128i g = _mm_mask_i32gather_epi32(idx4, (int *)table, idx4, _mm256_castsi256_si128(some), 4);
    __m128d h = _mm_i64gather_pd((double *)table, _mm256_castsi256_si128(q), 8);
    __m256 k = _mm256_i32gather_ps((float *)table, idx, 4);
    NOTE(a), NOTE(b), NOTE(c), NOTE(d), NOTE(e), NOTE(f), NOTE(g), NOTE(h), NOTE(k);
}

int main(void) {
    for (unsigned i = 0; i < 512; i++) table[i] = i * 2654435761u >> 23, bytes[i] = (unsigned char)(i * 11);
    for (int i = 0; i < 12; i++) plain(i), masked(i), gathers(i);
    _mm256_zeroupper();
    printf("%lx\n", sum);
    return 0;
}
