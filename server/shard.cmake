hotbed_library(shard
  SRCS catalog_file.cc copy_pace.cc copy_receiver.cc copy_sender.cc segment_check.cc push_state.cc session_table.cc staged_rows.cc
       shard.cc shard_apply.cc shard_commit.cc shard_copies.cc shard_core.cc shard_core_epochs.cc shard_core_followers.cc
       shard_core_replica.cc shard_core_steps.cc shard_host.cc shard_host_control.cc shard_host_copies.cc shard_host_recover.cc
       shard_host_renew.cc shard_host_replica.cc shard_host_stop.cc shard_host_upkeep.cc shard_pull.cc shard_push.cc shard_replay.cc
       shard_replica.cc shard_untaken.cc strand.cc thread_pool.cc
  DEPS hotbed_tiers hotbed_shard_log hotbed_common hotbed_row_math absl::inlined_vector absl::any_invocable
       absl::flat_hash_map absl::status absl::statusor absl::strings absl::synchronization absl::time)
# Its loops are written for a constant trip count; -O2 leaves them scalar.
set_source_files_properties(segment_check.cc PROPERTIES COMPILE_OPTIONS ${HOTBED_LOOPS} SKIP_PRECOMPILE_HEADERS ON)
