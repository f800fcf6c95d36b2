// SPDX-License-Identifier: Apache-2.0
#include "common/storage/s3_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/bytes/bytes.h"
#include "common/http/http_client.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "common/storage/s3_error.h"

namespace starling::storage {
namespace {

constexpr long kSlow = 1024;                 // bytes a second
constexpr std::size_t kMostIdle = 16;        // handles, each with its connection
constexpr std::size_t kAtLeast = 128 << 10;  // bytes a second that a body is given time for
constexpr absl::Duration kAnswerTime = absl::Seconds(30);

std::string DigestOf(Pieces pieces) {
  bytes::Sha256 digest;
  for (const auto& piece : pieces) digest.Update(piece);
  return bytes::ToHex(digest.Finish());
}

std::string QueryText(const std::map<std::string, std::string>& query) {
  std::string text;
  for (const auto& [name, value] : query) {
    absl::StrAppend(&text, text.empty() ? "?" : "&", http::PercentEncode(name), "=",
                    http::PercentEncode(value));
  }
  return text;
}

// Once a process; libcurl's own lock makes it safe in any thread.
void StartCurl() {
  static const CURLcode started = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  STARLING_CHECK(started == CURLE_OK, "libcurl starts");
}

// While it lives, this thread's writes to a peer that has gone are errors and not the end of the
// process: OpenSSL writes without MSG_NOSIGNAL.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec now{};
    while (::sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
};

bool IsOfCertificates(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_SSL_ISSUER_ERROR;
}

}  // namespace

// One request under way: what libcurl asks for and where it puts what comes.
struct S3Client::Call {
  Pieces body;
  std::size_t piece = 0;   // what is sent next
  std::size_t offset = 0;  // in that piece
  std::size_t limit = 0;
  bool too_large = false;
  bool has_head = false;  // all of it
  http::Response answer = {};

  static std::size_t Read(char* into, std::size_t size, std::size_t count, void* self) {
    Call& call = *static_cast<Call*>(self);
    std::size_t done = 0;
    while (done < size * count && call.piece < call.body.size()) {
      const auto rest = call.body[call.piece].subspan(call.offset);
      const std::size_t part = std::min(size * count - done, rest.size());
      if (part > 0) std::memcpy(into + done, rest.data(), part);
      done += part;
      call.offset += part;
      if (part < rest.size()) break;
      ++call.piece;
      call.offset = 0;
    }
    return done;
  }

  // A connection that was idle may turn out to be dead: the body is sent again from its beginning.
  static int Seek(void* self, curl_off_t offset, int origin) {
    if (offset != 0 || origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
    static_cast<Call*>(self)->piece = 0;
    static_cast<Call*>(self)->offset = 0;
    return CURL_SEEKFUNC_OK;
  }

  static std::size_t Write(char* data, std::size_t size, std::size_t count, void* self) {
    Call& call = *static_cast<Call*>(self);
    if (call.answer.body.size() + size * count > call.limit) {
      call.too_large = true;
      return 0;
    }
    call.answer.body.append(data, size * count);
    return size * count;
  }

  static std::size_t Header(char* data, std::size_t size, std::size_t count, void* self) {
    Call& call = *static_cast<Call*>(self);
    const std::string_view line(data, size * count);
    if (line.starts_with("HTTP/")) call.answer.headers.clear();  // "100 Continue" came before
    call.has_head = line == "\r\n";
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos) {
      const absl::string_view value(line.data() + colon + 1, line.size() - colon - 1);
      call.answer.headers.emplace_back(line.substr(0, colon), absl::StripAsciiWhitespace(value));
    }
    return size * count;
  }
};

// A libcurl handle, which keeps its connection between requests. Confined to its holder.
class S3Client::Handle {
 public:
  Handle() : curl_(::curl_easy_init()) { STARLING_CHECK(curl_ != nullptr, "there is memory"); }
  ~Handle() {
    ::curl_slist_free_all(headers_);
    ::curl_easy_cleanup(curl_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  void Prepare(const S3Options& options, const Credentials& credentials) {
    ::curl_easy_reset(curl_);
    ::curl_slist_free_all(std::exchange(headers_, nullptr));
    error_[0] = '\0';
    Set(CURLOPT_ERRORBUFFER, error_);
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_PROTOCOLS_STR, "http,https");
    Set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    Set(CURLOPT_PATH_AS_IS, 1L);
    Set(CURLOPT_TCP_KEEPALIVE, 1L);
    Set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(ToInt64Milliseconds(options.connect_timeout)));
    Set(CURLOPT_LOW_SPEED_LIMIT, kSlow);
    Set(CURLOPT_LOW_SPEED_TIME,
        std::max(1L, static_cast<long>(ToInt64Seconds(options.stall_timeout))));
    if (!options.settings.ca_bundle.empty()) {
      Set(CURLOPT_CAINFO, options.settings.ca_bundle.c_str());
    }
    Set(CURLOPT_AWS_SIGV4, absl::StrCat("aws:amz:", options.settings.region, ":s3").c_str());
    Set(CURLOPT_USERNAME, credentials.access_key.c_str());
    Set(CURLOPT_PASSWORD, credentials.secret_key.c_str());
    if (!credentials.session_token.empty()) {
      AddHeader("x-amz-security-token", credentials.session_token);
    }
  }

  void AddHeader(std::string_view name, std::string_view value) {
    headers_ = ::curl_slist_append(
        headers_, absl::StrCat(std::string(name), ": ", std::string(value)).c_str());
  }

