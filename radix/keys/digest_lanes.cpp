#include "radix/keys/digest_lanes.hpp"

#include "base/check.hpp"
#include "radix/keys/key_message.hpp"

#ifdef TERRACE_HAS_IPSEC_MB
#include <intel-ipsec-mb.h>

#include <array>
#include <string_view>
#include <utility>
#endif

namespace terrace {

#ifdef TERRACE_HAS_IPSEC_MB
namespace {

struct FreeManager {
  void operator()(IMB_MGR* manager) const { free_mb_mgr(manager); }
};
using Manager = std::unique_ptr<IMB_MGR, FreeManager>;

/// Digests are "jobs" of the library, with nothing to encrypt.
class ShaInstructions final : public DigestLanes {
 public:
  explicit ShaInstructions(Manager manager) : manager_{std::move(manager)} {}

  void* submit(std::span<const std::byte> message, BlockKey& into, void* owner) override {
    IMB_JOB* const job = IMB_GET_NEXT_JOB(manager_.get());
    job->cipher_mode = IMB_CIPHER_NULL;
    job->cipher_direction = IMB_DIR_ENCRYPT;
    job->chain_order = IMB_ORDER_HASH_CIPHER;
    job->hash_alg = IMB_AUTH_SHA_256;
    job->src = reinterpret_cast<const std::uint8_t*>(message.data());
    job->hash_start_src_offset_in_bytes = 0;
    job->msg_len_to_hash_in_bytes = message.size();
    job->auth_tag_output = reinterpret_cast<std::uint8_t*>(into.bytes.data());
    job->auth_tag_output_len_in_bytes = into.bytes.size();
    job->user_data = owner;
    // What the library would check for each job holds by the lines above; checking costs a tenth of the digest.
    return owner_of(IMB_SUBMIT_JOB_NOCHECK(manager_.get()));
  }
  void* finish() override { return owner_of(IMB_FLUSH_JOB(manager_.get())); }

 private:
  /// A digest that the library refuses to make would be a key that nobody made.
  [[nodiscard]] void* owner_of(const IMB_JOB* job) const {
    if (job == nullptr) {
      TERRACE_CHECK(imb_get_errno(manager_.get()) == 0);
      return nullptr;
    }
    TERRACE_CHECK(job->status == IMB_STATUS_COMPLETED);
    return job->user_data;
  }

  Manager manager_;
};

/// A library that digests in another way than OpenSSL would make keys that nobody else has: its versions are many, and asking
/// costs a microsecond.
bool agrees_with_openssl(DigestLanes& digests) {
  constexpr std::string_view text = "of more than sixty-four bytes, so that there is a step behind the first one";
  const std::array messages{std::as_bytes(std::span{text}), std::as_bytes(std::span{text.substr(0, 3)})};
  std::array<BlockKey, 2> keys;
  int made = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (digests.submit(messages[i], keys[i], &keys[i]) != nullptr) ++made;
  }
  while (digests.finish() != nullptr) ++made;
  KeyDigest digest;
  return made == 2 && keys[0] == digest(messages[0]) && keys[1] == digest(messages[1]);
}

}  // namespace

std::unique_ptr<DigestLanes> DigestLanes::create() {
  Manager manager{alloc_mb_mgr(0)};
  constexpr std::uint64_t needed = IMB_FEATURE_SHANI | IMB_FEATURE_SSE4_2 | IMB_FEATURE_AESNI;
  if (manager == nullptr || (manager->features & needed) != needed) return nullptr;
  // Of the library's ways this is the one with two messages in the SHA instructions. Those for wider vectors have up to 16
  // lanes in plain vector instructions: faster with 16 messages under way, and several times slower with 2.
  init_mb_mgr_sse(manager.get());
  if (imb_get_errno(manager.get()) != 0) return nullptr;
  auto made = std::make_unique<ShaInstructions>(std::move(manager));
  return agrees_with_openssl(*made) ? std::move(made) : nullptr;
}

#else

std::unique_ptr<DigestLanes> DigestLanes::create() { return nullptr; }

#endif

}  // namespace terrace
