#include "terrace/types.hpp"
#include "tools/live/command_line.hpp"
#include "tools/output.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

namespace json = boost::json;

const json::object& part(const json::object& of, std::string_view name) { return of.at(name).as_object(); }
double number(const json::object& of, std::string_view name) {
  const double value = of.at(name).to_number<double>();
  if (!std::isfinite(value)) throw std::out_of_range{std::string{name}};
  return value;
}
std::string text(const json::object& of, std::string_view name) { return printable(of.at(name).as_string()); }

/// "12.3k": short enough for a column of six.
std::string shortly(double value) {
  for (const auto& [unit, name] : {std::pair{1e12, 'T'}, std::pair{1e9, 'G'}, std::pair{1e6, 'M'}, std::pair{1e4, 'k'}}) {
    const double scale = name == 'k' ? 1e3 : unit;
    if (value >= unit) return fmt::format("{:.{}f}{}", value / scale, value / scale < 99.95 ? 1 : 0, name);
  }
  return fmt::format("{:.0f}", value);
}

std::string shortly(const json::object& of, std::string_view name) { return shortly(number(of, name)); }

std::string size(double bytes) { return to_string(Bytes{static_cast<std::uint64_t>(std::clamp(bytes, 0.0, 1e19))}); }

std::string share_of(double part, double whole) { return whole <= 0 ? "-" : fmt::format("{:.1f} %", 100 * part / whole); }

/// A bar of `width` columns, filled to a share from 0 to 1.
std::string bar(double share, std::size_t width) {
  const auto filled = static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(width)));
  return std::string(filled, '#') + std::string(width - filled, '.');
}

/// True for the answer of a process that has a store only.
bool is_store(const json::object& answer) { return answer.contains("store"); }

class Screen {
 public:
  Screen(const json::object& now, const std::optional<json::object>& before, double seconds, ScreenSize room)
      : now_{now}, before_{before && is_store(*before) == is_store(now) ? &*before : nullptr}, seconds_{seconds}, room_{room} {}

  std::string make(const std::string& name) {
    head(name);
    tiers();
    if (is_store(now_)) {
      batches();
      misses();
      sizes();
      storage();
      shared();
      slowest();
    } else {
      if (now_.contains("offload")) offload();
      else requests();
      misses();
      sizes();
      transfers();
      storage();
      shared();
      jobs();
      slowest();
    }
    return std::move(text_);
  }

 private:
  void line(std::string_view text) {
    if (lines_++ < room_.lines) text_ += shortened(text, room_.columns) + '\n';
  }

  /// How much a counter has grown since the earlier answer.
  [[nodiscard]] double grown(std::string_view group, std::string_view name) const {
    const double then = before_ == nullptr ? 0 : number(part(*before_, group), name);
    return std::max(0.0, number(part(now_, group), name) - then);
  }

  void head(const std::string& name) {
    const double age = number(now_, "age_seconds");
    const std::string state = text(now_, "health");
    line(fmt::format("terrace  {}  {}{}", printable(name), state, age < 3 ? "" : fmt::format(", {:.0f} s old", age)));
    constexpr std::size_t indent = 4;
    for (const json::value& reason : now_.at("reasons").as_array()) {
      std::istringstream lines{"  ! " + wrapped(printable(reason.as_string()), indent, indent, room_.columns)};
      for (std::string each; std::getline(lines, each);) line(each);
    }
  }

  void tiers() {
    line("");
    line(fmt::format("{:8} {:20} {:>7} {:>9} {:>8} {:>8} {:>7} {:>6}", "TIER", "FILL", "", "SIZE", "BLOCKS", "CACHED", "IN USE",
                     "FREE"));
    const json::array& pools = now_.at("pools").as_array();
    for (std::size_t n = 0; n < pools.size(); ++n) {
      const json::object& pool = pools[n].as_object();
      const double block = number(pool, "block_bytes");
      const std::string suffix = pools.size() == 1 ? "" : fmt::format(" {}", n);
      if (!is_store(now_)) upper_tiers(pool, suffix, block);
      if (!pool.contains("storage")) continue;
      const json::object& store = part(pool, "storage");
      tier_line("storage" + suffix, number(store, "capacity_blocks"), number(store, "blocks"),
                number(store, "writing") + number(store, "quarantined"), number(store, "free"), block);
    }
  }

