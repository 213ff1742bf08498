//! Black-box tests of the gateway program. Each module is named after the hazard it stages: the
//! program runs as it ships, in front of scripted workers, and raw clients say what they see.
//!
//! One binary, so that there is one link step. The environment reaches the program: run it once as it
//! is and once with `MONOIO_FORCE_LEGACY_DRIVER=1`.

mod harness;

mod affinity_lost_across_shards;
mod asked_before_it_serves;
mod bodies_fill_memory;
mod body_altered_on_the_way;
mod body_is_compressed;
mod body_is_huge;
mod browser_asks_first;
mod client_leaves_before_first_byte;
mod client_leaves_during_upload;
mod client_leaves_mid_stream;
mod client_reads_slowly;
mod comparison_misleads;
mod counts_drift;
mod dashboard_goes_blind;
mod descriptors_exhausted;
mod everything_at_once;
mod http2_connection_is_abused;
mod http2_smuggles;
mod http2_stream_ends_early;
mod keys_change_while_serving;
mod locked_memory_short;
mod log_lags_behind;
mod log_reader_stalls;
mod memory_kept_after_eviction;
mod models_mixed_up;
mod one_connection_takes_all;
mod policy_does_less_than_its_name;
mod pooled_connection_goes_stale;
mod request_cannot_be_read;
mod request_leaves_no_trace;
mod restarted_at_once;
mod start_up_impossible;
mod stopped_while_serving;
mod stopped_while_serving_http2;
mod tls_goes_wrong;
mod too_many_per_second;
mod transport_alters_what_is_relayed;
mod upload_is_slow;
mod worker_answers_before_it_has_read;
mod worker_answers_too_much;
mod worker_dies_before_first_byte;
mod worker_dies_mid_stream;
mod worker_falls_ill;
mod worker_hangs;
mod worker_host_vanishes;
mod worker_over_tls;
mod worker_removed_while_serving;
mod worker_speaks_for_the_gateway;
mod worker_talks_out_of_turn;
