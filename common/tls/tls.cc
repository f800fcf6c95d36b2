// SPDX-License-Identifier: Apache-2.0
#include "common/tls/tls.h"

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/check.h"
#include "common/status/macros.h"

namespace starling::tls {
namespace {

constexpr char kCurve[] = "prime256v1";
constexpr int kOrderBytes = 32;

template <typename T, auto Free>
struct Releaser {
  void operator()(T* object) const { Free(object); }
};
template <typename T, auto Free>
using Owned = std::unique_ptr<T, Releaser<T, Free>>;

using Bio = Owned<BIO, BIO_free_all>;
using Certificate = Owned<X509, X509_free>;
using BigNumber = Owned<BIGNUM, BN_clear_free>;

std::string Text(std::string_view view) { return std::string(view); }

Bio Reader(std::string_view text) {
  Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  STARLING_CHECK(bio != nullptr, "there is memory for a buffer");
  return bio;
}

std::string Take(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);  // NOLINT(google-runtime-int): OpenSSL's type
  return std::string(data, static_cast<std::size_t>(size));
}

// The key whose secret number is `scalar`, with its point on the curve.
std::shared_ptr<EVP_PKEY> KeyOf(const BIGNUM* scalar, const EC_GROUP* group) {
  const Owned<EC_POINT, EC_POINT_free> point(EC_POINT_new(group));
  STARLING_CHECK(EC_POINT_mul(group, point.get(), scalar, nullptr, nullptr, nullptr) == 1,
                 "P-256 multiplies");
  unsigned char encoded[1 + 2 * kOrderBytes];
  STARLING_CHECK(EC_POINT_point2oct(group, point.get(), POINT_CONVERSION_UNCOMPRESSED, encoded,
                                    sizeof encoded, nullptr) == sizeof encoded,
                 "a point of P-256 has 65 bytes");
  const Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free> builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, kCurve, 0);
  OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, encoded, sizeof encoded);
  OSSL_PARAM_BLD_push_BN_pad(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, scalar, kOrderBytes);
  const Owned<OSSL_PARAM, OSSL_PARAM_free> parameters(OSSL_PARAM_BLD_to_param(builder.get()));
  const Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free> context(
      EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  STARLING_CHECK(
      EVP_PKEY_fromdata_init(context.get()) == 1 &&
          EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_KEYPAIR, parameters.get()) == 1,
      "a number below the order is a key of P-256");
  return {key, EVP_PKEY_free};
}

bool IsP256(EVP_PKEY* key) {
  char group[64] = {};
  return EVP_PKEY_is_a(key, "EC") == 1 &&
         EVP_PKEY_get_group_name(key, group, sizeof group, nullptr) == 1 &&
         std::string_view(group) == kCurve;
}

Certificate ParseCertificate(std::string_view pem) {
  const Bio bio = Reader(pem);
  return Certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
}

std::string CertificatePem(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  STARLING_CHECK(PEM_write_bio_X509(bio.get(), certificate) == 1, "a certificate has a PEM form");
  return Take(bio.get());
}

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

// Letters, digits, hyphens and dots, as a host's name.
bool IsDnsName(std::string_view name) {
  if (name.empty() || name.size() > 253 || name.front() == '.' || name.back() == '.') return false;
  return name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
             "0123456789-.") == std::string_view::npos;
}

void Extend(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION, X509_EXTENSION_free> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  STARLING_CHECK(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1,
                 "an extension that we write is one that OpenSSL knows");
}

// All that every certificate has, still unsigned. `issuer` null: itself.
Certificate Draft(EVP_PKEY* key, std::string_view common_name, const Validity& validity,
                  X509* issuer) {
  Certificate certificate(X509_new());
  STARLING_CHECK(certificate != nullptr, "there is memory for a certificate");
  X509_set_version(certificate.get(), X509_VERSION_3);
  const BigNumber serial(BN_new());
  STARLING_CHECK(BN_rand(serial.get(), 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1,
                 "the operating system has randomness");
  BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate.get()));
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(validity.from));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(validity.until));
  const std::string name = Text(common_name.substr(0, 64));
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate.get(),
                       X509_get_subject_name(issuer == nullptr ? certificate.get() : issuer));
  X509_set_pubkey(certificate.get(), key);
  Extend(certificate.get(), issuer == nullptr ? certificate.get() : issuer,
         NID_subject_key_identifier, "hash");
  // Not the issuer's serial number: an authority may be made anew with the same key.
  Extend(certificate.get(), issuer == nullptr ? certificate.get() : issuer,
         NID_authority_key_identifier, "keyid:always");
  return certificate;
}

