/* Four sorts and two searches over one array, each result printed: many branches whose direction shows in the output.
 * flags: -O1 -static -nostdlib -ffreestanding -fno-stack-protector -fno-pie -no-pie */
#include "bare.h"

#define N 60
static int data[N], scratch[N];
static unsigned seed = 2463534242u;
static unsigned next(void) {
    seed ^= seed << 13, seed ^= seed >> 17, seed ^= seed << 5;
    return seed;
}
static void refill(void) {
    for (int i = 0; i < N; i++) data[i] = (int)(next() % 1000);
}
__attribute__((noinline)) static void show(const char *name) {
    unsigned sum = 0, wrong = 0;
    for (int i = 0; i < N; i++) {
        sum = sum * 31 + (unsigned)data[i];
        if (i && data[i - 1] > data[i]) wrong++;
    }
    put_text(name);
    put_char(' ');
    put_number(sum, 16);
    put_char(' ');
    put_number(wrong, 10);
    put_char('\n');
}

__attribute__((noinline)) static void insertion(void) {
    for (int i = 1; i < N; i++) {
        int v = data[i], j = i;
        while (j > 0 && data[j - 1] > v) data[j] = data[j - 1], j--;
        data[j] = v;
    }
}
__attribute__((noinline)) static void quick(int lo, int hi) {
    if (lo >= hi) return;
    int pivot = data[(lo + hi) / 2], i = lo, j = hi;
    while (i <= j) {
        while (data[i] < pivot) i++;
        while (data[j] > pivot) j--;
        if (i <= j) {
            int t = data[i];
            data[i] = data[j], data[j] = t;
            i++, j--;
        }
    }
    quick(lo, j), quick(i, hi);
}
__attribute__((noinline)) static void sift(int root, int end) {
    for (int child; (child = 2 * root + 1) < end; root = child) {
        if (child + 1 < end && data[child] < data[child + 1]) child++;
        if (data[root] >= data[child]) return;
        int t = data[root];
        data[root] = data[child], data[child] = t;
    }
}
static void heap(void) {
    for (int i = N / 2; i-- > 0;) sift(i, N);
    for (int end = N; --end > 0;) {
        int t = data[0];
        data[0] = data[end], data[end] = t;
        sift(0, end);
    }
}
__attribute__((noinline)) static void merge(int lo, int hi) {
    if (hi - lo < 2) return;
    int mid = (lo + hi) / 2, i = lo, j = mid, k = lo;
    merge(lo, mid), merge(mid, hi);
    while (k < hi) scratch[k++] = j >= hi || (i < mid && data[i] <= data[j]) ? data[i++] : data[j++];
    for (k = lo; k < hi; k++) data[k] = scratch[k];
}
__attribute__((noinline)) static int search(int v) {
    int lo = 0, hi = N;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (data[mid] < v) lo = mid + 1;
        else hi = mid;
    }
    return lo < N && data[lo] == v ? lo : -1;
}

int run(void) {
    refill(), insertion(), show("insertion");
    refill(), quick(0, N - 1), show("quick");
    refill(), heap(), show("heap");
    refill(), merge(0, N), show("merge");
    int found = 0;
    for (int v = 0; v < 200; v++) found += search(v * 5) >= 0;
    put_number((unsigned)found, 10);
    put_char('\n');
    return found & 0x3f;
}
