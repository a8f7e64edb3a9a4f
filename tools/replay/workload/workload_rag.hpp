#pragma once

#include "tools/replay/workload/request_source.hpp"
#include "tools/replay/workload/workload_draws.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace terrace::tools {

/// Sizes are tokens, times milliseconds.
struct RagModel {
  static constexpr std::uint32_t documents_per_request_max = 4;

  std::uint32_t preamble = 400;
  std::uint32_t documents = 200;
  double document_median = 1200;
  double document_sigma = 0.8;
  std::uint32_t document_max = 6000;
  /// How many documents stand before a question: the chances of 1, 2, 3 and 4.
  std::array<double, documents_per_request_max> document_counts{0.5, 0.2, 0.15, 0.15};
  double best_first_chance = 0.5;  ///< that several documents stand in order of popularity; else in any order
  double question_median = 130;
  double question_sigma = 0.5;
  std::uint32_t question_max = 2048;
  double answer_median = 180;
  double answer_sigma = 0.7;
  std::uint32_t answer_max = 4096;
  double gap_mean = 200;

  [[nodiscard]] constexpr std::uint32_t context_max() const {
    return preamble + documents_per_request_max * document_max + question_max;
  }
};

/// Questions to a corpus of documents, made from a seed: an endless stream of requests, the same for the same seed on every
/// platform.
///
/// - A prompt is a preamble that all share, one to four different documents, and a question that nobody asked before.
/// - Which documents follows Zipf's law: the k-th is drawn in proportion to 1/k. So some documents are hubs, with hundreds of
///   questions and documents right behind them, and most are rare.
/// - The order of several documents varies. A cached document helps only where all that stands before it is the same, so that
///   the same documents in another order are found but for the first ones.
/// - Documents' lengths are log-normal, and drawn once; questions' and answers' are log-normal.
/// - Requests come as a Poisson process, and none belongs to another.
///
/// A full block has an id, and every id one predecessor. A document's blocks have ids of their own behind each sequence of
/// documents that it follows, since an id names what stands before it too. Ids of different seeds differ. Threads: one.
class RagWorkload final : public RequestSource {
 public:
  RagWorkload(std::uint64_t seed, std::uint32_t block_tokens, const RagModel& model = {});

  [[nodiscard]] std::optional<TraceRequest> next() override;

 private:
  using Document = std::uint32_t;
  using Place = std::uint64_t;  ///< a sequence of documents, numbered as they come up; 0: none yet

  /// A document behind a sequence of others.
  struct Placed {
    Place place = 0;
    std::uint64_t first_id = 0;  ///< of the blocks that it fills; those behind count on
  };

  [[nodiscard]] std::vector<Document> draw_documents();
  [[nodiscard]] std::uint32_t draw_count();
  void append(WorkloadContext& context, Place& place, Document document);

  RagModel model_;
  std::uint32_t block_tokens_;
  Random random_;
  std::uint64_t next_id_;
  ZipfDraw draw_document_;
  WorkloadContext preamble_;
  std::vector<std::uint32_t> document_tokens_;
  std::map<std::pair<Place, Document>, Placed> placed_;
  double now_ = 0;
};

}  // namespace terrace::tools
