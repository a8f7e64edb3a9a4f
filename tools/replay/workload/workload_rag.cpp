#include "tools/replay/workload/workload_draws.hpp"
#include "tools/replay/workload/workloads.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

class RagWorkload final : public RequestSource {
 public:
  RagWorkload(std::uint64_t seed, std::uint32_t block_tokens, const RagModel& model)
      : model_{model}, block_tokens_{block_tokens}, random_{seed}, next_id_{first_id(seed)}, draw_document_{model.documents} {
    preamble_.grow(model_.preamble, block_tokens_, next_id_);
    for (std::uint32_t i = 0; i < model_.documents; ++i) {
      document_tokens_.push_back(draw_length(random_, model_.document_median, model_.document_sigma, model_.document_max));
    }
  }

  [[nodiscard]] std::optional<TraceRequest> next() override {
    WorkloadContext context = preamble_;
    Place place = 0;
    for (const Document document : draw_documents()) append(context, place, document);
    context.grow(draw_length(random_, model_.question_median, model_.question_sigma, model_.question_max), block_tokens_,
                 next_id_);

    TraceRequest request;
    request.timestamp_ms = std::floor(now_);
    request.input_tokens = context.tokens;
    request.output_tokens = draw_length(random_, model_.answer_median, model_.answer_sigma, model_.answer_max);
    request.hash_ids = std::move(context.ids);
    now_ += draw_time(random_, model_.gap_mean);
    return request;
  }

 private:
  using Document = std::uint32_t;
  using Place = std::uint64_t;  ///< a sequence of documents, numbered in the order in which they first appear; 0: no document yet

  /// A document after a certain sequence of documents.
  struct Placed {
    Place place = 0;
    std::uint64_t first_id = 0;  ///< the id of the first block that it fills; the following blocks have the following ids
  };

  [[nodiscard]] std::vector<Document> draw_documents() {
    const std::size_t count = std::min(draw_count(), model_.documents);
    std::vector<Document> documents;
    while (documents.size() < count) {
      const Document document = draw_document_(random_);
      if (std::ranges::find(documents, document) == documents.end()) documents.push_back(document);
    }
    // The drawn order prefers no document: the first one is simply the first that was drawn.
    if (random_.chance(model_.best_first_chance)) std::ranges::sort(documents);
    return documents;
  }

  [[nodiscard]] std::uint32_t draw_count() {
    std::uint32_t count = 1;
    double left = 1;
    for (; count < RagModel::documents_per_request_max; ++count) {
      const double chance = model_.document_counts[count - 1];
      if (random_.chance(chance / left)) break;
      left -= chance;
    }
    return count;
  }

  /// Appends the document. If it was appended at this place before, its blocks have the same ids as then.
  void append(WorkloadContext& context, Place& place, Document document) {
    const auto [at, is_new] = placed_.try_emplace({place, document}, Placed{placed_.size() + 1, next_id_});
    std::uint64_t id = at->second.first_id;
    context.grow(document_tokens_[document], block_tokens_, is_new ? next_id_ : id);
    place = at->second.place;
  }

  const RagModel model_;
  const std::uint32_t block_tokens_;
  Random random_;
  std::uint64_t next_id_;
  ZipfDraw draw_document_;
  WorkloadContext preamble_;
  std::vector<std::uint32_t> document_tokens_;
  std::map<std::pair<Place, Document>, Placed> placed_;
  double now_ = 0;
};

}  // namespace

std::unique_ptr<RequestSource> rag_workload(std::uint64_t seed, std::uint32_t block_tokens, const RagModel& model) {
  return std::make_unique<RagWorkload>(seed, block_tokens, model);
}

}  // namespace terrace::tools
