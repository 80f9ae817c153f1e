// A key is cut before it is put into a map: the branch that does so is executed for each key, and matters for one.
#include <iostream>
#include <map>
#include <string>
#include <vector>

struct Settings {
    std::map<std::string, std::string> all;

    void read(const std::string &line) {
        auto equals = line.find('=');
        std::string key = line.substr(0, equals);
        if (key.size() > 4) /* cause 1 proved: no key is too long */
            key = key.substr(0, 4);
        all[key] = line.substr(equals + 1);
    }

    int get(const std::string &key) {
        return std::stoi(all.at(key)); /* cause 5 */
    }
};

int main() {
    Settings settings;
    for (std::string line : {"port=80", "width=7", "h=3"}) settings.read(line);
    std::cout << settings.get("port") << "\n";
    std::cout << settings.get("width") * settings.get("h") << "\n";
}
