#include "storage/s3/connection_failure.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <openssl/x509_vfy.h>

#include <string_view>

#include "shoal/bytes.h"

namespace shoal::storage {

namespace {

std::string advice_for_certificate(CURL* handle, const std::string& ca_file) {
  long verified = X509_V_OK;
  curl_easy_getinfo(handle, CURLINFO_SSL_VERIFYRESULT, &verified);
  switch (verified) {
    case X509_V_OK:
    case X509_V_ERR_UNSPECIFIED:  // libcurl compares the names before it sets the result
      return "; the endpoint must name the host as the certificate does";
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "; renew that certificate, or correct the clock of this host";
  }
  if (ca_file.empty()) return "; set AWS_CA_BUNDLE to a file with the certificate of its CA";
  return fmt::format("; its CA is not in {}, which AWS_CA_BUNDLE or ca_bundle names", ca_file);
}

std::string advice_for(CURL* handle, CURLcode code, std::string_view what, const std::string& ca_file) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
      return advice_for_certificate(handle, ca_file);
    case CURLE_SSL_CACERT_BADFILE:
      return ca_file.empty() ? "; install ca-certificates, or set AWS_CA_BUNDLE to a file with certificates"
                             : "; AWS_CA_BUNDLE or ca_bundle must name a file with certificates in PEM";
    case CURLE_SSL_CONNECT_ERROR:
      return what.find("wrong version number") == what.npos ? "" : "; the endpoint may be one of http://";
    case CURLE_COULDNT_RESOLVE_HOST:
      return "; check the endpoint and the region";
    default:
      return "";
  }
}

}  // namespace

ConnectionFailure connection_failure(void* handle, int code, const char* detail, const std::string& ca_file) {
  const auto curl_code = static_cast<CURLcode>(code);
  const std::string what = clean_line(detail[0] != '\0' ? detail : curl_easy_strerror(curl_code), 300);
  return {what + advice_for(handle, curl_code, what, ca_file),
          curl_code == CURLE_PEER_FAILED_VERIFICATION || curl_code == CURLE_SSL_CACERT_BADFILE};
}

}  // namespace shoal::storage
