// An exception that main catches: a stack is empty because one number too many was taken from it.
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

static std::vector<int> numbers;

static int take() {
    if (numbers.empty()) throw std::runtime_error("nothing left");
    int last = numbers.back();
    numbers.pop_back();
    return last;
}

static void negate() {
    take();
    numbers.push_back(-take()); /* cause 5: the line before is too much */
}

int main(int argc, char **argv) {
    try {
        for (int i = 1; i < argc; i++) {
            std::string word = argv[i];
            if (word == "neg")
                negate();
            else
                numbers.push_back(std::stoi(word));
        }
        std::cout << take() << "\n";
    } catch (const std::exception &e) {
        std::cerr << "error: " << e.what() << "\n";
        return 1;
    }
    return 0;
}
