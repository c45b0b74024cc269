#include "server/shard/shard_status.h"

namespace hotbed {

StatusNumbers ShardStatus::Numbers() const {
  StatusNumbers numbers;
  numbers.Add("", "hotbed_table_shards", "Shards held.", 1);
  numbers.Add("epoch", "", "", epoch);
  numbers.Add("followers", "", "", followers);
  numbers.Add("commit_lsn", "", "", commit_lsn);
  numbers.Add("applied_lsn", "", "", applied_lsn);
  numbers.Add("durable_row_lsn", "", "", durable_row_lsn);
  numbers.Add("sessions", "", "", sessions);
  numbers.Add("committed_step", "", "", committed_step);
  numbers.Add("staged_bytes", "", "", staged_bytes);
  numbers.Add("tail_bytes", "", "", tail_bytes);
  numbers.Add("bytes", "", "", bytes);
  numbers.Add("rows_resident", "hotbed_table_resident_rows",
              "Rows in the hot tier, including those on the device.", store.rows_resident);
  numbers.Add("device_rows", "hotbed_table_device_rows", "Resident rows that are in device memory.",
              store.device_rows);
  numbers.Add("device_bytes", "", "", store.device_bytes);
  numbers.Add("hot_bytes", "hotbed_table_hot_bytes",
              "Host memory of resident rows, with their overhead.", store.hot_bytes);
  numbers.Add("overhead_bytes", "hotbed_table_overhead_bytes",
              "Part of hotbed_table_hot_bytes that is not weights and state of resident rows.",
              store.overhead_bytes);
  numbers.Add("rows_pulled", "hotbed_table_pulled_rows_total", "Rows read.", rows_pulled);
  numbers.Add("rows_pushed", "hotbed_table_pushed_rows_total", "Gradient rows applied.",
              rows_pushed);
  numbers.Add("hot_hits", "hotbed_table_hot_hits_total", "Row accesses served from memory.",
              store.hits);
  numbers.Add("device_hits", "hotbed_table_device_hits_total",
              "Row accesses served from device memory; included in the hot hits.",
              store.device_hits);
  numbers.Add("hot_misses", "hotbed_table_hot_misses_total",
              "Row accesses that went below the hot tier.", store.misses);
  numbers.Add("evictions", "hotbed_table_evictions_total", "Rows evicted from memory.",
              store.evictions);
  if (rows_counted) {
    numbers.Add("rows", "hotbed_table_rows", "Rows that exist, in all tiers, where they are known.",
                rows);
  }
  numbers.Add("rows_expired", "hotbed_table_expired_rows_total",
              "Rows deleted because they were not touched for too long.", rows_expired);
  numbers.Add("rows_evicted", "hotbed_table_evicted_rows_total",
              "Rows deleted because the table had more than its limit.", rows_evicted);
  numbers.Add("delete_marks", "hotbed_table_delete_marks",
              "Deleted rows that are remembered for readers of changes, at most.", delete_marks);
  numbers.Add("rows_held", "hotbed_table_held_gradients_total",
              "Gradients that were counted and not applied, because their rows are not admitted.",
              store.rows_held);
  numbers.Add(
      "admit_filter_bytes", "hotbed_table_admit_filter_bytes",
      "Memory of the filter that counts touches until rows are admitted (--admit-by bloom).",
      store.filter_bytes);
  numbers.Add("admit_filter_counters", "hotbed_table_admit_filter_counters",
              "Counters of that filter.", store.filter_counters);
  numbers.Add("admit_filter_used", "hotbed_table_admit_filter_used_counters",
              "Counters of that filter that are above 0.", store.filter_used);
  numbers.Add("writebacks", "hotbed_table_writebacks_total", "Rows written to the spill tier.",
              store.writebacks);
  return numbers;
}

}  // namespace hotbed
