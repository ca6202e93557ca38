#include "storage/s3/xml.h"

#include <charconv>

#include "shoal/bytes.h"

namespace shoal::storage {

namespace {

constexpr std::string_view kXmlSpace = " \t\r\n";

struct XmlEntity {
  std::string_view name;
  char character;
};
constexpr XmlEntity kXmlEntities[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};

Status no_xml(std::string_view what) {
  return Status(Code::corrupt,
                std::string("the store's answer is not the XML that S3 sends: ") + std::string(what));
}

void append_utf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out->push_back(static_cast<char>(kLead[more] | (code >> (6 * more))));
  for (int i = more - 1; i >= 0; --i) out->push_back(static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F)));
}

// `name` is what lies between '&' and ';'.
bool append_entity(std::string_view name, std::string* out) {
  for (const XmlEntity& entity : kXmlEntities) {
    if (entity.name != name) continue;
    out->push_back(entity.character);
    return true;
  }
  if (!name.starts_with('#')) return false;
  const bool is_hex = name.starts_with("#x");
  const std::string_view digits = name.substr(is_hex ? 2 : 1);
  uint32_t code = 0;
  const char* last = digits.data() + digits.size();
  auto [end, error] = std::from_chars(digits.data(), last, code, is_hex ? 16 : 10);
  if (error != std::errc() || end != last || code == 0 || code > 0x10FFFF) return false;
  append_utf8(code, out);
  return true;
}

class XmlParser {
 public:
  explicit XmlParser(std::string_view text) : rest_(text) {}

  Result<XmlElement> parse() {
    skip_space();
    if (rest_.starts_with("<?")) SHOAL_RETURN_IF_ERROR(skip_past("?>"));
    skip_space();
    SHOAL_ASSIGN_OR_RETURN(XmlElement root, element(1));
    skip_space();
    if (!rest_.empty()) return no_xml("text follows the outermost element");
    return root;
  }

 private:
  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kXmlSpace), rest_.size())); }
  Status skip_past(std::string_view end) {
    const size_t at = rest_.find(end);
    if (at == std::string_view::npos) return no_xml("it ends early");
    rest_.remove_prefix(at + end.size());
    return ok_status();
  }

  Result<XmlElement> element(size_t depth) {
    if (depth > kMaxXmlDepth) return no_xml("it is nested too deeply");
    if (!rest_.starts_with('<')) return no_xml("an element is missing");
    const size_t close = rest_.find('>');
    if (close == std::string_view::npos) return no_xml("it ends early");
    std::string_view tag = rest_.substr(1, close - 1);
    rest_.remove_prefix(close + 1);
    const bool is_empty = tag.ends_with('/');
    if (is_empty) tag.remove_suffix(1);
    const std::string_view full_name = tag.substr(0, tag.find_first_of(kXmlSpace));
    if (full_name.empty() || full_name.starts_with('!')) return no_xml("an element has no name");
    XmlElement out;
    const size_t colon = full_name.find(':');
    out.name = full_name.substr(colon == std::string_view::npos ? 0 : colon + 1);
    if (!is_empty) SHOAL_RETURN_IF_ERROR(content(full_name, depth, &out));
    return out;
  }

  Status content(std::string_view full_name, size_t depth, XmlElement* out) {
    for (;;) {
      const size_t at = rest_.find('<');
      if (at == std::string_view::npos) return no_xml("it ends early");
      SHOAL_RETURN_IF_ERROR(append_text(rest_.substr(0, at), &out->text));
      rest_.remove_prefix(at);
      if (rest_.starts_with("<!--")) {
        SHOAL_RETURN_IF_ERROR(skip_past("-->"));
      } else if (rest_.starts_with("</")) {
        if (!rest_.substr(2).starts_with(full_name)) return no_xml("an element is not closed");
        rest_.remove_prefix(2 + full_name.size());
        skip_space();
        if (!rest_.starts_with('>')) return no_xml("an element is not closed");
        rest_.remove_prefix(1);
        return ok_status();
      } else {
        SHOAL_ASSIGN_OR_RETURN(XmlElement inner, element(depth + 1));
        out->children.push_back(std::move(inner));
      }
    }
  }

  static Status append_text(std::string_view text, std::string* out) {
    while (!text.empty()) {
      const size_t at = std::min(text.find('&'), text.size());
      out->append(text.substr(0, at));
      text.remove_prefix(at);
      if (text.empty()) break;
      const size_t end = text.find(';');
      if (end == std::string_view::npos || !append_entity(text.substr(1, end - 1), out)) {
        return no_xml("it has an unknown entity");
      }
      text.remove_prefix(end + 1);
    }
    return ok_status();
  }

  std::string_view rest_;
};

}  // namespace

const XmlElement* XmlElement::child(std::string_view wanted) const {
  for (const XmlElement& each : children) {
    if (each.name == wanted) return &each;
  }
  return nullptr;
}

const std::string& XmlElement::text_of(std::string_view wanted) const {
  static const std::string none;
  const XmlElement* found = child(wanted);
  return found == nullptr ? none : found->text;
}

Result<XmlElement> parse_xml(std::string_view text) {
  return XmlParser(text).parse();
}

std::string xml_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const XmlEntity* reserved = nullptr;
    for (const XmlEntity& entity : kXmlEntities) {
      if (entity.character == c) reserved = &entity;
    }
    if (reserved == nullptr) {
      out.push_back(c);
    } else {
      out.append("&").append(reserved->name).append(";");
    }
  }
  return out;
}

}  // namespace shoal::storage