  void upper_tiers(const json::object& pool, const std::string& suffix, double block) {
    for (const std::string_view tier : {"device", "host"}) {
      const json::object& it = part(pool, tier);
      tier_line(fmt::format("{}{}", tier, suffix), number(it, "blocks"), number(it, "evictable"), number(it, "in_use"),
                number(it, "free"), block);
      const double retiring = number(it, "retiring");
      if (retiring > 0) line(fmt::format("{:8} resizing: {:.0f} slots still to retire", "", retiring));
      eviction(it);
    }
    const json::object& host = part(pool, "host");
    if (number(host, "usable") < number(host, "wanted")) {
      line(fmt::format("{:8} growing: {:.0f} of {:.0f} blocks", "", number(host, "usable"), number(host, "wanted")));
    }
  }

  /// Which classes of blocks a tier has, and which of them hit, the largest ones first.
  void eviction(const json::object& tier) {
    if (!room_.classes || !tier.contains("eviction")) return;  // a process of an earlier version has none
    const json::object& it = part(tier, "eviction");
    const auto largest = [&](std::string_view name) {
      constexpr std::size_t shown_max = 3;
      std::vector<std::pair<double, std::string>> classes;
      double all = 0;
      for (const json::value& value : it.at("classes").as_array()) {
        const json::object& each = value.as_object();
        std::string words = text(each, "kind");
        std::ranges::replace(words, '_', ' ');
        classes.emplace_back(number(each, name), fmt::format("{}/{}", words, text(each, "uses")));
        all += number(each, name);
      }
      std::ranges::sort(classes, std::greater{});
      classes.resize(std::min(classes.size(), shown_max));
      std::string shown;
      for (const auto& [amount, words] : classes) {
        if (amount > 0) shown += fmt::format("{} {} {}", shown.empty() ? "" : ",", share_of(amount, all), words);
      }
      return shown;
    };
    const std::string has = largest("share");
    if (has.empty()) return;
    line(fmt::format("{:8} {:8}{}", "", it.at("by_rank").as_bool() ? "by rank:" : "by LRU:", has));
    if (const std::string hits = largest("hits"); !hits.empty()) line(fmt::format("{:8} {:8}{}", "", "hits:", hits));
  }

  void tier_line(const std::string& name, double blocks, double cached, double in_use, double free, double block_bytes) {
    if (blocks == 0) return line(fmt::format("{:8} none", name));
    const double share = (blocks - free) / blocks;
    // A block of one byte has its bytes elsewhere: the engine owns the memory.
    line(fmt::format("{:8} {:20} {:>7} {:>9} {:>8} {:>8} {:>7} {:>6}", name, bar(share, 20), fmt::format("{:.1f}%", 100 * share),
                     block_bytes == 1 ? "-" : size(blocks * block_bytes), shortly(blocks), shortly(cached), shortly(in_use),
                     shortly(free)));
  }

  void requests() {
    line("");
    const std::string speed = before_ == nullptr ? "" : fmt::format(" ({:.1f}/s)", rate(grown("requests", "requests")));
    std::string refused;
    for (const auto& [name, shown] : {std::pair{"refused_no_room", "no room"}, std::pair{"refused_never_fits", "never fit"},
                                      std::pair{"refused_paused", "paused"}, std::pair{"refused_invalid", "invalid"}}) {
      const bool known = part(now_, "blocks").contains(name);  // an earlier version has fewer
      const double requests = known ? number(part(now_, "blocks"), name) : 0;
      if (requests > 0) refused += fmt::format("{}{} {}", refused.empty() ? "" : ", ", shortly(requests), shown);
    }
    line(fmt::format("REQUESTS {} ready{}, {:.0f} live, {}", shortly(part(now_, "requests"), "requests"), speed,
                     number(part(now_, "work"), "leases"), refused.empty() ? "0 refused" : "refused: " + refused));
    line(fmt::format("  {:12} {:>8} {:>8} {:>8}{} {:>8} {:>8} of {}", "", "device", "host", "storage",
                     shares() ? fmt::format(" {:>8}", "shared") : "", "external", "computed",
                     text(part(now_, "requests"), "unit")));
    if (before_ != nullptr) hits("now", [this](std::string_view name) { return grown("requests", name); });
    hits("since start", [this](std::string_view name) { return number(part(now_, "requests"), name); });
  }

  template <class Amount>
  void hits(std::string_view when, Amount amount) {
    const double asked = amount("asked");
    const auto share = [&](std::string_view name) { return share_of(amount(name), asked); };
    line(fmt::format("  {:12} {:>8} {:>8} {:>8}{} {:>8} {:>8} of {}", when, share("device"), share("host"), share("storage"),
                     shares() ? fmt::format(" {:>8}", share("shared")) : "", share("external"), share("miss"), shortly(asked)));
  }

