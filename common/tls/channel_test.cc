// SPDX-License-Identifier: Apache-2.0
#include "common/tls/channel.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tls/tls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::tls {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kRecord = Channel::kRecordBytes + Channel::kOverheadBytes;
const std::string kKey(32, 'k');

// What is on its way to one end.
struct Wire {
  std::string bytes;
  std::size_t at_once = 1 << 20;  // a read gives no more
  bool ended = false;

  absl::StatusOr<std::size_t> Read(std::span<std::byte> into) {
    if (bytes.empty() && ended) return absl::UnavailableError("the wire ended");
    const std::size_t size = std::min({into.size(), at_once, bytes.size()});
    std::memcpy(into.data(), bytes.data(), size);
    bytes.erase(0, size);
    return size;
  }
};

struct End {
  End(const Channels& channels, Channel::Side side, const std::string& key)
      : channel(channels.Make(side, key)) {}

  absl::StatusOr<bool> Shake() {
    return channel->Shake([this](std::span<std::byte> into) { return in.Read(into); });
  }
  // All that can be read, or why nothing more can.
  absl::Status ReadInto(std::string& text, std::size_t at_once = 5000) {
    std::string part(at_once, '\0');
    while (true) {
      const auto read =
          channel->Decrypt(std::as_writable_bytes(std::span(part)),
                           [this](std::span<std::byte> into) { return in.Read(into); });
      if (!read.ok()) return read.status();
      if (*read == 0) return absl::OkStatus();
      text.append(part, 0, *read);
    }
  }
  absl::Status Write(const std::string& text) {
    return channel->Encrypt(std::as_bytes(std::span(text)));
  }
  std::string Take() {
    const auto out = channel->outgoing();
    std::string bytes(reinterpret_cast<const char*>(out.data()), out.size());
    channel->Sent(bytes.size());
    return bytes;
  }

  std::unique_ptr<Channel> channel;
  Wire in;
};

struct Pair {
  explicit Pair(const Channels& channels = Channels(), const std::string& server_key = kKey)
      : client(channels, Channel::Side::kClient, kKey),
        server(channels, Channel::Side::kServer, server_key) {}

  // Both ends' statuses, once neither goes on.
  std::pair<absl::StatusOr<bool>, absl::StatusOr<bool>> Shake() {
    absl::StatusOr<bool> one = false, other = false;
    for (int turn = 0; turn < 5; ++turn) {
      one = client.Shake();
      server.in.bytes += client.Take();
      other = server.Shake();
      client.in.bytes += server.Take();
    }
    return {one, other};
  }
  void MustShake() {
    const auto [one, other] = Shake();
    ASSERT_TRUE(one.ok() && *one) << one.status();
    ASSERT_TRUE(other.ok() && *other) << other.status();
  }

  End client;
  End server;
};

std::string Text(std::size_t size) {
  std::string text;
  while (text.size() < size) absl::StrAppend(&text, "number ", text.size(), ", ");
  text.resize(size);
  return text;
}

