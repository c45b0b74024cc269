"""The Grafana dashboards: rows of panels, each with its unit and its queries."""

QUANTILE = "histogram_quantile({q}, sum by (instance, le) (rate({name}_bucket{{{where}}}[$__rate_interval])))"


def rate(name, by="instance", where='instance=~"$instance"'):
    return f"sum by ({by}) (rate({name}{{{where}}}[$__rate_interval]))"


def quantile(name, q, where='instance=~"$instance"'):
    return QUANTILE.format(name=name, q=q, where=where)


# Dashboard: title, variables (name, query), panels (title, Grafana's unit, ((query, legend), ...)).
DASHBOARDS = {
    "cluster": ("Hotbed: cluster", (), (
        ("Servers", "short", (("hotbed_coordinator_servers", "{{state}}"),)),
        ("Shards", "short", (("hotbed_coordinator_shards", "{{state}}"),
                             ("hotbed_coordinator_shards_short", "short of replicas"),
                             ("hotbed_coordinator_shards_in_doubt", "in doubt"))),
        ("Moves and refills", "short", (("hotbed_coordinator_moves", "in progress or waiting"),
                                        ("hotbed_coordinator_shards_waiting", "waiting"))),
        ("Snapshot transfers", "Bps", (("hotbed_coordinator_transfer_bytes_per_second", "all"),)),
        ("Changes of who holds a shard", "ops", (("rate(hotbed_coordinator_shard_changes_total[$__rate_interval])", "{{kind}}"),)),
        ("Fail-over, 99 of 100 shards", "s",
         (("histogram_quantile(0.99, sum by (le) (rate(hotbed_coordinator_fail_over_seconds_bucket[$__rate_interval])))",
           "until served again"),)),
        ("Rows pulled", "rowsps", (("sum by (table) (rate(hotbed_table_pulled_rows_total[$__rate_interval]))", "{{table}}"),)),
        ("Rows pushed", "rowsps", (("sum by (table) (rate(hotbed_table_pushed_rows_total[$__rate_interval]))", "{{table}}"),)),
        ("Rows found in memory", "percentunit",
         (("sum by (table) (rate(hotbed_table_hot_hits_total[$__rate_interval])) / "
           "(sum by (table) (rate(hotbed_table_hot_hits_total[$__rate_interval])) + "
           "sum by (table) (rate(hotbed_table_hot_misses_total[$__rate_interval])))", "{{table}}"),)),
        ("Requests to the coordinator", "reqps",
         (("sum by (method, outcome) (rate(hotbed_coordinator_requests_total[$__rate_interval]))", "{{method}} {{outcome}}"),)),
        ("Commits of metadata, 99 of 100", "s",
         (("histogram_quantile(0.99, sum by (le) (rate(hotbed_coordinator_commit_seconds_bucket[$__rate_interval])))",
           "commit"),)),
        ("Versions", "short", (("count by (version) (hotbed_build_info)", "{{version}}"),)),
    )),
    "server": ("Hotbed: servers", (("instance", "label_values(hotbed_server_host_limit_bytes, instance)"),), (
        ("Pulls, median", "s", ((quantile("hotbed_server_pull_seconds", 0.5), "{{instance}}"),)),
        ("Pulls, 99 of 100", "s", ((quantile("hotbed_server_pull_seconds", 0.99), "{{instance}}"),)),
        ("Pushes, median", "s", ((quantile("hotbed_server_push_seconds", 0.5), "{{instance}}"),)),
        ("Pushes, 99 of 100", "s", ((quantile("hotbed_server_push_seconds", 0.99), "{{instance}}"),)),
        ("Lookups, 99 of 100", "s", ((quantile("hotbed_server_lookup_seconds", 0.99), "{{instance}}"),)),
        ("Messages", "reqps", ((rate("hotbed_server_pull_messages_total"), "pulls {{instance}}"),
                               (rate("hotbed_server_push_messages_total"), "pushes {{instance}}"),
                               (rate("hotbed_server_lookup_messages_total"), "lookups {{instance}}"))),
        ("Refusals", "ops", ((rate("hotbed_server_refusals_total", "instance, code"), "{{instance}} {{code}}"),)),
        ("Memory", "bytes", (('process_resident_memory_bytes{instance=~"$instance"}', "resident {{instance}}"),
                             ('hotbed_server_host_limit_bytes{instance=~"$instance"}', "budget {{instance}}"),
                             ('hotbed_server_hot_bytes{instance=~"$instance"}', "rows {{instance}}"))),
        ("Disk", "bytes", (('hotbed_server_spill_bytes{instance=~"$instance"}', "rows {{instance}}"),
                           ('hotbed_server_log_bytes{instance=~"$instance"}', "log {{instance}}"))),
        ("Log", "ops", ((rate("hotbed_server_log_appends_total"), "records {{instance}}"),
                        (rate("hotbed_server_log_syncs_total"), "syncs {{instance}}"))),
        ("Rows evicted and written back", "rowsps",
         ((rate("hotbed_table_evictions_total"), "evicted {{instance}}"),
          (rate("hotbed_table_writebacks_total"), "written back {{instance}}"))),
        ("Bytes in flight", "bytes", (('hotbed_server_in_flight_bytes{instance=~"$instance"}', "{{budget}} {{instance}}"),
                                      ('hotbed_server_push_waiting_bytes{instance=~"$instance"}', "waiting {{instance}}"))),
        ("Between servers", "Bps", ((rate("hotbed_replica_sent_bytes_total"), "sent {{instance}}"),
                                    (rate("hotbed_replica_received_bytes_total"), "received {{instance}}"))),
        ("Processor time", "percentunit", ((rate("process_cpu_seconds_total"), "{{instance}}"),)),
        ("Connections", "short", (('hotbed_port_connections{instance=~"$instance"}', "{{port}} {{instance}}"),)),
        ("Connections refused or ended", "ops",
         ((rate("hotbed_port_ended_total", "instance, reason"), "{{instance}} {{reason}}"),)),
        ("GPU memory", "bytes", (('hotbed_server_device_bytes{instance=~"$instance"}', "taken {{instance}}"),
                                 ('hotbed_server_device_limit_bytes{instance=~"$instance"}', "limit {{instance}}"))),
        ("Rows found on the GPU", "percentunit",
         ((rate("hotbed_table_device_hits_total") + " / " + rate("hotbed_table_pulled_rows_total"), "{{instance}}"),)),
    )),
    "training": ("Hotbed: training", (("group", "label_values(hotbed_coordinator_trainers, group)"),), (
        ("Trainers", "short", (('hotbed_coordinator_trainers{group=~"$group"}', "{{group}}"),)),
        ("Steps committed", "short", (('hotbed_coordinator_group_committed_step{group=~"$group"}', "{{group}}"),)),
        ("Steps per second", "ops", (('deriv(hotbed_coordinator_group_committed_step{group=~"$group"}[$__rate_interval])', "{{group}}"),)),
        ("Steps between the fastest and the slowest trainer", "short",
         (('hotbed_coordinator_group_fastest_step{group=~"$group"} - hotbed_coordinator_group_slowest_step{group=~"$group"}',
           "{{group}}"),)),
        ("Gradient rows", "rowsps", (("sum by (table) (rate(hotbed_table_pushed_rows_total[$__rate_interval]))", "{{table}}"),)),
        ("Pushes staged for their step", "bytes", (("sum by (instance) (hotbed_server_staged_bytes)", "{{instance}}"),)),
        ("Pushes, 99 of 100", "s", ((quantile("hotbed_server_push_seconds", 0.99, ""), "{{instance}}"),)),
        ("Sessions opened", "short", (("hotbed_coordinator_sessions", "sessions"),)),
    )),
}