  /// Tells why what was computed was not cached, the most frequent reason first.
  void misses() {
    if (!now_.contains("misses")) return;  // a process of an earlier version
    double all = 0;
    double gone = 0;
    std::vector<std::pair<double, std::string>> reasons;
    for (const auto& [name, value] : part(now_, "misses")) {
      if (name == "gone_seconds_median") continue;
      const double units = grown("misses", name);
      all += units;
      std::string words = printable(name);
      std::ranges::replace(words, '_', ' ');
      if (words == "unknown") words = "never seen";
      else if (words != "turned down" && words != "not used") gone += units;
      if (units > 0) reasons.emplace_back(units, std::move(words));
    }
    if (all == 0) return;
    std::ranges::sort(reasons, std::greater{});
    std::string shown;
    for (const auto& [units, words] : reasons) {
      shown += fmt::format("{} {} {}", shown.empty() ? "" : ",", share_of(units, all), words);
    }
    line("  missed:" + shown);
    const double median = number(part(now_, "misses"), "gone_seconds_median");
    if (gone > 0) line(fmt::format("  half of those that were cached had been gone for {:.0f} s or longer", median));
  }

  /// Tells what each tier would bring if it had twice its size, and the policy were LRU.
  void sizes() {
    if (!now_.contains("reuse")) return;  // a process of an earlier version
    std::string shown;
    for (const json::value& each : part(now_, "reuse").at("tiers").as_array()) {
      const json::object& tier = each.as_object();
      const json::object& ratio = part(tier, "lru_hit_ratio");
      const double bytes = number(tier, "bytes");
      shown += fmt::format("{} {} +{} {:+.1f}%", shown.empty() ? "" : ",", text(tier, "tier"),
                           bytes == number(tier, "blocks") ? shortly(bytes) + " blocks" : size(bytes),
                           100 * (number(ratio, "double") - number(ratio, "same")));
    }
    if (!shown.empty()) line("  larger:" + shown);
  }

  /// The jobs of an engine that owns the slots of the device.
  void offload() {
    const json::object& jobs = part(now_, "offload");
    line("");
    line(fmt::format("JOBS     {} accepted, {} refused", shortly(jobs, "jobs"), shortly(jobs, "refused")));
    questions("offload");
    const double loaded = number(jobs, "loaded_host") + number(jobs, "loaded_storage") + number(jobs, "loaded_shared");
    line(fmt::format("  loaded {:>6} blocks: {} host, {} storage, {} shared; {} missing, {} failed", shortly(loaded),
                     shortly(jobs, "loaded_host"), shortly(jobs, "loaded_storage"), shortly(jobs, "loaded_shared"),
                     shortly(jobs, "load_misses"), shortly(jobs, "load_failures")));
    line(fmt::format("  stored {:>6} blocks, {} were there; {} found no room, {} failed", shortly(jobs, "stored"),
                     shortly(jobs, "already_there"), shortly(jobs, "store_full"), shortly(jobs, "store_failures")));
  }

  /// The share of the keys that the engine asked about which were there. (It orders only what it has found.)
  void questions(std::string_view group) {
    if (!part(now_, group).contains("asked")) return;  // a process of an earlier version
    const auto share = [&](double found, double asked) {
      return fmt::format("{} of {}", share_of(found, asked), shortly(asked));
    };
    const json::object& all = part(now_, group);
    const std::string now = before_ == nullptr ? "" : share(grown(group, "found"), grown(group, "asked")) + " now, ";
    line(fmt::format("  asked for keys: hits {}{} since start", now, share(number(all, "found"), number(all, "asked"))));
  }

  void batches() {
    const json::object& store = part(now_, "store");
    line("");
    line(fmt::format("STORE    {} batches: {} blocks wait, {} under way; {} refused", shortly(store, "batches"),
                     shortly(store, "waiting"), shortly(store, "under_way"), shortly(store, "refused")));
    questions("store");
    blocks("gets", "hits", "read_bytes", {"corrupt", "get_failures", "gets_late"});
    blocks("puts", "stored", "written_bytes", {"put_failures", "puts_late"});
    const double not_flushed = number(store, "not_flushed");
    if (not_flushed > 0) line(fmt::format("  {} blocks are not flushed", shortly(not_flushed)));
  }

