// Calls a function five times, with 1 to 5, and gives the sum of what it returns.
__attribute__((noinline)) int twice(int n) { return n + n; }

int main(void) {
    int sum = 0;
    for (int n = 1; n <= 5; n++) sum += twice(n);
    return sum;
}
