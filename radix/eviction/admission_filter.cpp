#include "radix/eviction/admission_filter.hpp"

#include <algorithm>
#include <cmath>

namespace terrace {
namespace {

constexpr std::size_t sample_blocks = 2048;
constexpr std::size_t remembered_per_block = 2;
constexpr double half_life_capacities = 4;
constexpr double half_life_min = 16'384;
constexpr std::size_t choices_per_capacity = 8;
constexpr double lead_to_be_choosy = 0.0025;  ///< of the uses: a quarter of a point of hit rate

}  // namespace

AdmissionFilter::AdmissionFilter(Sizes sizes, OnHit on_hit)
    : on_hit_{on_hit},
      sample_every_{std::max<std::size_t>(sizes.host_blocks / sample_blocks, 1)},
      sample_capacity_{std::max<std::size_t>(sizes.host_blocks / sample_every_, 1)},
      used_{remembered_per_block * (std::size_t{sizes.device_blocks} + sizes.host_blocks)},
      used_again_{remembered_per_block * (std::size_t{sizes.device_blocks} + sizes.host_blocks)},
      open_{Blocks{sample_capacity_ + 1}},
      picky_{Blocks{sample_capacity_ + 1}},
      uses_until_choice_{sample_capacity_ / choices_per_capacity + 1} {}

void AdmissionFilter::on_request(std::span<const BlockKey> keys, std::size_t on_device) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const BlockKey& key = keys[i];
    if (used_.insert(key)) used_again_.insert(key);
    if (!sampled(key)) continue;
    const bool is_on_device = i < on_device;
    for (Shadow* const host : {&open_, &picky_}) {
      if (use(*host, key, is_on_device) && !is_on_device) host->hits += 1;
    }
    uses_ += 1;
    if (--uses_until_choice_ == 0) choose();
  }
}

bool AdmissionFilter::use(Shadow& host, const BlockKey& key, bool is_on_device) const {
  const Blocks::Index index = host.blocks.find(key);
  if (index == Blocks::none) return false;
  if (on_hit_ == OnHit::leaves && !is_on_device) {
    host.blocks.forget(index);
  } else {
    host.blocks.make_newest(index, 0);
  }
  return true;
}

void AdmissionFilter::take(Shadow& host, const BlockKey& key) const {
  host.blocks.make_newest(host.blocks.find_or_add(key), 0);
  if (host.blocks.ghosts() > sample_capacity_) host.blocks.forget_oldest(0);
}

bool AdmissionFilter::admits(const BlockKey& key) {
  const bool is_proven = used_again_.contains(key);
  if (sampled(key)) {
    take(open_, key);
    if (is_proven) take(picky_, key);
  }
  return is_proven || !choosy_;
}

void AdmissionFilter::choose() {
  const double lead = choosy_ ? 0 : lead_to_be_choosy * uses_;
  choosy_ = picky_.hits > open_.hits + lead;
  uses_until_choice_ = sample_capacity_ / choices_per_capacity + 1;
  const double half_life = std::max(half_life_capacities * static_cast<double>(sample_capacity_), half_life_min);
  const double kept = std::exp2(-static_cast<double>(uses_until_choice_) / half_life);
  open_.hits *= kept;
  picky_.hits *= kept;
  uses_ *= kept;
}

void AdmissionFilter::check_invariants() const {
  for (const Shadow* const host : {&open_, &picky_}) {
    host->blocks.check_invariants();
    TERRACE_CHECK(host->blocks.ghosts() <= sample_capacity_);
  }
}

}  // namespace terrace