  void blocks(std::string_view asked, std::string_view succeeded, std::string_view bytes,
              std::initializer_list<std::string_view> failures) {
    const json::object& store = part(now_, "store");
    double failed = 0;
    for (const std::string_view failure : failures) failed += number(store, failure);
    const std::string now = before_ == nullptr ? "" : fmt::format(", {}/s now", size(rate(grown("store", bytes))));
    line(fmt::format("  {} {:>6} blocks, {:>7} {}, {} failed, {}{}", asked, shortly(store, asked),
                     share_of(number(store, succeeded), number(store, asked)), succeeded, shortly(failed),
                     size(number(store, bytes)), now));
  }

  [[nodiscard]] double rate(double amount) const { return seconds_ > 0 ? amount / seconds_ : 0; }

  void transfers() {
    const json::object& work = part(now_, "work");
    line("");
    line(fmt::format("MOVING   {:.0f} transfers, {:.0f} reads, {:.0f} writes under way{}", number(work, "transfers"),
                     number(work, "reads"), number(work, "writes"), now_.at("transfers_paused").as_bool() ? "; PAUSED" : ""));
    not_moved();
    double oldest = 0;
    double blocks = 0;
    for (const json::value& queue : now_.at("queues").as_array()) {
      oldest = std::max(oldest, number(queue.as_object(), "oldest_seconds"));
      blocks += number(queue.as_object(), "blocks");
    }
    if (blocks > 0) line(fmt::format("  queued: {} blocks, the oldest for {:.1f} ms", shortly(blocks), oldest * 1e3));
    for (const auto& [name, shown] : {std::pair{"swap_in", "host to device"}, std::pair{"swap_out", "device to host"},
                                      std::pair{"storage_reads", "storage reads"}, std::pair{"storage_writes", "storage writes"},
                                      std::pair{"shared_reads", "shared reads"}, std::pair{"shared_writes", "shared writes"}}) {
      if (!part(now_, "moved").contains(name)) continue;
      const json::object& all = part(part(now_, "moved"), name);
      const bool was = before_ != nullptr && part(*before_, "moved").contains(name);
      if (number(all, "bytes") == 0 && moves_itself(name)) {
        line(fmt::format("  {:16} by the engine", shown));
        continue;
      }
      const double then = was ? number(part(part(*before_, "moved"), name), "bytes") : 0;
      const double bytes = std::max(0.0, number(all, "bytes") - then);
      const std::string now = before_ == nullptr ? "" : fmt::format("{:>10}/s now, ", size(rate(bytes)));
      const double busy = number(all, "seconds");
      line(fmt::format("  {:16} {}{:>10} since start, {:>8}/s busy", shown, now, size(number(all, "bytes")),
                       size(busy > 0 ? number(all, "bytes") / busy : 0)));
    }
  }

  /// Returns true if the engine copies in this direction between the host tier and its own memory: blocks have come and gone, and
  /// the cache has copied none.
  [[nodiscard]] bool moves_itself(std::string_view direction) const {
    if (!now_.contains("offload")) return false;
    const json::object& jobs = part(now_, "offload");
    return (direction == "swap_in" && number(jobs, "loaded_host") > 0) || (direction == "swap_out" && number(jobs, "stored") > 0);
  }

  /// Copies between device and host that did not arrive.
  void not_moved() {
    if (!now_.contains("link")) return;  // a process of an earlier version
    const json::object& link = part(now_, "link");
    double failed = 0;
    double late = 0;
    for (const char* const direction : {"swap_outs", "swap_ins"}) {
      failed += number(part(link, direction), "failed");
      late += number(part(link, direction), "late");
    }
    const bool down = !link.at("in_use").as_bool();
    if (down || failed + late > 0) {
      line(fmt::format("  between device and host: {}{} blocks failed, {} late", down ? "NOT USED, " : "", shortly(failed),
                       shortly(late)));
    }
  }

  void storage() {
    bool any = false;
    const json::array& pools = now_.at("pools").as_array();
    for (std::size_t n = 0; n < pools.size(); ++n) {
      const json::object& pool = pools[n].as_object();
      if (!pool.contains("storage")) continue;
      if (!any) line("");
      const json::object& store = part(pool, "storage");
      const std::string state = store.contains("state") ? text(store, "state") : "not watched";
      line(fmt::format("{:8} {}: {} errors, {} corrupt, {} evicted{}", any ? "" : "STORAGE", state, shortly(store, "io_errors"),
                       shortly(store, "corrupt"), shortly(store, "evicted"),
                       pools.size() == 1 ? "" : fmt::format(" (pool {})", n)));
      any = true;
    }
    if (!any || is_store(now_)) return;
    not_stored();
    storage_gain();
    const json::object& daily = part(now_, "daily_writes");
    if (number(daily, "written_bytes") == 0) return;
    const double limit = number(daily, "limit_bytes");
    const bool known = now_.contains("storage_gain");
    const double a_day = known ? number(part(now_, "storage_gain"), "written_bytes_per_day") : 0;
    line(fmt::format("  written today: {}{}{}", size(number(daily, "written_bytes")), limit == 0 ? "" : " of " + size(limit),
                     a_day > 0 ? fmt::format(", at this rate {} a day", size(a_day)) : ""));
  }

