// Virtual calls, function objects, small allocations and recursion: the argument is the number of rounds.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct Node {
    virtual ~Node() = default;
    virtual long value(long x) const = 0;
};
struct Constant : Node {
    long v;
    explicit Constant(long v) : v(v) {}
    long value(long) const override { return v; }
};
struct Variable : Node {
    long value(long x) const override { return x; }
};
struct Binary : Node {
    std::unique_ptr<Node> a, b;
    char op;
    Binary(char op, std::unique_ptr<Node> a, std::unique_ptr<Node> b) : a(std::move(a)), b(std::move(b)), op(op) {}
    long value(long x) const override {
        long l = a->value(x), r = b->value(x);
        switch (op) {
        case '+': return l + r;
        case '-': return l - r;
        case '*': return l * r % 1000003;
        default: return l ^ r;
        }
    }
};

static std::unique_ptr<Node> build(int depth, unsigned &state) {
    state = state * 1103515245 + 12345;
    if (depth == 0) {
        if (state >> 16 & 1) return std::make_unique<Variable>();
        return std::make_unique<Constant>(state >> 20);
    }
    char op = "+-*^"[state >> 18 & 3];
    auto a = build(depth - 1, state);
    return std::make_unique<Binary>(op, std::move(a), build(depth - 1, state));
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100, sum = 0;
    std::vector<std::function<long(long)>> functions = {
        [](long x) { return x + 1; }, [](long x) { return x * 3; }, [](long x) { return x ^ 0x55; }, [](long x) { return x >> 1; }};
    std::map<std::string, long> names;
    unsigned state = 1;
    for (long i = 0; i < rounds; i++) {
        auto tree = build(9, state);
        for (long x = 0; x < 12; x++) sum = (sum * 31 + tree->value(x)) % 1000000007;
        for (long x = 0; x < 500; x++) sum += functions[static_cast<size_t>(sum + x) & 3](x);
        names["name" + std::to_string(i % 97)] += sum;
    }
    for (auto &[name, value] : names) sum = (sum * 31 + value) % 1000000007;
    std::printf("%ld\n", sum);
    return 0;
}
