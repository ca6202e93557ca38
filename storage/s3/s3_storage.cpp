#include "storage/s3/s3_storage.h"

#include <fmt/format.h>

#include <algorithm>

#include "shoal/hash.h"
#include "storage/s3/s3_files_internal.h"
#include "storage/s3/xml.h"

namespace shoal::storage {

namespace {

constexpr int kMaxReopens = 3;             // of an object that others replace while it is read
constexpr size_t kMaxListed = 10'000'000;  // entries of one folder

const std::pair<std::string, std::string> kIfFree = {"If-None-Match", "*"};
constexpr const char* kWriteIdHeader = "x-amz-meta-shoal-write";

Status validate_s3_entry(const std::string& path) {
  return path.empty() ? validate_component(path) : validate_path(path);
}

// A path under which an object may be published.
Status validate_s3_object(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(validate_s3_entry(path));
  const std::string name = path.substr(path.rfind('/') + 1);
  if (is_partial(name)) return Status(Code::invalid_argument, name + " is the name of a partial object");
  return validate_component(name);
}

}  // namespace

uint64_t part_bytes_for(uint64_t bytes_expected) {
  constexpr uint64_t kStep = uint64_t{1} << 20;
  const uint64_t needed = bytes_expected / (kS3PartsMax / 2) + 1;
  return std::max(kPartBytesDefault, (needed + kStep - 1) / kStep * kStep);
}

Result<std::unique_ptr<S3Storage>> S3Storage::open(S3Settings settings, S3Retries retries, CallWatch* watch) {
  std::unique_ptr<S3Storage> storage(new S3Storage(std::move(settings), std::move(retries), watch));
  const Status listed =
      storage->list_page({.prefix = storage->folder_prefix(""), .keys_max = 1, .is_deep = true}).status();
  // What is missing is the bucket: a prefix without objects is an empty root.
  if (listed.message().find("NoSuchBucket") != std::string::npos) {
    return Status(Code::not_found,
                  fmt::format("root {} does not exist: {}", storage->describe(), listed.message()));
  }
  SHOAL_RETURN_IF_ERROR(listed);
  return storage;
}

std::string S3Storage::key_of(const std::string& path) const {
  const std::string& prefix = client_.settings().prefix;
  return prefix.empty() || path.empty() ? prefix + path : prefix + "/" + path;
}

// --- writing ---

Result<bool> S3Storage::is_of_write(const std::string& key, const std::string& write_id) {
  const S3Request request{.method = "HEAD", .key = key};
  SHOAL_ASSIGN_OR_RETURN(const S3Answer answer, client_.send(request));
  if (answer.ok()) return answer.write_id == write_id;
  return client_.error(request, answer, "read who wrote it");
}

Result<bool> S3Storage::put_exclusive(const std::string& key, const std::vector<ByteView>& body) {
  const std::string write_id = random_128().to_hex();
  S3Request request{.method = "PUT", .key = key, .headers = {kIfFree, {kWriteIdHeader, write_id}}};
  request.body = body;
  request.is_stored = true;
  SHOAL_ASSIGN_OR_RETURN(const S3Answer answer, client_.send(request));
  if (answer.ok()) return true;
  if (answer.status != 412) return client_.error(request, answer, "create");
  auto is_ours = is_of_write(key, write_id);
  if (is_ours.status().code() == Code::not_found) return false;  // it was removed meanwhile
  return is_ours;
}

Result<bool> S3Storage::create_exclusive(const std::string& path, ByteView data) {
  SHOAL_RETURN_IF_ERROR(validate_s3_object(path));
  if (data.size() > kS3PutBytesMax) {
    return Status(Code::too_large, fmt::format("{}/{}: {} are more than one PUT may hold", describe(), path,
                                               human_bytes(data.size())));
  }
  return put_exclusive(key_of(path), {data});
}

// The folder may vanish between the look and the PUT. Those who rely on the difference find the tombstone
// that a deletion leaves here instead (storage/retention/deletion.cpp).
Result<bool> S3Storage::create_in_folder(const std::string& path, ByteView data) {
  SHOAL_RETURN_IF_ERROR(validate_s3_object(path));
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash);
  SHOAL_ASSIGN_OR_RETURN(const bool exists, has_folder(folder));
  if (!exists) return Status(Code::not_found, fmt::format("{}/{} does not exist", describe(), folder));
  return create_exclusive(path, data);
}

Status S3Storage::replace(const std::string& path, ByteView data) {
  SHOAL_RETURN_IF_ERROR(validate_s3_object(path));
  return put(key_of(path), data, "replace");
}