  /// Blocks that should have been stored and were not, by reason, the most frequent first.
  void not_stored() {
    std::vector<std::pair<double, std::string>> reasons;
    for (const auto& [name, value] : part(now_, "blocks")) {
      if (!name.starts_with("store_") || value.to_number<double>() == 0) continue;
      std::string words = printable(name.substr(6));
      std::ranges::replace(words, '_', ' ');
      reasons.emplace_back(value.to_number<double>(), std::move(words));
    }
    std::ranges::sort(reasons, std::greater{});
    std::string shown;
    for (const auto& [blocks, words] : reasons)
      shown += fmt::format("{} {} {}", shown.empty() ? "" : ",", shortly(blocks), words);
    if (!shown.empty()) line("  not stored:" + shown);
  }

  /// Tells whether storage pays.
  void storage_gain() {
    if (!now_.contains("storage_gain")) return;  // a process of an earlier version
    const json::object& gain = part(now_, "storage_gain");
    const double found = number(gain, "found");
    const bool offload = now_.contains("offload");
    const std::string of_all =
        offload ? "" : fmt::format(", {} of what was asked", share_of(found, number(part(now_, "requests"), "asked")));
    line(fmt::format("  gave {} {}{}; {} written since start", shortly(found),
                     offload ? "blocks" : text(part(now_, "requests"), "unit"), of_all, size(number(gain, "written_bytes"))));
    if (!gain.contains("prefill_seconds")) return;
    const double prefill = number(gain, "prefill_seconds");
    const double waited = number(gain, "waited_seconds");
    line(fmt::format("  saved {:.1f} s: {:.1f} s of prefill, less {:.1f} s of waits", prefill - waited, prefill, waited));
  }

  /// True if there is a shared store.
  [[nodiscard]] bool shares() const { return now_.contains("shared"); }

  void shared() {
    if (!shares()) return;
    const json::object& all = part(now_, "shared");
    const json::object& store = part(all, "store");
    double used = 0;
    double connections = 0;
    double in_flight = 0;
    const json::array& nodes = all.at("nodes").as_array();
    for (const json::value& each : nodes) {
      const json::object& node = each.as_object();
      if (text(node, "breaker") == "closed" && number(node, "connections") > 0) ++used;
      connections += number(node, "connections");
      in_flight += number(node, "in_flight_bytes");
    }
    line("");
    const std::string servers = fmt::format(": {:.0f} of {} nodes used, {:.0f} connections, {} in flight", used, nodes.size(),
                                            connections, size(in_flight));
    const bool off = all.contains("off") && all.at("off").as_bool();  // an earlier version does not say so
    line(fmt::format("SHARED   {}{}{}", off ? "OFF since a clear, " : "", text(all, "state"), nodes.empty() ? "" : servers));
    if (all.contains("cache")) asked_there(part(all, "cache"), number(all, "round_trip_seconds"));
    moved_there("read ", store, "reads", "read_bytes", fmt::format("{} missing", shortly(store, "reads_missing")));
    moved_there("wrote", store, "writes", "written_bytes", not_written(all));
    double corrupt = 0;
    for (const auto& [reason, blocks] : part(store, "corrupt")) corrupt += blocks.to_number<double>();
    const double timed_out = number(store, "timed_out");
    const double failed = number(store, "failed");
    const double declined = number(store, "declined");
    if (corrupt + timed_out + failed + declined == 0) return;
    line(fmt::format("  failed: {} timed out, {} errors, {} declined, {} corrupt", shortly(timed_out), shortly(failed),
                     shortly(declined), shortly(corrupt)));
  }

  void asked_there(const json::object& cache, double round_trip) {
    line(fmt::format("  asked {:>6} blocks, {:>7} found, {} answers late{}", shortly(cache, "asked"),
                     share_of(number(cache, "there"), number(cache, "asked")), shortly(cache, "look_ups_late"),
                     round_trip > 0 ? fmt::format(", round trip {:.1f} ms", round_trip * 1e3) : ""));
  }

