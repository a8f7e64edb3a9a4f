#include "lab/rounds.hpp"
#include "lab/transfer/transfer_measurements.hpp"
#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <latch>
#include <span>
#include <thread>
#include <utility>

namespace terrace::tools {
namespace {

using enum Direction;

/// The size of one request's transfer: 16,384 tokens in blocks of 64. With blocks of 4 KiB this is one piece.
constexpr std::uint32_t transfer_blocks_max = 256;

/// One direction's part of a measurement.
struct Work {
  Direction direction = swap_out;
  std::vector<SlotPair> pairs;
  std::vector<SlotRun> plain;  ///< everything as one run
  std::vector<SlotRun> bare;   ///< cut into the same pieces as the lanes make
};

Work make_work(const TransferRig& rig, Direction direction, bool scattered) {
  const SlotId first = rig.first_slot(direction);
  Work work{.direction = direction, .pairs = {}, .plain = {{first, first, rig.blocks()}}, .bare = {}};
  const auto add = [&](std::uint32_t source, std::uint32_t destination) {
    work.pairs.push_back({SlotId{first.value() + source}, SlotId{first.value() + destination}});
  };
  if (scattered) {
    std::uint32_t destination = 0;
    for (const std::uint32_t source : scattered_order(rig.blocks())) add(source, destination++);
    for (const SlotPair& pair : work.pairs) work.bare.push_back({pair.source, pair.destination, 1});
    return work;
  }
  for (std::uint32_t i = 0; i < rig.blocks(); ++i) add(i, i);
  const std::uint64_t in_piece = std::clamp<std::uint64_t>(rig.pieces().bytes / rig.block_bytes(), 1, transfer_blocks_max);
  for (std::uint64_t at = 0; at < rig.blocks(); at += in_piece) {
    const SlotId slot{first.value() + static_cast<std::uint32_t>(at)};
    work.bare.push_back({slot, slot, static_cast<std::uint32_t>(std::min(in_piece, rig.blocks() - at))});
  }
  return work;
}

struct Moved {
  double seconds = 0;
  // Processor time of this thread.
  double submit_seconds = 0;
  double collect_seconds = 0;
};

/// Submits the transfers of all directions in turns, and waits for their end.
Moved move_all(TransferRig& rig, std::span<const Work> works, Urgency urgency) {
  Moved moved;
  const double collected = rig.collecting_seconds();
  moved.seconds = seconds_of([&] {
    const double begin = thread_cpu_seconds();
    std::size_t pending = 0;
    for (std::size_t at = 0; at < works.front().pairs.size(); at += transfer_blocks_max) {
      const std::size_t size = std::min<std::size_t>(transfer_blocks_max, works.front().pairs.size() - at);
      for (const Work& work : works) rig.submit(work.direction, urgency, std::span{work.pairs}.subspan(at, size));
      pending += works.size();
    }
    moved.submit_seconds = thread_cpu_seconds() - begin;
    while (pending > 0) pending -= rig.await_events().size();
  });
  moved.collect_seconds = rig.collecting_seconds() - collected;
  return moved;
}

/// Copies the first direction on this thread, and the second one on a thread of its own, which is ready when the clock starts.
double copy_all(TransferRig& rig, std::span<const Work> works, std::vector<SlotRun> Work::*runs) {
  const auto copy = [&](const Work& work) { rig.plain().copy(work.direction, work.*runs); };
  if (works.size() == 1) return seconds_of([&] { copy(works[0]); });
  std::latch both{2};
  std::thread other{[&] {
    both.arrive_and_wait();
    copy(works[1]);
  }};
  both.arrive_and_wait();
  return seconds_of([&] {
    copy(works[0]);
    other.join();
  });
}

/// One row's measurements.
struct Cell {
  Row row;  ///< what is measured
  std::vector<Work> works;
  Figures figures;
};

std::vector<Cell> make_cells(const TransferRig& rig) {
  const std::pair<const char*, std::vector<Direction>> ways[] = {
      {"swap out", {swap_out}}, {"swap in", {swap_in}}, {"both", {swap_out, swap_in}}};
  std::vector<Cell> cells;
  for (const bool scattered : {false, true}) {
    for (const auto& [way, directions] : ways) {
      Cell& cell = cells.emplace_back();
      cell.row = {{"block_bytes", count(rig.block_bytes())},
                  {"blocks", rig.blocks()},
                  {"plan_blocks", std::min(transfer_blocks_max, rig.blocks())},
                  {"layout", scattered ? "scattered" : "contiguous"},
                  {"way", way}};
      for (const Direction direction : directions) cell.works.push_back(make_work(rig, direction, scattered));
    }
  }
  return cells;
}

void measure(TransferRig& rig, Cell& cell) {
  const double plain_seconds = copy_all(rig, cell.works, &Work::plain);
  const Moved moved = move_all(rig, cell.works, Urgency::request);
  const Moved stored = move_all(rig, cell.works, Urgency::store);
  const double bare_seconds = copy_all(rig, cell.works, &Work::bare);

  const double blocks = static_cast<double>(rig.blocks()) * static_cast<double>(cell.works.size());
  const double gigabytes = blocks * static_cast<double>(count(rig.block_bytes())) / 1e9;
  Figures& figures = cell.figures;
  figures.add("gb_per_s", gigabytes / moved.seconds);
  figures.add("plain_gb_per_s", gigabytes / plain_seconds);
  figures.add("ratio", plain_seconds / moved.seconds);
  figures.add("store_gb_per_s", gigabytes / stored.seconds);
  figures.add("store_ratio", plain_seconds / stored.seconds);
  figures.add("bare_gb_per_s", gigabytes / bare_seconds);
  figures.add("bare_ratio", bare_seconds / moved.seconds);
  figures.add("submit_ns", moved.submit_seconds * 1e9 / blocks);
  figures.add("collect_ns", moved.collect_seconds * 1e9 / blocks);
}

}  // namespace

std::vector<Row> measure_copies(TransferRig& rig, unsigned rounds) {
  std::vector<Cell> cells = make_cells(rig);
  for (const Direction direction : {swap_out, swap_in}) rig.stamp(direction);
  for (const Cell& cell : cells) {
    copy_all(rig, cell.works, &Work::plain);
    move_all(rig, cell.works, Urgency::request);
    for (const Work& work : cell.works) rig.check_stamps(work.direction, work.pairs);
  }
  for (unsigned round = 0; round < rounds; ++round) {
    for (Cell& cell : cells) measure(rig, cell);
  }
  std::vector<Row> rows;
  for (Cell& cell : cells) {
    cell.figures.add_medians(cell.row);
    rows.push_back(std::move(cell.row));
  }
  return rows;
}

}  // namespace terrace::tools