Status S3Storage::put(const std::string& key, ByteView data, std::string_view action) {
  const S3Request request{.method = "PUT",
                          .key = key,
                          .headers = {{kWriteIdHeader, random_128().to_hex()}},
                          .body = {data},
                          .is_stored = true};
  SHOAL_ASSIGN_OR_RETURN(const S3Answer answer, client_.send(request));
  return answer.ok() ? ok_status() : client_.error(request, answer, action);
}

Result<std::unique_ptr<WriteFile>> S3Storage::create(const std::string& path, const Nonce& nonce,
                                                     uint64_t bytes_expected) {
  SHOAL_RETURN_IF_ERROR(validate_s3_object(path));
  if (bytes_expected > kS3ObjectBytesMax) {
    return Status(Code::too_large,
                  fmt::format("{}/{}: {} are needed, but an object holds at most {}", describe(), path,
                              human_bytes(bytes_expected), human_bytes(kS3ObjectBytesMax)));
  }
  return std::unique_ptr<WriteFile>(
      std::make_unique<S3WriteFile>(*this, key_of(path), nonce, part_bytes_for(bytes_expected)));
}

Result<std::string> S3Storage::begin_upload(const std::string& key, const std::string& write_id) {
  S3Request request{
      .method = "POST", .key = key, .query = {{"uploads", ""}}, .headers = {{kWriteIdHeader, write_id}}};
  if (client_.settings().sends_checksums) request.headers.emplace_back("x-amz-checksum-algorithm", "SHA256");
  SHOAL_ASSIGN_OR_RETURN(const S3Answer answer, client_.send(request));
  if (!answer.ok()) return client_.error(request, answer, "begin an upload");
  SHOAL_ASSIGN_OR_RETURN(const XmlElement body, parse_xml(answer.body));
  const std::string& upload = body.text_of("UploadId");
  if (!upload.empty()) return upload;
  return Status(Code::corrupt, fmt::format("s3://{}/{}: the store began an upload without an id",
                                           client_.settings().bucket, key));
}

Result<S3Storage::UploadedPart> S3Storage::put_part(const std::string& key, const std::string& upload,
                                                    size_t number, const std::vector<ByteView>& body) {
  S3Request request{.method = "PUT", .key = key};
  request.query = {{"partNumber", std::to_string(number)}, {"uploadId", upload}};
  request.body = body;
  request.is_stored = true;
  SHOAL_ASSIGN_OR_RETURN(const S3Answer answer, client_.send(request));
  if (!answer.ok()) return client_.error(request, answer, fmt::format("upload part {}", number));
  if (!answer.etag.empty()) return UploadedPart{answer.etag, answer.checksum};
  return Status(Code::corrupt, fmt::format("s3://{}/{}: the store took part {} without an ETag",
                                           client_.settings().bucket, key, number));
}

Status S3Storage::complete(const std::string& key, const std::string& upload,
                           const std::vector<UploadedPart>& parts) {
  std::string body = "<CompleteMultipartUpload>";
  for (size_t i = 0; i < parts.size(); ++i) {
    body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag>", i + 1, xml_escape(parts[i].etag));
    if (!parts[i].checksum.empty()) {
      body += fmt::format("<ChecksumSHA256>{}</ChecksumSHA256>", xml_escape(parts[i].checksum));
    }
    body += "</Part>";
  }
  body += "</CompleteMultipartUpload>";
  S3Request request{.method = "POST", .key = key, .query = {{"uploadId", upload}}, .headers = {kIfFree}};
  request.body = {as_view(body)};
  request.may_hold_error = true;
  SHOAL_ASSIGN_OR_RETURN(const S3Answer answer, client_.send(request));
  if (answer.ok()) {
    const auto result = parse_xml(answer.body);
    if (result.ok() && result->name == "CompleteMultipartUploadResult") return ok_status();
    return Status(
        Code::corrupt,
        fmt::format("s3://{}/{}: the store answered the completion of an upload with something else",
                    client_.settings().bucket, key));
  }
  // An upload that was completed before is not found.
  if (answer.code == "NoSuchUpload" || answer.status == 412) {
    return Status(Code::already_exists, client_.error(request, answer, "complete the upload").message());
  }
  return client_.error(request, answer, "complete the upload");
}

Status S3Storage::abort_upload(const std::string& key, const std::string& upload) {
  const S3Request request{.method = "DELETE", .key = key, .query = {{"uploadId", upload}}};
  SHOAL_ASSIGN_OR_RETURN(const S3Answer answer, client_.send(request));
  if (answer.ok() || answer.status == 404) return ok_status();
  return client_.error(request, answer, "abort the upload");
}

// --- reading ---

Result<std::unique_ptr<ReadFile>> S3Storage::open(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(validate_s3_entry(path));
  SHOAL_ASSIGN_OR_RETURN(auto file, S3ReadFile::open(client_, key_of(path), ahead_bytes_left_));
  return std::unique_ptr<ReadFile>(std::move(file));
}