  void moved_there(std::string_view shown, const json::object& store, std::string_view blocks, std::string_view bytes,
                   const std::string& not_moved) {
    const bool was = before_ != nullptr && before_->contains("shared");
    const double then = was ? number(part(part(*before_, "shared"), "store"), bytes) : 0;
    const double grown = std::max(0.0, number(store, bytes) - then);
    line(fmt::format("  {} {:>6} blocks, {:>7}, {}{}", shown, shortly(store, blocks), size(number(store, bytes)), not_moved,
                     was ? fmt::format(", {}/s now", size(rate(grown))) : ""));
  }

  [[nodiscard]] static std::string not_written(const json::object& shared) {
    if (!shared.contains("cache")) return fmt::format("{} full", shortly(part(shared, "store"), "full"));
    double dropped = 0;
    for (const auto& [name, value] : part(shared, "cache")) {
      if (name.starts_with("drop_")) dropped += value.to_number<double>();
    }
    return fmt::format("{} not written", shortly(dropped));
  }

  void jobs() {
    bool any = false;
    for (const json::value& each : now_.at("jobs").as_array()) {
      const json::object& job = each.as_object();
      const std::string state = text(job, "state");
      if (state != "running" && state != "paused") continue;
      if (!any) line("");
      any = true;
      const double looked_at = number(job, "looked_at");
      line(fmt::format("JOB {:<4} {} {}: {} {:.0f} %, {} written, {:.0f} under way", whole_in(job, "id"), text(job, "scope"),
                       state, bar(looked_at, 20), 100 * looked_at, size(number(job, "written_bytes")), number(job, "under_way")));
    }
  }

  void slowest() {
    if (!now_.contains("slowest")) return;  // a store of an earlier version
    const json::array& all = now_.at("slowest").as_array();
    if (all.empty()) return;
    std::string shown;
    for (const json::value& each : all) {
      const json::object& request = each.as_object();
      const std::string one = fmt::format("{} {}: {:.1f} ms ({})", shown.empty() ? "SLOWEST " : ",", whole_in(request, "id"),
                                          number(request, "seconds") * 1e3, text(request, "for"));
      if (!shown.empty() && shown.size() + one.size() > room_.columns) break;
      shown += one;
    }
    line("");
    line(shown);
  }

  const json::object& now_;
  const json::object* before_;
  double seconds_;
  ScreenSize room_;
  std::size_t lines_ = 0;
  std::string text_;
};

/// Moves the cursor to the upper left corner and removes what is right of and below it.
constexpr const char* new_screen = "\x1b[H\x1b[J";

/// The room on standard output: what is not a terminal has 80 columns. A screen that is drawn again must not make it scroll.
ScreenSize room_of_terminal(bool redraws, bool classes) {
  ScreenSize room{.classes = classes};
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0) return room;
  if (window.ws_col > 0) room.columns = std::min<std::size_t>(room.columns, window.ws_col);
  if (redraws && window.ws_row > 1) room.lines = window.ws_row - 1U;
  return room;
}

}  // namespace

std::string screen_of(const std::string& name, const json::object& now, const std::optional<json::object>& before, double seconds,
                      ScreenSize room) {
  return Screen{now, before, seconds, room}.make(name);
}

void run_top(const TopArguments& arguments) {
  using Clock = std::chrono::steady_clock;
  const AdminClient client{arguments.target};
  const bool redraws = !arguments.once && !arguments.json && ::isatty(STDOUT_FILENO) == 1;
  const Waiting waiting;
  std::optional<json::object> before;
  Clock::time_point asked_before{};
  while (true) {
    const json::object now = client.get("/v1/status");
    const Clock::time_point asked = Clock::now();
    const double seconds = std::chrono::duration<double>(asked - asked_before).count();
    const std::string begin = redraws ? new_screen : before ? "\n" : "";
    if (arguments.json) print_json(now);
    else write_output(begin + screen_of(client.name(), now, before, seconds, room_of_terminal(redraws, arguments.classes)));
    flush_output();
    if (arguments.once) return;
    before = now;
    asked_before = asked;
    try {
      waiting.sleep(std::chrono::duration_cast<std::chrono::milliseconds>(arguments.interval));
    } catch (const Interrupted&) {
      return;  // the usual end
    }
  }
}

}  // namespace terrace::tools
