// Table: columns of text for a terminal or a pipe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace shoal::cli {

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns);
  void add_row(std::vector<std::string> cells);  // as many as there are columns
  // Lines of aligned columns, two spaces apart, without trailing spaces. Widths count code points.
  std::string to_string() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace shoal::cli