void Sign(X509* certificate, EVP_PKEY* key) {
  STARLING_CHECK(X509_sign(certificate, key, EVP_sha256()) > 0, "a P-256 key signs");
}

const char* Purposes(Usage usage) {
  switch (usage) {
    case Usage::kServer:
      return "serverAuth";
    case Usage::kClient:
      return "clientAuth";
    case Usage::kBoth:
      break;
  }
  return "serverAuth,clientAuth";
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read, or is empty"));
  }
  return text.str();
}

absl::Status CheckPair(X509* certificate, const Key& key) {
  if (X509_check_private_key(certificate, key.get()) == 1) return absl::OkStatus();
  return absl::InvalidArgumentError("the private key is not the certificate's");
}

}  // namespace

std::string DeriveBytes(std::string_view seed, std::string_view purpose, std::size_t length) {
  const Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free> context(EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr));
  std::string bytes(length, '\0');
  std::size_t made = length;
  const auto* raw_seed = reinterpret_cast<const unsigned char*>(seed.data());
  const auto* raw_purpose = reinterpret_cast<const unsigned char*>(purpose.data());
  const bool done =
      EVP_PKEY_derive_init(context.get()) == 1 &&
      EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) == 1 &&
      EVP_PKEY_CTX_set1_hkdf_key(context.get(), raw_seed, static_cast<int>(seed.size())) == 1 &&
      EVP_PKEY_CTX_add1_hkdf_info(context.get(), raw_purpose, static_cast<int>(purpose.size())) ==
          1 &&
      EVP_PKEY_derive(context.get(), reinterpret_cast<unsigned char*>(bytes.data()), &made) == 1;
  STARLING_CHECK(done && made == length, "HKDF-SHA-256 is available, and the seed is not empty");
  return bytes;
}

Key Key::Generate() {
  EVP_PKEY* key = EVP_EC_gen(kCurve);
  STARLING_CHECK(key != nullptr, "P-256 keys can be made");
  return Key({key, EVP_PKEY_free});
}

Key Key::Derive(std::string_view seed, std::string_view purpose) {
  // 16 bytes more than the order has, so that the remainder is as good as uniform (FIPS 186-5,
  // A.2.1).
  const std::string bytes = DeriveBytes(seed, purpose, kOrderBytes + 16);
  const Owned<EC_GROUP, EC_GROUP_free> group(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  const Owned<BN_CTX, BN_CTX_free> scratch(BN_CTX_new());
  const BigNumber scalar(BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()), nullptr));
  const BigNumber below(BN_dup(EC_GROUP_get0_order(group.get())));
  STARLING_CHECK(BN_sub_word(below.get(), 1) == 1 &&
                     BN_mod(scalar.get(), scalar.get(), below.get(), scratch.get()) == 1 &&
                     BN_add_word(scalar.get(), 1) == 1,
                 "numbers can be reduced");
  return Key(KeyOf(scalar.get(), group.get()));
}

absl::StatusOr<Key> Key::FromPem(std::string_view pem) {
  const Bio bio = Reader(pem);
  // An empty password: an encrypted key is refused, nobody is asked at a terminal.
  std::shared_ptr<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, const_cast<char*>("")), EVP_PKEY_free);
  if (key == nullptr || !IsP256(key.get())) {
    return absl::InvalidArgumentError("not a private P-256 key in PEM");
  }
  return Key(std::move(key));
}

std::string Key::ToPem() const {
  const Bio bio(BIO_new(BIO_s_mem()));
  STARLING_CHECK(PEM_write_bio_PKCS8PrivateKey(bio.get(), key_.get(), nullptr, nullptr, 0, nullptr,
                                               nullptr) == 1,
                 "a key has a PEM form");
  return Take(bio.get());
}

Validity ValidFrom(absl::Time now, absl::Duration length) {
  return {now - absl::Hours(24), now + length};
}

std::string PeerName(std::string_view role, std::string_view group) {
  return absl::StrCat(Text(role), ".", Text(group), ".starling");
}