Result<Bytes> S3Storage::read(const std::string& path, uint64_t bytes_max) {
  for (int opened = 1;; ++opened) {
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadFile> file, open(path));
    if (file->size() > bytes_max) {
      return Status(Code::too_large, fmt::format("{}/{}: it has {} bytes, but at most {} are expected",
                                                 describe(), path, file->size(), bytes_max));
    }
    Bytes out(file->size());
    const Status read = file->read_at(0, out);
    if (read.ok()) return out;
    const bool is_replaced = read.code() == Code::busy && opened < kMaxReopens;
    if (!is_replaced) return read;
  }
}

std::string S3Storage::folder_prefix(const std::string& folder) const {
  const std::string key = key_of(folder);
  return key.empty() ? "" : key + "/";
}

Result<S3Storage::Page> S3Storage::list_page(const Listing& listing) {
  const std::string& prefix = listing.prefix;
  S3Request request{.method = "GET", .key = "", .query = {{"list-type", "2"}, {"prefix", prefix}}};
  if (!listing.is_deep) request.query.emplace_back("delimiter", "/");
  if (listing.keys_max > 0) request.query.emplace_back("max-keys", std::to_string(listing.keys_max));
  if (!listing.token.empty()) request.query.emplace_back("continuation-token", listing.token);
  if (!listing.after.empty()) request.query.emplace_back("start-after", listing.after);
  SHOAL_ASSIGN_OR_RETURN(const S3Answer answer, client_.send(request));
  if (!answer.ok()) return client_.error(request, answer, "list " + prefix);
  SHOAL_ASSIGN_OR_RETURN(const XmlElement body, parse_xml(answer.body));
  const auto is_no_list = [&](std::string_view why) {
    return Status(Code::corrupt, fmt::format("s3://{}/{}: the store answered a listing with {}",
                                             client_.settings().bucket, prefix, why));
  };
  if (body.name == "ListAllMyBucketsResult") {
    return is_no_list(client_.settings().is_path_style
                          ? "its buckets"
                          : "its buckets: it may want the bucket in the path (addressing_style = path)");
  }
  if (body.name != "ListBucketResult") return is_no_list("something else");
  Page page;
  for (const XmlElement& each : body.children) {
    const bool is_folder = each.name == "CommonPrefixes";
    if (!is_folder && each.name != "Contents") continue;
    std::string name = each.text_of(is_folder ? "Prefix" : "Key");
    if (!name.starts_with(prefix)) continue;
    name = name.substr(prefix.size());
    if (is_folder && name.ends_with('/')) name.pop_back();
    const uint64_t bytes = is_folder ? 0 : std::strtoull(each.text_of("Size").c_str(), nullptr, 10);
    page.entries.push_back({std::move(name), bytes, is_folder});
  }
  if (body.text_of("IsTruncated") != "true") return page;
  page.next = body.text_of("NextContinuationToken");
  if (page.next.empty() || page.next == listing.token)
    return is_no_list("pages that end before the last one");
  return page;
}

namespace {

// Consoles and stores with folders list a folder as an object whose name ends with '/'. It holds nothing.
bool is_folder_object(const ObjectInfo& entry) {
  return !entry.is_folder && (entry.name.empty() || entry.name.ends_with('/'));
}

}  // namespace

Result<bool> S3Storage::has_folder(const std::string& folder) {
  if (folder.empty()) return true;
  SHOAL_ASSIGN_OR_RETURN(const Page page,
                         list_page({.prefix = folder_prefix(folder), .keys_max = 1, .is_deep = true}));
  return !page.entries.empty();
}

