// C++: exceptions through frames with destructors, across threads, in constructors; RTTI; threads and futures.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Counted {
    static inline std::atomic<int> alive{0};
    Counted() { alive++; }
    Counted(const Counted &) { alive++; }
    ~Counted() { alive--; }
};

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
};
struct Square : Shape {
    double side;
    explicit Square(double s) : side(s) {
        if (s < 0) throw std::invalid_argument("negative side");
    }
    double area() const override { return side * side; }
};
struct Circle : virtual Shape {
    double area() const override { return 3; }
};

static int depth(int n) {
    Counted c;
    if (n == 0) throw std::runtime_error("bottom");
    return depth(n - 1) + 1;
}

static thread_local Counted per_thread;
static thread_local int calls = 0;

struct Error : std::exception {
    int code;
    explicit Error(int c) : code(c) {}
    const char *what() const noexcept override { return "custom"; }
};

static long count_throws(int rounds) {
    long caught = 0;
    for (int i = 0; i < rounds; i++) {
        try {
            calls++;
            if (i % 3 == 0) throw Error(i);
            if (i % 3 == 1) throw i;
            (void)std::string("abc").at(static_cast<size_t>(i));
        } catch (const Error &e) {
            caught += e.code;
        } catch (int v) {
            caught += v * 2;
        } catch (const std::out_of_range &) {
            caught += 1;
        }
    }
    return caught;
}

int main(int argc, char **) {
    try {
        depth(200);
    } catch (const std::runtime_error &e) {
        std::printf("caught %s, alive %d\n", e.what(), Counted::alive.load());
    }
    try {
        try {
            std::make_unique<Square>(-1);
        } catch (...) {
            std::throw_with_nested(std::logic_error("outer"));
        }
    } catch (const std::exception &e) {
        std::printf("%s around ", e.what());
        try {
            std::rethrow_if_nested(e);
        } catch (const std::invalid_argument &inner) {
            std::printf("%s\n", inner.what());
        }
    }
    std::vector<std::unique_ptr<Shape>> shapes;
    shapes.push_back(std::make_unique<Square>(2));
    shapes.push_back(std::make_unique<Circle>());
    for (auto &s : shapes) std::printf("%s %.1f\n", dynamic_cast<Square *>(s.get()) ? "square" : "other", s->area());

    std::vector<std::thread> threads;
    std::vector<long> results(4);
    std::exception_ptr from_thread;
    for (size_t i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            (void)per_thread;
            results[i] = count_throws(300 + static_cast<int>(i));
            if (i == 2) {
                try {
                    throw Error(99);
                } catch (...) {
                    from_thread = std::current_exception();
                }
            }
        });
    for (auto &t : threads) t.join();
    for (long r : results) std::printf("thread caught %ld\n", r);
    try {
        std::rethrow_exception(from_thread);
    } catch (const Error &e) {
        std::printf("error %d crossed threads, calls here %d\n", e.code, calls);
    }
    auto future = std::async(std::launch::async, [] { return depth(3); });
    try {
        future.get();
    } catch (const std::exception &e) {
        std::printf("future: %s\n", e.what());
    }
    std::promise<int> promise;
    std::thread setter([&] { promise.set_value(7); });
    std::printf("promise %d\n", promise.get_future().get());
    setter.join();
    std::mutex m;
    std::condition_variable cv;
    int stage = 0;
    std::thread ping([&] {
        std::unique_lock lock(m);
        for (int i = 0; i < 50; i++) {
            cv.wait(lock, [&] { return stage % 2 == 1; });
            stage++;
            cv.notify_one();
        }
    });
    {
        std::unique_lock lock(m);
        for (int i = 0; i < 50; i++) {
            stage++;
            cv.notify_one();
            cv.wait(lock, [&] { return stage % 2 == 0; });
        }
    }
    ping.join();
    std::printf("stages %d\n", stage);
    std::map<std::string, int> words;
    for (auto w : {"one", "two", "three", "two"}) words[w]++;
    for (auto &[w, n] : words) std::cout << w << ' ' << n << '\n';
    std::vector<int> v(10000);
    std::iota(v.begin(), v.end(), 0);
    std::sort(v.begin(), v.end(), [](int a, int b) { return (a * 7919) % 10007 < (b * 7919) % 10007; });
    std::cout << std::accumulate(v.begin(), v.begin() + 100, 0) << std::endl;
    std::set_terminate([] {
        std::puts("terminate");
        std::fflush(stdout);
        std::_Exit(33);
    });
    if (argc > 1) throw Error(1);
    return 0;
}
