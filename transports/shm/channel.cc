#include "transports/shm/channel.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/stream_copy.h"

namespace unisono::shm {
namespace {

#ifdef UNISONO_PLANT_MISSING_RELEASE
constexpr std::memory_order kPublish =
    std::memory_order_relaxed;  // the bug that a thread sanitizer must find
#else
constexpr std::memory_order kPublish = std::memory_order_release;
#endif

std::atomic<uint32_t>& never_asleep() {
  static std::atomic<uint32_t> word{0};
  return word;
}

using Word = uint64_t;
template <class T>
inline void copy_word(std::byte* to, const std::byte* from) {
  T word;
  std::memcpy(&word, from, sizeof word);
  std::memcpy(to, &word, sizeof word);
}

// At most kInlineBytes, in words of which the last may overlap the one before: a call of memcpy
// would cost as much as all the rest of a send.
inline void copy_inline(std::byte* to, const std::byte* from, uint32_t bytes) {
  if (bytes >= sizeof(Word)) {
    for (uint32_t i = 0; i + sizeof(Word) <= bytes; i += sizeof(Word))
      copy_word<Word>(to + i, from + i);
    copy_word<Word>(to + bytes - sizeof(Word), from + bytes - sizeof(Word));
  } else if (bytes >= 4) {
    copy_word<uint32_t>(to, from);
    copy_word<uint32_t>(to + bytes - 4, from + bytes - 4);
  } else if (bytes > 0) {
    to[0] = from[0];
    to[bytes / 2] = from[bytes / 2];
    to[bytes - 1] = from[bytes - 1];
  }
}

// Takes a line for writing ahead of time. Without it each message would first wait for the line to
// be taken from the reader, who has it from the message that used it last, and then be fetched by
// him: two trips instead of one.
inline void take_line([[maybe_unused]] const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// Maps all eager slots at once. Otherwise each of the first messages would meet a page that is not
// there yet: dozens of faults, on both sides, among the first calls.
void map_eager_slots(const std::byte* slots, bool write) {
#ifndef MADV_POPULATE_WRITE
  constexpr int MADV_POPULATE_READ = 22, MADV_POPULATE_WRITE = 23;
#endif
  // Before Linux 5.14 this fails, and the pages come one by one.
  (void)::madvise(const_cast<std::byte*>(slots), kDescriptors * kEagerStride,
                  write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

constexpr uint64_t kRefill = 16;  // messages
constexpr uint64_t kSampleAfter = 3;
constexpr uint32_t kLeastStreamed = 2048;  // below, the trips of a few lines are all there is
constexpr uint32_t kTakenBytes =
    1024;  // of an eager slot, taken ahead: as many lines as fly at once

}  // namespace

void ring(std::atomic<uint32_t>& sleeping, int bell) {
  // Taking the flag makes this the one call that rings; the sleeper sets it again before it sleeps
  // again.
  if (sleeping.exchange(0, std::memory_order_acq_rel) == 0) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell, &one, sizeof one);
}

ShmSendEnd::ShmSendEnd(const ChannelKey& key, const ChannelShape& shape, Segment& own,
                       uint64_t offset, std::vector<Peer*> readers,
                       const std::map<uint64_t, Registered>& registered, StickyStatus& status)
    : key_(key),
      shape_(shape),
      layout_(
          block_layout(shape, key.reader == kEveryone ? static_cast<uint32_t>(readers.size()) : 1)),
      ring_(reinterpret_cast<Descriptor*>(own.base() + offset + layout_.descriptors)),
      eager_(own.base() + offset + layout_.eager),
      arena_(own.base() + offset + layout_.arena),
      unresolved_(0),
      registered_(registered),
      status_(status) {
  auto* lines = reinterpret_cast<ReleasedLine*>(own.base() + offset);
  for (size_t i = 0; i < readers.size(); ++i) {
    if (readers[i] == nullptr) continue;  // ourselves, among everyone
    readers_.push_back({&lines[i].count, static_cast<uint32_t>(i), nullptr, -1, readers[i]});
  }
  unresolved_ = readers_.size();
  // Until a link is up its reader's flag is a word that never says "asleep", and each send looks
  // again.
  for (Reader& reader : readers_) reader.sleeping = &never_asleep();
  resolve_readers();
}

SendOutcome ShmSendEnd::send(const MessageHeader& header, const void* data) {
  CHECK(header.bytes <= shape_.slice_bytes);
  if (__builtin_expect(reserved_, 0)) cancel_reservation();
  if (header.bytes <= kInlineBytes) {
    if (!has_descriptor()) return refuse();
    copy_inline(descriptor().payload, static_cast<const std::byte*>(data), header.bytes);
    publish(header, kInline);
    return SendOutcome::kDone;
  }
  if (header.bytes <= kEagerBytes) {
    if (!has_descriptor()) return refuse();
    if (__builtin_expect(!eager_mapped_, 0)) {
      map_eager_slots(eager_, true);
      eager_mapped_ = true;
    }
    store(eager_ + descriptor_index(sent_) * kEagerStride, data, header.bytes);
    publish_timed(header, kEager);
    return SendOutcome::kDone;
  }
  uint64_t offset = 0;
  if (!has_descriptor() || !place(header.bytes, &offset)) return refuse();
  store(arena_ + offset, data, header.bytes);
  publish_timed(header, static_cast<uint32_t>(offset) | kInArena);
  return SendOutcome::kDone;
}

inline void ShmSendEnd::store(std::byte* slot, const void* data, uint32_t bytes) {
  if (streams(bytes)) {
    stream_copy(slot, data, bytes);
  } else {
    std::memcpy(slot, data, bytes);
  }
}

std::byte* ShmSendEnd::reserve() {
  if (!reserved_) {
    // Room for a whole slice is found now; commit() takes no more than the message needs.
    const uint64_t offset_before = next_offset_, taken_before = taken_;
    if (!has_descriptor() || !place(shape_.slice_bytes, &reserved_offset_)) {
      refuse();
      return nullptr;
    }
    reserved_ = true;
    reserved_from_ = {offset_before, taken_before};
  }
  return arena_ + reserved_offset_;
}

void ShmSendEnd::commit(const MessageHeader& header) {
  CHECK(header.bytes <= shape_.slice_bytes && reserved_);
  if (header.bytes <= kInlineBytes) {
    cancel_reservation();
    copy_inline(descriptor().payload, arena_ + reserved_offset_, header.bytes);
    publish(header, kInline);
    return;
  }
  reserved_ = false;
  const uint64_t unused = layout_.slice_stride - round_up(header.bytes, kLineBytes);
  next_offset_ -= unused;
  taken_ -= unused;
  publish_timed(header, static_cast<uint32_t>(reserved_offset_) | kInArena);
}

// The arena is used once before its messages are timed: pages that are met for the first time would
// be what is measured.
bool ShmSendEnd::streams(uint32_t bytes) {
  // Short ones to several readers stay in the cache: those who share a core with the writer find
  // them there (4 ranks of two cores, 4 KiB: 6.2 us, or 7.0 where one reader's word decided).
  if (bytes < kLeastStreamed || (bytes <= kEagerBytes && readers_.size() > 1)) return false;
  if (__builtin_expect(timed_.state == timed_.kReading, 0)) look_for_sample();
  if (bytes > kEagerBytes && taken_ <= layout_.arena_bytes) return false;
  const StoreChooser::Choice choice = stores_.next(bytes);
  if (choice.timed && timed_.state != timed_.kReading) {
    timed_ = {timed_.kWriting, choice.streaming, bytes, sent_, ticks()};
  }
  return choice.streaming;
}

// Of the message that was timed last. (A reader that lies spoils our speed, as one who dawdles.)
// Its reader is given some messages' time; whoever has not read it half a ring later is slow for
// other reasons.
void ShmSendEnd::look_for_sample() {
  const uint64_t later = sent_ - timed_.message;
  if (later < kSampleAfter) return;
  if (released_ <= timed_.message) refresh();
  const bool released = released_ > timed_.message;
  if (!released && later < kDescriptors / 2) return;
  timed_.state = timed_.kNone;
  if (!released || later >= kDescriptors) return;
  uint64_t reading = 0;
  const Descriptor& slot = ring_[descriptor_index(timed_.message)];
  std::memcpy(&reading, slot.payload + kFirstLineBytes, sizeof reading);
  stores_.sample(timed_.bytes, timed_.streaming, timed_.ticks + reading);
}

void ShmSendEnd::publish_timed(const MessageHeader& header, uint32_t where) {
  if (__builtin_expect(timed_.state == timed_.kWriting, 0)) {
    timed_.state = timed_.kNone;
    if (timed_.message == sent_ && timed_.bytes == header.bytes) {
      timed_.state = timed_.kReading;
      timed_.ticks = ticks() - timed_.ticks;
      timer_ = (timer_ + 1) % static_cast<uint32_t>(readers_.size());
      const Timing timing{readers_[timer_].counter};
      std::memcpy(descriptor().payload, &timing, sizeof timing);
      where |= kTimed;
    }
  }
  publish(header, where);
}

void ShmSendEnd::cancel_reservation() {
  reserved_ = false;
  next_offset_ = reserved_from_.offset;
  taken_ = reserved_from_.taken;
}

SendOutcome ShmSendEnd::send_reference(const MessageHeader& header, const void* data,
                                       uint64_t registration) {
  const auto found = registered_.find(registration);
  const auto* bytes = static_cast<const std::byte*>(data);
  // Small messages ride in the descriptor anyway; memory that the peers cannot see is copied.
  if (header.bytes <= kInlineBytes || found == registered_.end() || !found->second.shared ||
      bytes < found->second.address ||
      bytes + header.bytes > found->second.address + found->second.bytes) {
    return send(header, data);
  }
  CHECK(header.bytes <= shape_.slice_bytes);
  if (reserved_) cancel_reservation();
  if (!has_descriptor()) return refuse();
  const Reference reference{registration, static_cast<uint64_t>(bytes - found->second.address)};
  std::memcpy(descriptor().payload, &reference, sizeof reference);
  last_reference_ = sent_ + 1;
  publish(header, kByReference);
  return SendOutcome::kPosted;
}

uint64_t ShmSendEnd::completed() const {
  if (released_ < last_reference_) refresh();
  completed_ = std::max(completed_, released_ < last_reference_ ? released_ : sent_);
  reported_ = completed_;
  return completed_;
}

// A contiguous piece of the arena ring, in whole lines. False: not free yet.
bool ShmSendEnd::place(uint32_t bytes, uint64_t* offset) {
  const uint64_t need = round_up(bytes, kLineBytes);
  const bool wraps = next_offset_ + need > layout_.arena_bytes;
  const uint64_t take = need + (wraps ? layout_.arena_bytes - next_offset_ : 0);
  if (taken_ - freed_ + take > layout_.arena_bytes) {
    if (!refresh() || taken_ - freed_ + take > layout_.arena_bytes) return false;
  }
  *offset = wraps ? 0 : next_offset_;
  next_offset_ = *offset + need;
  taken_ += take;
  return true;
}

// Reads the readers' counters. True: credit has come back.
bool ShmSendEnd::refresh() const {
  uint64_t slowest = sent_;
  for (const Reader& reader : readers_) {
    const uint64_t count = reader.released->load(std::memory_order_acquire);
    if (count > sent_ || count < released_) {
      status_.fail(error(Code::kRemoteError, "rank {} released messages that were never sent",
                         reader.peer->rank));
      return false;
    }
    slowest = std::min(slowest, count);
  }
  if (slowest == released_) return false;
  released_ = slowest;
  freed_ = taken_after_[(slowest - 1) & (kDescriptors - 1)];
  return true;
}

// Once the ring was full, a writer that is faster than its reader would go on one message at a
// time, each at the price of two lines that both write. So it waits until some room has come
// together. It comes: a reader holds no more than its slots, and the rest of the ring is there to
// be read.
bool ShmSendEnd::refill() {
  const uint64_t less = std::max<uint64_t>(kDescriptors - kRefill, shape_.slots);
  refresh();
  const bool found = sent_ - released_ < most_in_flight_;
  most_in_flight_ = found ? kDescriptors : less;
  return found;
}

void ShmSendEnd::publish(const MessageHeader& header, uint32_t where) {
  Descriptor& slot = descriptor();
  slot.fingerprint = header.fingerprint;
  slot.bytes = header.bytes;
  slot.where = where;
  taken_after_[sent_ & (kDescriptors - 1)] = taken_;
  ++sent_;
  slot.sequence.store(sent_, kPublish);
  starved_ = false;
  wake_readers();
  take_ahead(header.bytes);
}

// Takes the lines of the descriptor after the next: the reader may be polling the next already.
inline void ShmSendEnd::take_ahead(uint32_t bytes) {
  if (__builtin_expect(!is_free_ahead(), 0)) return;
  const auto* later = reinterpret_cast<const std::byte*>(&ring_[descriptor_index(sent_ + 1)]);
  take_line(later);
  if (bytes > kFirstLineBytes && bytes <= kInlineBytes) take_line(later + kLineBytes);
}

// Payload's lines, supposing that the message after the next is as long. Only where the answer is
// waited for anyway: a writer who runs ahead of his reader would stand still for each line
// (broadcast of 4 KiB: 1.9 us with, 0.7 without; all-reduce of 1 KiB: 0.34 with, 0.43 without).
void ShmSendEnd::prepare_next(uint32_t bytes) {
  if (bytes <= kInlineBytes || bytes > kEagerBytes) return;
  if (__builtin_expect(!is_free_ahead(), 0)) return;
  const std::byte* slot = eager_ + descriptor_index(sent_ + 1) * kEagerStride;
  const uint32_t most = std::min(bytes, kTakenBytes);
  for (uint32_t at = 0; at < most; at += kLineBytes) take_line(slot + at);
}

void ShmSendEnd::wake_readers() {
  publish_barrier(fence_, readers_.front().released[0]);
  for (const Reader& reader : readers_) {
    if (__builtin_expect(reader.sleeping->load(std::memory_order_relaxed) != 0, 0)) {
      ring(*reader.sleeping, reader.bell);
    }
  }
  if (__builtin_expect(unresolved_ != 0, 0)) resolve_readers();
}

// Looks for links that have come up. The order of "message stored" before "link up?" is full:
// whoever brings the link up (Links::come_up) does the reverse and rings afterwards, so a message
// is never missed by both.
void ShmSendEnd::resolve_readers() {
  static std::atomic<uint32_t> order{0};
  order.fetch_add(1, std::memory_order_seq_cst);
  for (Reader& reader : readers_) {
    if (reader.bell != -1) continue;
    const PeerState state = reader.peer->state.load();
    if (state == PeerState::kWaiting) continue;
    reader.bell = -2;  // nobody there to ring for
    --unresolved_;
    if (!reader.peer->linked()) continue;
    reader.bell = reader.peer->bell.get();
    fence_ = fence_ || reader.peer->fence;
    reader.sleeping = &reader.peer->segment->header().sleeping;
    if (reader.sleeping->load() != 0) ring(*reader.sleeping, reader.bell);
  }
}

SendOutcome ShmSendEnd::refuse() {
  starved_ = true;
  return SendOutcome::kAgain;
}

// Each piece of news is told once: who does not act on it must not be kept from sleeping.
bool ShmSendEnd::take_news() {
  if (!starved_ && last_reference_ <= reported_) return false;
  const uint64_t released_before = released_;
  refresh();
  bool news = false;
  if (starved_ && released_ != released_before) {
    starved_ = false;
    news = true;
  }
  if (last_reference_ > reported_ && released_ > reported_) {
    reported_ = released_;
    news = true;
  }
  return news;
}

ShmRecvEnd::ShmRecvEnd(const ChannelKey& key, const ChannelShape& shape, int32_t rank,
                       int32_t ranks, Peer& writer, ReadClock& clock, StickyStatus& status)
    : key_(key),
      shape_(shape),
      layout_(block_layout(shape, key.reader == kEveryone ? static_cast<uint32_t>(ranks) : 1)),
      counter_(key.reader == kEveryone ? static_cast<uint32_t>(rank) : 0),
      writer_(writer),
      clock_(clock),
      status_(status) {}

bool ShmRecvEnd::lend(Message* message) {
  if (__builtin_expect(ring_ == nullptr, 0) && !resolve()) return false;
  Descriptor& slot = ring_[descriptor_index(next_)];
  if (slot.sequence.load(std::memory_order_acquire) != next_ + 1) return false;
  const uint32_t bytes = read_once(slot.bytes);
  const uint32_t where = read_once(slot.where);
  if (__builtin_expect(bytes > shape_.slice_bytes, 0)) return fail("a message beyond the slice");
  message->header.fingerprint = slot.fingerprint;
  message->header.bytes = bytes;
  if (where == kInline) {
    if (bytes > kInlineBytes) return fail("a long message in a descriptor");
    message->data = slot.payload;
    return true;
  }
  const bool lent = lend_far(slot, where, message);
  clock_.lent();
  return lent;
}

// Of the message about to be lent, if this reader is the one to time it.
void ShmRecvEnd::begin_timing(Descriptor& descriptor) {
  Timing timing;
  std::memcpy(&timing, descriptor.payload, sizeof timing);
  if (timing_ != nullptr || timing.reader != counter_) return;
  timing_ = descriptor.payload + kFirstLineBytes;
  ++clock_.running;
}

bool ShmRecvEnd::lend_far(Descriptor& descriptor, uint32_t where, Message* message) {
  const uint64_t bytes = message->header.bytes;
  if (__builtin_expect((where & kTimed) != 0, 0)) begin_timing(descriptor);
  where &= ~kTimed;
  if ((where & kWhereMask) == kInArena) {
    if (where + bytes > layout_.arena_bytes) return fail("a message beyond its arena");
    message->data = arena_ + where;
    return true;
  }
  if (where == kEager) {
    if (bytes > kEagerBytes) return fail("a long message in an eager slot");
    if (__builtin_expect(!eager_mapped_, 0)) {
      map_eager_slots(eager_, false);
      eager_mapped_ = true;
    }
    message->data = eager_ + descriptor_index(next_) * kEagerStride;
    return true;
  }
  if (where != kByReference) return fail("a message of unknown kind");
  Reference reference;
  std::memcpy(&reference, descriptor.payload, sizeof reference);
  const uint64_t offset = read_once(reference.offset);
  const Segment::View view = writer_.find_region(reference.registration, &hold_);
  if (view.address == nullptr) return false;  // its mapping is on the way; the event loop will ring
  if (offset > view.bytes || bytes > view.bytes - offset) return fail("a reference out of bounds");
  message->data = view.address + offset;
  return true;
}

void ShmRecvEnd::release() {
  CHECK(released_ != nullptr);
  ++next_;
  if (__builtin_expect(timing_ != nullptr, 0)) {
    const uint64_t reading = ticks() - clock_.since;
    --clock_.running;
    std::memcpy(std::exchange(timing_, nullptr), &reading, sizeof reading);
  }
  if (__builtin_expect(hold_ != nullptr, 0)) hold_.reset();
  released_->store(next_, std::memory_order_release);
  publish_barrier(fence_, *released_);
  if (__builtin_expect((writer_sleeping_->load(std::memory_order_relaxed) & kWantsCredit) != 0,
                       0)) {
    ring(*writer_sleeping_, writer_.bell.get());
  }
}

bool ShmRecvEnd::take_news() {
  if (ring_ == nullptr && !resolve()) return false;
  const Descriptor& slot = ring_[descriptor_index(next_)];
  if (reported_ == next_ + 1 || slot.sequence.load(std::memory_order_acquire) != next_ + 1) {
    return false;
  }
  reported_ = next_ + 1;
  return true;
}

// Looks the channel up in the writer's directory: not there until its link is up and it has opened
// its end.
bool ShmRecvEnd::resolve() {
  if (broken_ || !writer_.linked()) return false;
  Segment& segment = *writer_.segment;
  const uint32_t count = segment.header().directory_count.load(std::memory_order_acquire);
  if (count > kDirectoryEntries) return fail("a directory that is too long");
  for (; directory_scanned_ < count; ++directory_scanned_) {
    const DirectoryEntry& entry = segment.header().directory[directory_scanned_];
    if (entry.number != key_.number || entry.reader != key_.reader) continue;
    const uint64_t offset = read_once(entry.offset);
    if (entry.slice_bytes != shape_.slice_bytes || entry.slots != shape_.slots) {
      return fail("a channel of another shape");
    }
    if (offset % kPageBytes != 0 || offset < sizeof(SegmentHeader) || offset > segment.bytes() ||
        layout_.bytes > segment.bytes() - offset) {
      return fail("a channel beyond its segment");
    }
    std::byte* block = segment.base() + offset;
    released_ = &reinterpret_cast<ReleasedLine*>(block)[counter_].count;
    eager_ = block + layout_.eager;
    arena_ = block + layout_.arena;
    writer_sleeping_ = &segment.header().sleeping;
    fence_ = writer_.fence;
    ring_ = reinterpret_cast<Descriptor*>(block + layout_.descriptors);
    return true;
  }
  return false;
}

bool ShmRecvEnd::fail(const char* what) {
  broken_ = true;
  status_.fail(
      error(Code::kRemoteError, "rank {} wrote {} (channel {})", key_.writer, what, key_.number));
  return false;
}

}  // namespace unisono::shm
