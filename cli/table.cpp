#include "cli/table.h"

#include <algorithm>

#include "shoal/check.h"

namespace shoal::cli {

namespace {

size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  SHOAL_CHECK(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::to_string() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(width_of(column.title));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  auto add_line = [&](auto&& cell) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& text = cell(i);
      std::string space(widths[i] - width_of(text), ' ');
      if (i > 0) line += "  ";
      line += columns_[i].align == Align::right ? space + text : text + space;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) {
    add_line([&](size_t i) -> const std::string& { return row[i]; });
  }
  return out;
}

}  // namespace shoal::cli
