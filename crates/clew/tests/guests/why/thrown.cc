// An exception that nobody catches, because a limit is off by one.
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

static int at(const std::vector<int> &list, size_t n) {
    if (n + 1 >= list.size()) throw std::out_of_range("no element " + std::to_string(n)); /* cause 1: n */
    return list[n];
}

int main() {
    std::vector<int> list{5, 6, 7};
    int sum = 0;
    for (size_t n = 0; n < 3; n++) sum += at(list, n);
    std::cout << sum << "\n";
}