  void Ask(const S3Request& request, const std::string& url, Call& call) {
    const std::size_t size = SizeOf(call.body);
    Set(CURLOPT_URL, url.c_str());
    Set(CURLOPT_HTTPHEADER, headers_);
    const std::size_t bytes = std::max(size, call.limit);
    Set(CURLOPT_TIMEOUT_MS,
        static_cast<long>(ToInt64Milliseconds(kAnswerTime + absl::Seconds(bytes / kAtLeast))));
    Set(CURLOPT_WRITEFUNCTION, &Call::Write);
    Set(CURLOPT_WRITEDATA, &call);
    Set(CURLOPT_HEADERFUNCTION, &Call::Header);
    Set(CURLOPT_HEADERDATA, &call);
    if (request.method == "HEAD") {
      Set(CURLOPT_NOBODY, 1L);
    } else if (request.method == "PUT" || request.method == "POST") {
      // An upload's body is read piece by piece; as a POST it is one in name only.
      Set(CURLOPT_UPLOAD, 1L);
      Set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(size));
      Set(CURLOPT_READFUNCTION, &Call::Read);
      Set(CURLOPT_READDATA, &call);
      Set(CURLOPT_SEEKFUNCTION, &Call::Seek);
      Set(CURLOPT_SEEKDATA, &call);
      // A store need not say "100 Continue", and to wait for it would cost each small blob a
      // second.
      Set(CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
      if (request.method == "POST") Set(CURLOPT_CUSTOMREQUEST, "POST");
    } else if (request.method != "GET") {
      Set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
  }

  CURLcode Perform() {
    const NoPipeSignal guard;
    return ::curl_easy_perform(curl_);
  }
  int status() {
    long status = 0;
    ::curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
    return static_cast<int>(status);
  }
  std::string ErrorOf(CURLcode code) const {
    return error_[0] != '\0' ? error_ : ::curl_easy_strerror(code);
  }

 private:
  template <typename Value>
  void Set(CURLoption option, Value value) {
    const CURLcode code = ::curl_easy_setopt(curl_, option, value);
    STARLING_CHECK(code == CURLE_OK, "libcurl was built with what it is asked for");
  }

  CURL* const curl_;
  curl_slist* headers_ = nullptr;
  char error_[CURL_ERROR_SIZE] = {};
};

S3Client::S3Client(S3Options options) : options_(std::move(options)) { StartCurl(); }
S3Client::~S3Client() = default;

std::string S3Client::access_key() const {
  const sync::MutexLock lock(mutex_);
  return access_key_;
}

std::unique_ptr<S3Client::Handle> S3Client::Take() {
  const sync::MutexLock lock(mutex_);
  if (idle_.empty()) return std::make_unique<Handle>();
  std::unique_ptr<Handle> handle = std::move(idle_.back());
  idle_.pop_back();
  return handle;
}

void S3Client::GiveBack(std::unique_ptr<Handle> handle) {
  const sync::MutexLock lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(handle));
}

absl::StatusOr<http::Response> S3Client::Send(const S3Request& request, const std::string& digest,
                                              const Credentials& credentials) {
  std::unique_ptr<Handle> handle = Take();
  handle->Prepare(options_, credentials);
  handle->AddHeader("x-amz-content-sha256", digest);
  for (const auto& [name, value] : request.headers) handle->AddHeader(name, value);
  Call call{.body = request.body, .limit = request.answer_limit};
  const std::string url = S3Url(options_.settings, options_.bucket, request.key);
  handle->Ask(request, absl::StrCat(url, QueryText(request.query)), call);
  const CURLcode code = handle->Perform();
  if (code == CURLE_OK && !call.has_head) {  // which libcurl takes for an answer
    return absl::UnavailableError(
        absl::StrCat(options_.settings.endpoint, " does not answer: the answer ends in its head"));
  }
  if (code == CURLE_OK) {
    call.answer.status = handle->status();
    GiveBack(std::move(handle));
    return std::move(call.answer);
  }
  if (call.too_large) {
    return absl::FailedPreconditionError(absl::StrCat("the answer of ", options_.settings.endpoint,
                                                      " is larger than ", call.limit, " bytes"));
  }
  const std::string why =
      absl::StrCat(options_.settings.endpoint, " does not answer: ", handle->ErrorOf(code));
  if (IsOfCertificates(code)) {
    return absl::PermissionDeniedError(absl::StrCat(
        why, "; name the file of the authority that signed its certificate in AWS_CA_BUNDLE"));
  }
  return absl::UnavailableError(why);
}

absl::StatusOr<http::Response> S3Client::Exchange(const S3Request& request) {
  const std::string digest = DigestOf(request.body);
  const absl::Time end = absl::Now() + options_.patience;
  absl::Duration wait = options_.first_wait;
  bool fresh = false;
  for (int tries = 1;; ++tries) {
    ASSIGN_OR_RETURN(const Credentials credentials, options_.credentials(fresh));
    {
      const sync::MutexLock lock(mutex_);
      access_key_ = credentials.access_key;
    }
    absl::StatusOr<http::Response> answer = Send(request, digest, credentials);
    // The end of an upload in parts may be 200 with an error in it.
    if (answer.ok() && request.method == "POST" && answer->status == 200 &&
        !S3Code(*answer).empty()) {
      answer->status = 500;
    }
    const bool expired =
        answer.ok() && answer->status >= 400 && !fresh && S3Code(*answer) == "ExpiredToken";
    const bool passing = answer.ok() ? IsPassing(*answer) : absl::IsUnavailable(answer.status());
    if (!expired && !passing) return answer;
    fresh = expired;
    if (tries >= options_.tries || absl::Now() + wait >= end) return answer;
    absl::SleepFor(wait * (0.5 + 0.5 * http::HttpClient::Jitter()));
    wait = std::min(2 * wait, options_.longest_wait);
  }
}

}  // namespace starling::storage
