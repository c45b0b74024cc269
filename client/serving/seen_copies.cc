#include "client/serving/seen_copies.h"

#include <algorithm>

namespace hotbed {

SeenCopies::Verdict SeenCopies::Take(uint32_t table, const ServedPart& part, const Answer& answer,
                                     const Begin& begin, bool may_be_older) {
  if (answer.life == 0) return Verdict::kNew;
  absl::MutexLock lock(&mu_);
  Parts& parts = tables_[table];
  if (parts.size() != part.parts) {
    // Rows that a part of another cut has shown may be in any part of this one.
    Copy others;
    Part all;
    for (const Part& one : parts) {
      all.mark = std::max(all.mark, one.mark);
      for (const Copy& copy : one.copies) {
        others.changed_ns = std::max(others.changed_ns, copy.changed_ns);
      }
    }
    if (others.changed_ns != 0) all.copies.push_back(others);
    parts.assign(part.parts, all);
  }
  Part& of = parts[part.part];
  Copy* own = nullptr;
  bool older = false;
  for (Copy& copy : of.copies) {
    if (copy.life == answer.life) {
      own = &copy;
      older |= answer.as_of_ns < std::min(copy.covers_ns, begin.ns);
      continue;
    }
    older |= answer.as_of_ns < std::min(copy.changed_ns, begin.ns);
  }
  if (older && own == nullptr && !may_be_older) return Verdict::kRefused;
  if (own == nullptr) {
    of.copies.push_back({answer.server, answer.life, answer.changed_ns});
  } else {
    own->changed_ns = std::max(own->changed_ns, answer.changed_ns);
  }
  // Those whose rows are all in this answer, or that do not count any more.
  int64_t covers_ns = 0;
  std::erase_if(of.copies, [&](const Copy& copy) {
    if (copy.life == answer.life) return false;
    const bool gone = older || copy.changed_ns <= answer.as_of_ns;
    if (gone) covers_ns = std::max({covers_ns, copy.changed_ns, copy.covers_ns});
    return gone;
  });
  for (Copy& copy : of.copies) {
    if (copy.life != answer.life) continue;
    copy.covers_ns = older ? 0 : std::max(copy.covers_ns, covers_ns);
  }
  // What bound a lookup at its begin may be forgotten since.
  const bool marked = older || begin.marks < of.mark;
  if (older) of.mark = ++marks_;
  return marked ? Verdict::kOlder : Verdict::kNew;
}

SeenCopies::Needed SeenCopies::NeededOf(uint32_t table, const ServedPart& part, const void* server,
                                        int64_t begin_ns) const {
  absl::ReaderMutexLock lock(&mu_);
  const auto parts = tables_.find(table);
  if (parts == tables_.end()) return {};
  Needed needed;
  for (uint32_t p = 0; p < parts->second.size(); ++p) {
    if (parts->second.size() == part.parts && p != part.part) continue;
    for (const Copy& copy : parts->second[p].copies) {
      if (copy.server == server && p == part.part) {
        needed.known = true;
        continue;
      }
      needed.as_of_ns = std::max(needed.as_of_ns, copy.changed_ns);
    }
  }
  needed.as_of_ns = std::min(needed.as_of_ns, begin_ns);
  return needed;
}

}  // namespace hotbed