TEST(Channel, EachEndReadsWhatTheOtherWrote) {
  for (const std::size_t at_once : {std::size_t{1}, std::size_t{7}, std::size_t{1} << 20}) {
    Pair pair;
    pair.client.in.at_once = pair.server.in.at_once = at_once;
    pair.MustShake();
    for (const std::size_t size : {1, 16384, 16385, 100'000}) {
      std::string read;
      ASSERT_EQ(pair.client.Write(Text(size)), absl::OkStatus());
      pair.server.in.bytes += pair.client.Take();
      EXPECT_EQ(pair.server.ReadInto(read), absl::OkStatus());
      EXPECT_EQ(read, Text(size));
      ASSERT_EQ(pair.server.Write(read), absl::OkStatus());
      pair.client.in.bytes += pair.server.Take();
      EXPECT_EQ(pair.client.ReadInto(read), absl::OkStatus());
      EXPECT_EQ(read, Text(size) + Text(size));
    }
  }
}

TEST(Channel, EmptyWritesAreNothing) {
  Pair pair;
  pair.MustShake();
  EXPECT_EQ(pair.client.Write(""), absl::OkStatus());
  EXPECT_EQ(pair.client.Take(), "");
}

TEST(Channel, RecordsAddWhatIsSaidAndAreCounted) {
  Pair pair;
  pair.MustShake();
  ASSERT_EQ(pair.client.Write(Text(3 * Channel::kRecordBytes + 1)), absl::OkStatus());
  EXPECT_EQ(pair.client.channel->outgoing().size(), 3 * kRecord + 1 + Channel::kOverheadBytes);
  EXPECT_EQ(pair.client.channel->records_encrypted(), 4U);
  std::string read;
  pair.server.in.bytes = pair.client.Take().substr(0, 3 * kRecord + 5);
  EXPECT_EQ(pair.server.ReadInto(read), absl::OkStatus());
  EXPECT_EQ(pair.server.channel->records_decrypted(), 3U);
}

TEST(Channel, WhatTravelsShowsNothingOfWhatWasWritten) {
  Pair pair;
  pair.MustShake();
  ASSERT_EQ(pair.client.Write(Text(50'000)), absl::OkStatus());
  const std::string travels = pair.client.Take();
  EXPECT_THAT(Text(50'000), HasSubstr("number 1")) << "so this can fail";
  EXPECT_THAT(travels, Not(HasSubstr("number 1")));
}

TEST(Channel, KeysAreNewInEachConnectionAndTheSharedOneAloneReadsNothing) {
  Pair one, other;
  ASSERT_FALSE(*one.client.Shake());
  const std::string hello = one.client.Take();
  // psk_key_exchange_modes, 2 bytes: one mode, psk_dhe_ke. So every key depends on the curve.
  EXPECT_THAT(hello, HasSubstr(std::string("\x00\x2d\x00\x02\x01\x01", 6)));
  one.server.in.bytes = hello;
  one.MustShake();
  other.MustShake();
  ASSERT_EQ(one.client.Write("the same"), absl::OkStatus());
  ASSERT_EQ(other.client.Write("the same"), absl::OkStatus());
  other.server.in.bytes = one.client.Take();
  std::string read;
  EXPECT_EQ(other.server.ReadInto(read).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(read, "");
}

TEST(Channel, AnotherKeyIsRefusedAtBothEnds) {
  Pair pair(Channels(), std::string(32, 'x'));
  const auto [client, server] = pair.Shake();
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnauthenticated) << client.status();
  EXPECT_EQ(server.status().code(), absl::StatusCode::kUnauthenticated) << server.status();
  EXPECT_THAT(server.status().message(), HasSubstr("binder"));
}

TEST(Channel, NonsenseIsNoHandshake) {
  for (const auto side : {Channel::Side::kClient, Channel::Side::kServer}) {
    for (const std::string& nonsense :
         {std::string(1000, 'x'), std::string(1000, '\0'), std::string("GET / HTTP/1.1\r\n\r\n")}) {
      const Channels channels;
      End end(channels, side, kKey);
      end.in.bytes = nonsense;
      const auto shaken = end.Shake();
      EXPECT_EQ(shaken.status().code(), absl::StatusCode::kUnauthenticated) << shaken.status();
      EXPECT_EQ(end.Shake().status(), shaken.status()) << "the same in every later call";
    }
  }
}

TEST(Channel, HandshakeThatStopsIsNotDoneAndSaysWhenTheWireEnds) {
  Pair whole;
  ASSERT_FALSE(*whole.client.Shake());
  const std::string hello = whole.client.Take();
  const Channels channels;
  for (std::size_t size = 0; size < hello.size(); size += 1 + size / 4) {
    End server(channels, Channel::Side::kServer, kKey);
    server.in.bytes = hello.substr(0, size);
    const auto shaken = server.Shake();
    ASSERT_TRUE(shaken.ok()) << shaken.status();
    EXPECT_FALSE(*shaken);
    server.in.ended = true;
    EXPECT_EQ(server.Shake().status(), absl::UnavailableError("the wire ended"));
  }
}

// --- What somebody on the way does to records.

struct Traveller {
  Traveller() {
    pair.MustShake();
    for (const char* text : {"first", "second", "third"}) {
      EXPECT_EQ(pair.client.Write(text), absl::OkStatus());
      records.push_back(pair.client.Take());
    }
  }
  // What is read of them, or the error.
  std::string ReadAs(const std::string& bytes) {
    pair.server.in.bytes = bytes;
    std::string read;
    const absl::Status status = pair.server.ReadInto(read);
    if (status.ok()) return read;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(status.message(), HasSubstr("the encrypted connection is broken"));
    EXPECT_EQ(pair.server.Write("answer"), status) << "the same in every later call";
    return read + "|broken";
  }

  Pair pair;
  std::vector<std::string> records;
};

TEST(Channel, UntouchedRecordsAreReadSoThatTheOtherCasesCanFail) {
  Traveller traveller;
  EXPECT_EQ(traveller.ReadAs(traveller.records[0] + traveller.records[1] + traveller.records[2]),
            "firstsecondthird");
}

TEST(Channel, ChangedByteEndsItWhereverItIs) {
  const std::size_t size = Traveller().records[0].size();
  for (std::size_t at = 0; at < size; ++at) {
    Traveller traveller;
    traveller.records[0][at] ^= 1;
    // A longer record is waited for, and shows when it is whole.
    const std::string more = traveller.records[1] + Text(70'000);
    EXPECT_EQ(traveller.ReadAs(traveller.records[0] + more), "|broken") << at;
  }
}

TEST(Channel, RepeatedRecordEndsIt) {
  Traveller traveller;
  EXPECT_EQ(traveller.ReadAs(traveller.records[0] + traveller.records[0]), "first|broken");
}

TEST(Channel, MissingRecordEndsIt) {
  Traveller traveller;
  EXPECT_EQ(traveller.ReadAs(traveller.records[0] + traveller.records[2]), "first|broken");
}

TEST(Channel, RecordSentBackEndsIt) {
  Traveller traveller;
  traveller.pair.client.in.bytes = traveller.records[0];
  std::string read;
  EXPECT_EQ(traveller.pair.client.ReadInto(read).code(), absl::StatusCode::kInternal);
}

TEST(Channel, NonsenseBetweenRecordsEndsIt) {
  for (const std::string& nonsense : {std::string(100, 'x'), std::string(100, '\0'),
                                      std::string("\x17\x03\x03\x00\x00", 5) + std::string(90, 'x'),
                                      std::string("\x17\x03\x03\xff\xff", 5) + std::string(90, 'x'),
                                      std::string("\x15\x03\x03\x00\x02\x02\x28", 7)}) {
    Traveller traveller;
    EXPECT_EQ(traveller.ReadAs(traveller.records[0] + nonsense), "first|broken");
  }
}

TEST(Channel, OtherEndHearsWhyItEnds) {
  Traveller traveller;
  EXPECT_EQ(traveller.ReadAs(std::string(100, 'x')), "|broken");
  traveller.pair.client.in.bytes = traveller.pair.server.Take();
  std::string read;
  EXPECT_THAT(traveller.pair.client.ReadInto(read).message(), HasSubstr("alert"));
}

constexpr int kRecords = 100;

TEST(Channel, KeysAreReplacedAfterSoManyRecords) {
  const auto travelled = [](std::uint64_t records_per_key) {
    Pair pair{Channels(records_per_key)};
    pair.MustShake();
    std::size_t bytes = 0;
    std::string read, expected;
    for (int i = 0; i < kRecords; ++i) {
      const std::string text = absl::StrCat("record ", i);
      expected += text;
      EXPECT_EQ(pair.client.Write(text), absl::OkStatus());
      EXPECT_EQ(pair.server.Write(text), absl::OkStatus());
      pair.server.in.bytes += pair.client.Take();
      bytes += pair.server.in.bytes.size();
      EXPECT_EQ(pair.server.ReadInto(read), absl::OkStatus());
      pair.client.in.bytes += pair.server.Take();
    }
    EXPECT_EQ(read, expected);
    std::string answers;
    EXPECT_EQ(pair.client.ReadInto(answers), absl::OkStatus());
    EXPECT_EQ(answers, expected);
    EXPECT_EQ(pair.server.channel->records_decrypted(), static_cast<std::uint64_t>(kRecords));
    return bytes;
  };
  // A key update is a record of five bytes.
  EXPECT_EQ(travelled(3) - travelled(Channels::kRecordsPerKey),
            (kRecords - 1) / 3 * (5 + Channel::kOverheadBytes));
}

// --- Ends that are not ours.

using Ssl = std::unique_ptr<SSL, decltype(&SSL_free)>;

// An ordinary end over memory, with a certificate if it is a server.
Ssl Ordinary(SSL_CTX* context, Channel::Side side) {
  if (side == Channel::Side::kServer) {
    const auto authority =
        *Authority::Create(Key::Generate(), "somebody", ValidFrom(absl::Now(), absl::Hours(1)));
    const Identity leaf = *authority.Issue({.dns_names = {"somebody.starling"},
                                            .usage = Usage::kBoth,
                                            .validity = ValidFrom(absl::Now(), absl::Hours(1))});
    BIO* const certificate = BIO_new_mem_buf(leaf.certificate.data(), -1);
    X509* const parsed = PEM_read_bio_X509(certificate, nullptr, nullptr, nullptr);
    SSL_CTX_use_certificate(context, parsed);
    X509_free(parsed);
    BIO_free(certificate);
    SSL_CTX_use_PrivateKey(context, Key::FromPem(leaf.key)->get());
  }
  Ssl ssl(SSL_new(context), SSL_free);
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  BIO_set_mem_eof_return(SSL_get_rbio(ssl.get()), -1);
  side == Channel::Side::kServer ? SSL_set_accept_state(ssl.get())
                                 : SSL_set_connect_state(ssl.get());
  return ssl;
}

// Our end's status, once neither goes on.
absl::StatusOr<bool> ShakeWith(SSL* other, End& ours) {
  absl::StatusOr<bool> shaken = false;
  for (int turn = 0; turn < 5; ++turn) {
    (void)SSL_do_handshake(other);
    char buffer[4096];
    int size = 0;
    while ((size = BIO_read(SSL_get_wbio(other), buffer, sizeof buffer)) > 0) {
      ours.in.bytes.append(buffer, static_cast<std::size_t>(size));
    }
    shaken = ours.Shake();
    const std::string answer = ours.Take();
    if (!answer.empty()) {
      (void)BIO_write(SSL_get_rbio(other), answer.data(), static_cast<int>(answer.size()));
    }
  }
  return shaken;
}

TEST(Channel, ServerWithACertificateInsteadOfTheKeyIsNotBelieved) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_method()),
                                                                  SSL_CTX_free);
  const Ssl server = Ordinary(context.get(), Channel::Side::kServer);
  const Channels channels;
  End client(channels, Channel::Side::kClient, kKey);
  const auto shaken = ShakeWith(server.get(), client);
  EXPECT_EQ(shaken.status().code(), absl::StatusCode::kUnauthenticated) << shaken.status();
  EXPECT_THAT(shaken.status().message(), HasSubstr("certificate"));
}

TEST(Channel, ClientWithoutTheKeyIsRefused) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_method()),
                                                                    SSL_CTX_free);
    SSL_CTX_set_max_proto_version(context.get(), version);
    const Ssl client = Ordinary(context.get(), Channel::Side::kClient);
    const Channels channels;
    End server(channels, Channel::Side::kServer, kKey);
    const auto shaken = ShakeWith(client.get(), server);
    EXPECT_EQ(shaken.status().code(), absl::StatusCode::kUnauthenticated) << shaken.status();
  }
}

}  // namespace
}  // namespace starling::tls