Result<std::vector<ObjectInfo>> S3Storage::list(const std::string& folder) {
  SHOAL_RETURN_IF_ERROR(validate_path(folder));
  std::vector<ObjectInfo> out;
  bool exists = folder.empty();
  Listing listing{.prefix = folder_prefix(folder)};
  do {
    SHOAL_ASSIGN_OR_RETURN(Page page, list_page(listing));
    std::erase_if(page.entries, is_folder_object);
    exists = exists || !page.entries.empty();
    for (ObjectInfo& entry : page.entries) {
      if (is_partial(entry.name) || validate_component(entry.name).ok()) out.push_back(std::move(entry));
    }
    if (out.size() > kMaxListed) {
      return Status(Code::too_large,
                    fmt::format("{}/{}: it has more than {} entries", describe(), folder, kMaxListed));
    }
    listing.token = std::move(page.next);
  } while (!listing.token.empty());
  if (!exists) return Status(Code::not_found, fmt::format("{}/{} does not exist", describe(), folder));
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

namespace {

// The folder of so many components in which an object lies; "" if it lies in none.
std::string_view folder_of_depth(std::string_view path, size_t depth) {
  size_t end = 0;
  for (size_t i = 0; i < depth; ++i) {
    end = path.find('/', i == 0 ? 0 : end + 1);
    if (end == std::string_view::npos) return {};
  }
  return path.substr(0, end);
}

}  // namespace

// With TreeDepth::names, a folder that fills the end of a page is not listed to its end: the next page begins
// behind it. No component of a path has '~', which follows all characters that one may have. The folder's
// name and '0', which follows '/', will not do: SeaweedFS leaves out the folder of that name.
Result<std::vector<TreeObject>> S3Storage::list_tree(const std::string& prefix, TreeDepth how,
                                                     size_t prefix_depth) {
  std::vector<TreeObject> out;
  const std::string root = folder_prefix("");
  Listing listing{.prefix = root + prefix, .is_deep = true};
  std::string jumped_to;
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(Page page, list_page(listing));
    std::erase_if(page.entries, is_folder_object);
    for (ObjectInfo& entry : page.entries) out.push_back({prefix + entry.name, entry.size});
    if (out.size() > kMaxListed) {
      return Status(Code::too_large,
                    fmt::format("{}/{}: more than {} objects begin with it", describe(), prefix, kMaxListed));
    }
    if (page.next.empty()) return out;
    listing.token = std::move(page.next);
    listing.after.clear();
    if (how == TreeDepth::objects || page.entries.empty()) continue;
    const std::string_view folder = folder_of_depth(out.back().path, prefix_depth);
    if (folder.empty()) continue;
    std::string behind = root + std::string(folder) + "/~";
    if (behind == jumped_to) continue;  // somebody else's names lie there
    jumped_to = behind;
    listing.token.clear();
    listing.after = std::move(behind);
  }
}

// --- removing ---

// A note names the upload in its first line. What is larger is no note: a folder that was copied to the
// bucket by another program may have had a partial file.
Status S3Storage::remove_partial(const std::string& path) {
  auto note = read(path, kUploadNoteBytesMax);
  if (note.status().code() == Code::not_found) return ok_status();
  if (note.status().code() == Code::too_large) return remove_key(key_of(path));
  SHOAL_RETURN_IF_ERROR(note.status());
  const std::string_view text = as_text(*note);
  const std::string upload(text.substr(0, text.find('\n')));
  const std::string object = path.substr(0, path.size() - partial_name("", Nonce{}).size());
  if (!upload.empty()) SHOAL_RETURN_IF_ERROR(abort_upload(key_of(object), upload));
  return remove_key(key_of(path));
}

Status S3Storage::write_upload_note(const std::string& note_key, const std::string& upload, size_t parts) {
  const std::string text = upload + "\n" + std::string(parts, '.');
  return put(note_key, as_view(text), "note the upload");
}

Status S3Storage::remove_key(const std::string& key) {
  const S3Request request{.method = "DELETE", .key = key};
  SHOAL_ASSIGN_OR_RETURN(const S3Answer answer, client_.send(request));
  if (answer.ok() || (answer.status == 404 && answer.code != "NoSuchBucket")) return ok_status();
  return client_.error(request, answer, "remove");
}

Status S3Storage::remove(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(validate_s3_entry(path));
  if (is_partial(path.substr(path.rfind('/') + 1))) return remove_partial(path);
  return remove_key(key_of(path));
}

Status S3Storage::remove_folder(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(validate_s3_entry(path));
  SHOAL_ASSIGN_OR_RETURN(const bool exists, has_folder(path));
  if (!exists) return ok_status();
  return Status(Code::busy,
                fmt::format("{}/{}: cannot remove the folder: it is not empty", describe(), path));
}

Status S3Storage::move_folder(const std::string& path, const std::string&) {
  return Status(Code::refused,
                fmt::format("{}/{}: an object store cannot rename a folder", describe(), path));
}

Status S3Storage::sync_folder(const std::string& folder) {
  return validate_path(folder);
}

// create_exclusive has shown what a PUT does. Some stores check the condition only there.
Status S3Storage::check_rules(const std::string& path) {
  const std::string key = key_of(path), write_id = random_128().to_hex();
  const auto ignores = [&](std::string_view what) {
    return Status(Code::refused,
                  fmt::format("root {} cannot hold checkpoints: the object store at {} ignores the condition "
                              "If-None-Match of {}, so two writers could both commit",
                              describe(), client_.settings().endpoint, what));
  };
  SHOAL_ASSIGN_OR_RETURN(const std::string upload, begin_upload(key, write_id));
  auto part = put_part(key, upload, 1, {as_view("second")});
  const Status completed = part.ok() ? complete(key, upload, {*part}) : part.status();
  const Status aborted = abort_upload(key, upload);
  if (completed.ok()) return ignores("CompleteMultipartUpload");
  if (completed.code() != Code::already_exists) return completed;
  return aborted;
}

}  // namespace shoal::storage
