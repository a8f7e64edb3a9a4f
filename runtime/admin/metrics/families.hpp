#pragma once

#include "runtime/admin/snapshot.hpp"
#include "runtime/admin/status.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::admin {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

/// Things that have a sample each in the families about them, with the labels of these samples.
template <class T>
using Rows = std::vector<std::pair<Labels, const T*>>;

/// Rows with one label, by its values.
template <class T>
Rows<T> rows_of(const char* label, std::initializer_list<std::pair<const char*, const T*>> values) {
  Rows<T> rows;
  for (const auto& [value, row] : values) rows.push_back({{{label, value}}, row});
  return rows;
}

/// Collects families. A family is made by its first sample; all its samples are added one after the other.
class Families {
 public:
  template <class Number>
  void gauge(const char* name, const char* help, Number value, Labels labels = {}) {
    add(name, help, MetricType::Gauge, std::move(labels)).gauge.value = static_cast<double>(value);
  }
  template <class Number>
  void counter(const char* name, const char* help, Number value, Labels labels = {}) {
    add(name, help, MetricType::Counter, std::move(labels)).counter.value = static_cast<double>(value);
  }
  /// The parts of one total, each with its own value of the label.
  using Parts = std::initializer_list<std::pair<const char*, std::uint64_t>>;
  void gauges(const char* name, const char* help, const char* label, Parts parts) {
    for (const auto& [value, part] : parts) gauge(name, help, part, {{label, value}});
  }
  void counters(const char* name, const char* help, const char* label, Parts parts) {
    for (const auto& [value, part] : parts) counter(name, help, part, {{label, value}});
  }
  /// A sample for each row. `number` is a member of a row, or a function of it.
  template <class T, class Number>
  void gauges(const char* name, const char* help, const Rows<T>& rows, const Number& number) {
    for (const auto& [labels, row] : rows) gauge(name, help, std::invoke(number, *row), labels);
  }
  template <class T, class Number>
  void counters(const char* name, const char* help, const Rows<T>& rows, const Number& number) {
    for (const auto& [labels, row] : rows) counter(name, help, std::invoke(number, *row), labels);
  }
  /// Counts by the values of an enumeration.
  template <class E, std::size_t n>
  void counters_by(const char* name, const char* help, const char* label, const std::array<std::uint64_t, n>& counts) {
    for (std::size_t each = 0; each < n; ++each) {
      counter(name, help, counts[each], {{label, name_of(to_string(static_cast<E>(each)))}});
    }
  }
  /// 1 for the state that is the present one, 0 for the others. Their label is "state".
  template <class State>
  void states(const char* name, const char* help, std::initializer_list<State> all, State now, Labels labels = {}) {
    labels.push_back({"state", ""});
    for (const State state : all) {
      labels.back().value = name_of(to_string(state));
      gauge(name, help, state == now ? 1 : 0, labels);
    }
  }
  /// `total` has the members of TimeTotal except `number`.
  template <class Total>
  void times(const char* name, const char* help, const Total& total, const Labels& labels) {
    constexpr double microsecond = 1e-6;
    histogram(name, help, total.microseconds, total.seconds, labels, microsecond);
  }
  /// `unit`: what 1 in `values` stands for. `sum`: of all values.
  void histogram(const char* name, const char* help, const Histogram& values, double sum, Labels labels, double unit = 1) {
    ClientMetric& metric = add(name, help, MetricType::Histogram, std::move(labels));
    std::uint64_t so_far = 0;
    for (std::size_t bucket = 0; bucket < Histogram::buckets; ++bucket) {
      so_far += values.counts[bucket];
      const bool last = bucket + 1 == Histogram::buckets;  // the last bucket counts all larger values
      const double bound =
          last ? std::numeric_limits<double>::infinity() : static_cast<double>(Histogram::smallest(bucket + 1)) * unit;
      metric.histogram.bucket.push_back({so_far, bound});
    }
    metric.histogram.sample_count = so_far;
    metric.histogram.sample_sum = sum;
  }
  void times(const char* name, const char* help, const Rows<TimeTotal>& rows) {
    for (const auto& [labels, total] : rows) times(name, help, *total, labels);
  }
  [[nodiscard]] std::string text() const { return prometheus::TextSerializer{}.Serialize(families_); }

 private:
  ClientMetric& add(const char* name, const char* help, MetricType type, Labels labels) {
    if (families_.empty() || families_.back().name != name) {
      MetricFamily family;
      family.name = name;
      family.help = help;
      family.type = type;
      families_.push_back(std::move(family));
    }
    ClientMetric metric;
    metric.label = std::move(labels);
    families_.back().metric.push_back(std::move(metric));
    return families_.back().metric.back();
  }

  std::vector<MetricFamily> families_;
};

inline Labels of_pool(std::size_t pool) { return {{"pool", std::to_string(pool)}}; }
inline Labels label(const char* name, std::string_view value) { return {{name, std::string{value}}}; }

// The metric families of caches and of stores.
inline constexpr const char* evictions_help =
    "Copies that were dropped for slots: of requests, ahead of them, or because the tier became smaller";

inline void add_moved_totals(Families& all, const Rows<Moved>& directions) {
  all.counters("terrace_moved_blocks_total", "Blocks that were copied", directions, &Moved::blocks);
  all.counters("terrace_moved_bytes_total", "Bytes that were copied", directions,
               [](const Moved& moved) { return count(moved.bytes); });
}

inline Rows<AdminSnapshot::Pool> rows_of_pools(const AdminSnapshot& snapshot) {
  Rows<AdminSnapshot::Pool> rows;
  for (const AdminSnapshot::Pool& pool : snapshot.pools) rows.emplace_back(of_pool(rows.size()), &pool);
  return rows;
}

inline void add_block_bytes(Families& all, const AdminSnapshot& snapshot) {
  all.gauges("terrace_block_bytes", "Size of a block", rows_of_pools(snapshot),
             [](const AdminSnapshot::Pool& pool) { return count(pool.block_bytes); });
}

/// The counts of the storage of all pools.
void add_storage(Families& all, const AdminSnapshot& snapshot);
/// The counts of the shared store, which caches and stores have.
void add_shared_store(Families& all, const SharedStoreSnapshot& shared);
/// The counts of a cache that uses a shared store.
void add_shared_cache(Families& all, const SharedStoreSnapshot& shared);
/// The counts of a TierStore, and of one that uses a shared store.
void add_tier_store(Families& all, const TierStatistics& store);
void add_shared_tier_store(Families& all, const TierStatistics& store);

}  // namespace terrace::admin
