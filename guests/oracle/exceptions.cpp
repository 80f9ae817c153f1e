// C++ exceptions: through frames with destructors, rethrown, by kind, inside constructors and from library code.
// flags: -O1
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

static int alive, order;
struct Guard {
    int id;
    explicit Guard(int i) : id(i) { alive++; }
    ~Guard() { alive--, order = (order * 7 + id) & 0xffff; }
};
struct Halfway {
    Guard first{1}, second;
    explicit Halfway(bool fail) : second(2) {
        if (fail) throw 'c';
    }
};

__attribute__((noinline)) static int thrower(int kind) {
    Guard g(kind);
    switch (kind) {
    case 0: return 5;
    case 1: throw 42;
    case 2: throw std::runtime_error("two");
    case 3: Halfway(true); return 1;
    case 4: return std::vector<int>(3).at(9);
    case 5: try { throw std::out_of_range("five"); } catch (std::exception &) { throw; }
    default: throw std::string("other");
    }
}
__attribute__((noinline)) static int deep(int n, int kind) {
    Guard g(n);
    return n == 0 ? thrower(kind) : deep(n - 1, kind) + 1;
}
struct Shape {
    virtual ~Shape() {}
    virtual int area(int n) const = 0;
};
struct Square : Shape {
    int area(int n) const override { return n * n; }
};
struct Line : Square {
    int area(int n) const override { return n ? Square::area(n) / n : throw n; }
};

int main() {
    for (int kind = 0; kind < 7; kind++) {
        try {
            printf("%d: %d\n", kind, deep(kind, kind));
        } catch (int i) {
            printf("%d: int %d\n", kind, i);
        } catch (char c) {
            printf("%d: char %c\n", kind, c);
        } catch (std::logic_error &) {
            printf("%d: logic\n", kind);
        } catch (std::exception &e) {
            printf("%d: %s\n", kind, e.what());
        } catch (...) {
            printf("%d: unknown\n", kind);
        }
    }
    printf("alive %d order %d\n", alive, order);
    Square s;
    Line l;
    const Shape *shapes[] = {&s, &l};
    int sum = 0;
    for (int i = 0; i < 300; i++) sum += shapes[i % 2]->area(i + 1);
    try { sum += shapes[1]->area(0); } catch (int n) { sum += n + 1; }
    printf("sum %d\n", sum);
    return 3;
}
