// Waves of several models in one file, as one model of the whole device would write them.
//
// Verilator shows a model as scope NAME, its ports, and in it the scope of its top module. The file's header, which
// comes first, is rewritten: NAME.MODULE.rest becomes ringloom.NAME.rest, the ports in NAME go, and those of the shell
// that are the device's are shown in ringloom too.

#pragma once

#include "verilated_vcd_c.h"

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

class JoinedFile final : public VerilatedVcdFile {
public:
    ssize_t write(const char* text, ssize_t size) override {
        if (m_started) return VerilatedVcdFile::write(text, size);
        m_header.append(text, size);
        const size_t end = m_header.find("$enddefinitions");
        if (end == std::string::npos) return size;
        m_started = true;
        const std::string all = joined(m_header.substr(0, end)) + m_header.substr(end);
        for (size_t done = 0; done < all.size();) {
            const ssize_t written = VerilatedVcdFile::write(all.data() + done, all.size() - done);
            if (written < 0) return written;
            done += written;
        }
        return size;
    }

private:
    using Path = std::vector<std::string>;

    std::string m_header;
    bool m_started = false;

    static bool outer(const std::string& name) {
        return name == "clk" || name == "rst" || name == "irq" || name.rfind("s_axi", 0) == 0;
    }

    static std::string joined(const std::string& header) {
        std::string before;
        std::vector<std::pair<Path, std::string>> variables{{{"ringloom"}, ""}};
        Path path;
        std::istringstream lines{header};
        for (std::string line; std::getline(lines, line);) {
            std::istringstream words{line};
            std::string word, kind, name;
            words >> word;
            if (word == "$scope") {
                words >> kind >> name;
                path.push_back(name);
            } else if (word == "$upscope") {
                path.pop_back();
            } else if (word != "$var") {
                if (!line.empty()) before += line + "\n";
            } else if (path.size() > 1) {
                Path place{"ringloom", path[0]};
                place.insert(place.end(), path.begin() + 2, path.end());
                std::string bits, code;
                words >> kind >> bits >> code >> name;
                if (path.size() == 2 && path[0] == "shell" && outer(name)) variables[0].second += line + "\n";
                if (variables.back().first != place) variables.emplace_back(place, "");
                variables.back().second += line + "\n";
            }
        }
        Path open;
        for (const auto& [place, text] : variables) {
            size_t common = 0;
            while (common < open.size() && common < place.size() && open[common] == place[common]) ++common;
            for (; open.size() > common; open.pop_back()) before += "$upscope $end\n";
            for (; open.size() < place.size(); open.push_back(place[open.size()]))
                before += "$scope module " + place[open.size()] + " $end\n";
            before += text;
        }
        for (size_t left = open.size(); left; --left) before += "$upscope $end\n";
        return before;
    }
};

}  // namespace
