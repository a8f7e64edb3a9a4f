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

/// Sizes are in tokens, times in milliseconds.
struct RagModel {
  static constexpr std::uint32_t documents_per_request_max = 4;

  std::uint32_t preamble = 400;
  std::uint32_t documents = 200;
  double document_median = 1200;
  double document_sigma = 0.8;
  std::uint32_t document_max = 6000;
  /// The chances of 1, 2, 3 and 4 documents before a question.
  std::array<double, documents_per_request_max> document_counts{0.5, 0.2, 0.15, 0.15};
  double best_first_chance = 0.5;  ///< the chance that documents are ordered by popularity; otherwise their order is random
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

/// A workload of questions about a corpus of documents, made from a seed: an endless stream of requests, the same for the same
/// seed on every platform.
///
/// - A prompt is a preamble that all requests share, one to four different documents, and a new question.
/// - Which documents are drawn follows Zipf's law: the k-th in proportion to 1/k. So some documents are followed by hundreds of
///   different questions and documents, and most are rare.
/// - The order of several documents varies. A cached document is a hit only if everything before it is the same. So of the same
///   documents in another order only the first ones are hits.
/// - The lengths of documents are log-normal and drawn once; those of questions and answers are log-normal.
/// - Requests come as a Poisson process and are independent of each other.
///
/// Each full block has an id, and each id always follows the same id. An id also stands for everything before it, so a document's
/// blocks have different ids after each different sequence of documents. Ids of different seeds differ. Threads: one.
class RagWorkload final : public RequestSource {
 public:
  RagWorkload(std::uint64_t seed, std::uint32_t block_tokens, const RagModel& model = {});

  [[nodiscard]] std::optional<TraceRequest> next() override;

 private:
  using Document = std::uint32_t;
  using Place = std::uint64_t;  ///< a sequence of documents, numbered in the order in which they first appear; 0: no document yet

  /// A document after a certain sequence of documents.
  struct Placed {
    Place place = 0;
    std::uint64_t first_id = 0;  ///< the id of the first block that it fills; the following blocks have the following ids
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
