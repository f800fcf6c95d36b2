// SPDX-License-Identifier: Apache-2.0
// A ring's edges: when it is full or empty to the last byte, and who is woken. What it carries, and
// what a bad peer can do, is in shm_test.cc.
#include "trainer/transport/shm_ring.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::transport {
namespace {

using ::testing::Each;

// Both ends of one in private memory.
class Ends {
 public:
  explicit Ends(std::size_t capacity = 256)
      : data(capacity),
        writer({&control, data.data(), capacity}),
        reader({&control, data.data(), capacity}) {}

  Moved Write(std::size_t bytes, std::byte value = std::byte{1}) {
    std::vector<std::byte> from(bytes, value);
    const iovec piece{from.data(), from.size()};
    return Checked(writer.Write(std::span(&piece, 1)));
  }
  bool WriteLast(std::size_t bytes) {
    return writer.WriteLast(std::vector<std::byte>(bytes)).bytes == bytes;
  }
  Moved Read(std::size_t bytes) {
    std::vector<std::byte> to(bytes);
    const iovec piece{to.data(), to.size()};
    return Checked(reader.Read(std::span(&piece, 1)));
  }

  RingControl control;
  std::vector<std::byte> data;
  RingWriter writer;
  RingReader reader;

 private:
  static Moved Checked(const absl::StatusOr<Moved>& moved) {
    EXPECT_EQ(moved.status(), absl::OkStatus());
    return moved.value_or(Moved{});
  }
};

TEST(RingEdges, AFarewellMayFillTheRingToItsLastByte) {
  Ends ends;
  EXPECT_EQ(ends.Write(1000).bytes, 256 - kReservedForLast);
  EXPECT_TRUE(ends.WriteLast(kReservedForLast));
}

TEST(RingEdges, OneThatIsFullToItsLastByteIsNoErrorForEitherEnd) {
  Ends ends;
  ends.Write(1000);
  ASSERT_TRUE(ends.WriteLast(kReservedForLast));
  EXPECT_EQ(ends.Write(1).bytes, 0);
  EXPECT_FALSE(ends.writer.Ready());
  EXPECT_EQ(ends.Read(1000).bytes, 256);
}

TEST(RingEdges, NothingIsWrittenOverAFarewell) {
  Ends ends;
  ends.Write(1000, std::byte{9});
  ASSERT_TRUE(ends.WriteLast(kReservedForLast - 1));
  EXPECT_EQ(ends.Write(200, std::byte{7}).bytes, 0);
  EXPECT_THAT(std::span(ends.data).first(256 - kReservedForLast), Each(std::byte{9}));
  EXPECT_THAT(std::span(ends.data).last(kReservedForLast), Each(std::byte{0}));
}

TEST(RingEdges, AWriterIsReadyWhileThereIsRoomOrTheReadersCountIsAnError) {
  Ends ends;
  EXPECT_TRUE(ends.writer.Ready());
  ends.Write(1000);
  EXPECT_FALSE(ends.writer.Ready());
  ends.control.read = 257;
  EXPECT_TRUE(ends.writer.Ready());
}

TEST(RingEdges, OneByteIsEnoughToRead) {
  Ends ends;
  EXPECT_FALSE(ends.reader.Ready());
  ends.Write(1);
  EXPECT_TRUE(ends.reader.Ready());
  EXPECT_EQ(ends.Read(1000).bytes, 1);
}

TEST(RingEdges, AWriteOfNothingWakesNobody) {
  Ends ends;
  ends.reader.Arm();
  EXPECT_FALSE(ends.writer.Write({})->ring);
  EXPECT_TRUE(ends.Write(1).ring) << "it still sleeps";
}

TEST(RingEdges, WhoWasWokenForTheFirstPortionIsWokenThoughAShorterOneFollows) {
  Ends ends(64 << 10);
  ends.reader.Arm();
  EXPECT_TRUE(ends.Write((32 << 10) + 1).ring);
}

TEST(RingEdges, AReaderWakesNoWriterThatIsAwake) {
  Ends ends;
  ends.Write(10);
  EXPECT_FALSE(ends.Read(10).ring);
}

TEST(RingEdges, AReaderWakesTheWriterWhenHalfOfTheRingIsFree) {
  Ends ends;
  ends.Write(129 + 10);
  ends.writer.Arm();
  EXPECT_FALSE(ends.Read(10).ring) << "129 bytes are left";
  EXPECT_TRUE(ends.Read(1).ring);
}

}  // namespace
}  // namespace starling::transport
