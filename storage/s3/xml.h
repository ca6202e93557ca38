// The XML of an object store's answers: elements and text. Attributes are skipped, and what answers of S3 do
// not contain (document types, other encodings than UTF-8) is rejected.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shoal/status.h"

namespace shoal::storage {

inline constexpr size_t kMaxXmlDepth = 16;

struct XmlElement {
  std::string name;  // without the prefix of its namespace
  std::string text;  // of the element itself, entities resolved
  std::vector<XmlElement> children;

  const XmlElement* child(std::string_view wanted) const;     // the first one; nullptr: none
  const std::string& text_of(std::string_view wanted) const;  // of that child; "": none
};

// Returns the outermost element. Code::corrupt: the text is not such XML.
Result<XmlElement> parse_xml(std::string_view text);

// The text with the five characters that XML reserves replaced.
std::string xml_escape(std::string_view text);

}  // namespace shoal::storage