absl::StatusOr<Authority> Authority::Create(Key key, std::string_view name, Validity validity) {
  if (name.empty() || name.size() > 64) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", Text(name), "\" cannot name a certificate authority: use 1 to 64 characters"));
  }
  const Certificate certificate = Draft(key.get(), name, validity, nullptr);
  Extend(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  Extend(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  Sign(certificate.get(), key.get());
  std::string pem = CertificatePem(certificate.get());
  return Authority(std::move(key), std::move(pem));
}

absl::StatusOr<Authority> Authority::FromPem(std::string_view certificate, std::string_view key) {
  ASSIGN_OR_RETURN(Key own, Key::FromPem(key));
  const Certificate parsed = ParseCertificate(certificate);
  if (parsed == nullptr) return absl::InvalidArgumentError("not a certificate in PEM");
  if (X509_check_ca(parsed.get()) != 1) {
    return absl::InvalidArgumentError("the certificate is not an authority's");
  }
  RETURN_IF_ERROR(CheckPair(parsed.get(), own));
  return Authority(std::move(own), CertificatePem(parsed.get()));
}

absl::StatusOr<Identity> Authority::Issue(const LeafRequest& request) const {
  if (request.dns_names.empty()) {
    return absl::InvalidArgumentError("a leaf certificate needs a name");
  }
  for (const std::string& name : request.dns_names) {
    if (!IsDnsName(name)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is no DNS name"));
    }
  }
  const Certificate issuer = ParseCertificate(certificate_);
  STARLING_CHECK(issuer != nullptr, "an authority has a certificate");
  const Key key = Key::Generate();
  const Certificate leaf =
      Draft(key.get(), request.dns_names.front(), request.validity, issuer.get());
  Extend(leaf.get(), issuer.get(), NID_basic_constraints, "critical,CA:FALSE");
  Extend(leaf.get(), issuer.get(), NID_key_usage, "critical,digitalSignature");
  Extend(leaf.get(), issuer.get(), NID_ext_key_usage, Purposes(request.usage));
  Extend(leaf.get(), issuer.get(), NID_subject_alt_name,
         absl::StrCat("DNS:", absl::StrJoin(request.dns_names, ",DNS:")));
  Sign(leaf.get(), key_.get());
  return Identity{CertificatePem(leaf.get()), key.ToPem(), certificate_};
}

absl::StatusOr<CertificateFacts> ReadCertificate(std::string_view pem) {
  const Certificate certificate = ParseCertificate(pem);
  if (certificate == nullptr) return absl::InvalidArgumentError("not a certificate in PEM");
  CertificateFacts facts;
  facts.validity = {ToTime(X509_get0_notBefore(certificate.get())),
                    ToTime(X509_get0_notAfter(certificate.get()))};
  facts.authority = X509_check_ca(certificate.get()) == 1;
  char name[256] = {};
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, name,
                            sizeof name);
  facts.common_name = name;
  const Owned<GENERAL_NAMES, GENERAL_NAMES_free> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* entry = sk_GENERAL_NAME_value(names.get(), i);
    if (entry->type != GEN_DNS) continue;
    facts.dns_names.emplace_back(
        reinterpret_cast<const char*>(ASN1_STRING_get0_data(entry->d.dNSName)),
        static_cast<std::size_t>(ASN1_STRING_length(entry->d.dNSName)));
  }
  return facts;
}

absl::Status Verify(const Identity& identity, absl::Time now) {
  const Certificate leaf = ParseCertificate(identity.certificate);
  if (leaf == nullptr) return absl::InvalidArgumentError("the leaf is no certificate in PEM");
  ASSIGN_OR_RETURN(const Key key, Key::FromPem(identity.key));
  RETURN_IF_ERROR(CheckPair(leaf.get(), key));
  const Owned<X509_STORE, X509_STORE_free> store(X509_STORE_new());
  const Bio bio = Reader(identity.authority);
  int trusted = 0;
  while (const Certificate root{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
    X509_STORE_add_cert(store.get(), root.get());
    ++trusted;
  }
  if (trusted == 0) return absl::InvalidArgumentError("the authority is no certificate in PEM");
  const Owned<X509_STORE_CTX, X509_STORE_CTX_free> context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), leaf.get(), nullptr);
  X509_STORE_CTX_set_time(context.get(), 0, absl::ToTimeT(now));
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the leaf is not good: ",
                   X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()))));
}

absl::StatusOr<Identity> ReadIdentity(const std::string& folder) {
  Identity identity;
  ASSIGN_OR_RETURN(identity.certificate, ReadFile(folder + "/tls.crt"));
  ASSIGN_OR_RETURN(identity.key, ReadFile(folder + "/tls.key"));
  ASSIGN_OR_RETURN(identity.authority, ReadFile(folder + "/ca.crt"));
  const auto facts = ReadCertificate(identity.certificate);
  // Whether it has expired is the peers' to judge: they would say so in every handshake.
  const absl::Status good =
      facts.ok() ? Verify(identity, facts->validity.from + absl::Seconds(1)) : facts.status();
  if (good.ok()) return identity;
  return absl::InvalidArgumentError(
      absl::StrCat(folder, " (tls.crt, tls.key, ca.crt): ", Text(std::string(good.message()))));
}

}  // namespace starling::tls
