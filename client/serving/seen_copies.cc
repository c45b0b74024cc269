#include "client/serving/seen_copies.h"

#include <algorithm>

namespace hotbed {

bool SeenCopies::Take(uint32_t table, const ServedPart& part, const Answer& answer,
                      int64_t begin_ns) {
  if (answer.life == 0) return true;
  absl::MutexLock lock(&mu_);
  Parts& parts = tables_[table];
  if (parts.size() != part.parts) {
    // Rows that a part of another cut has shown may be in any part of this one.
    Copy others;
    for (const std::vector<Copy>& copies : parts) {
      for (const Copy& copy : copies) {
        others.changed_ns = std::max(others.changed_ns, copy.changed_ns);
      }
    }
    parts.assign(part.parts, others.changed_ns == 0 ? std::vector<Copy>() : std::vector{others});
  }
  std::vector<Copy>& copies = parts[part.part];
  Copy* own = nullptr;
  bool superseded = false;  // some copy's rows are all in this answer
  for (Copy& copy : copies) {
    if (copy.life == answer.life) {
      own = &copy;
      continue;
    }
    if (answer.as_of_ns < std::min(copy.changed_ns, begin_ns)) return false;
    superseded |= copy.changed_ns <= answer.as_of_ns;
  }
  if (own == nullptr) {
    copies.push_back({answer.server, answer.life, answer.changed_ns});
  } else {
    own->changed_ns = std::max(own->changed_ns, answer.changed_ns);
  }
  if (superseded) {
    std::erase_if(copies, [&answer](const Copy& copy) {
      return copy.life != answer.life && copy.changed_ns <= answer.as_of_ns;
    });
  }
  return true;
}

int64_t SeenCopies::NeededOf(uint32_t table, const ServedPart& part, const void* server,
                             int64_t begin_ns) const {
  absl::MutexLock lock(&mu_);
  const auto parts = tables_.find(table);
  if (parts == tables_.end()) return 0;
  int64_t needed_ns = 0;
  for (uint32_t p = 0; p < parts->second.size(); ++p) {
    if (parts->second.size() == part.parts && p != part.part) continue;
    for (const Copy& copy : parts->second[p]) {
      if (copy.server == server && p == part.part) return 0;
      needed_ns = std::max(needed_ns, copy.changed_ns);
    }
  }
  return std::min(needed_ns, begin_ns);
}

}  // namespace hotbed
