// The misdeeds: each takes an amount and returns 0 for done, else the error number of its refusal.
#pragma once
#include <unistd.h>

#define ALL_MISDEEDS(M) \
    M(segfault) M(aborted) M(illegal_instruction) M(arithmetic_error) M(exit_with) M(kill_itself) M(endless_loop) \
    M(deaf_endless_loop) M(truncated_mapping) M(stack_overflow) M(cpp_exception) M(double_free) M(heap_overflow) \
    M(crash_after_answer) M(close_descriptors) M(take_at_once) M(take_slowly) M(take_in_file) M(take_in_children) \
    M(write_outside) M(read_secret) M(delete_secret) M(change_mode) M(change_mode_of_engine) M(read_other_model) \
    M(overwrite_own_model) M(read_cache_key) M(write_cache) M(read_server_environment) M(open_server_memory) \
    M(fill_disk) M(open_many_files) M(connect_tcp) M(send_udp) M(listen_tcp) M(connect_unix) M(run_shell) \
    M(kill_server) M(kill_neighbour) M(trace_server) M(pin_server) M(slow_server) M(read_server_memory) \
    M(read_server_limits) M(raise_limits) M(real_time_priority) M(new_namespace) M(fork_bomb) M(leave_daemon) \
    M(many_threads) M(busy_threads) M(fill_channel) M(scribble_on_channel) M(forge_answer) M(forge_values) \
    M(forge_strings) M(forge_error) M(take_shared) M(take_in_device) M(take_in_page_tables) M(take_in_sockets) \
    M(pass_descriptors) M(reserve_channel) M(write_channel) M(change_open_mode) M(change_open_owner) \
    M(change_open_times) M(change_open_attributes) M(outlive_server) M(garbage_to_control) \
    M(flood_control) M(flood_log) M(escape_sequences) M(forge_log) M(ring_in_vain) M(block_event) M(sparse_cache_file) \
    M(many_cache_files) M(pipes_in_cache) M(list_cache) M(read_other_entry)

#define DECLARE(name) long name(long amount);
ALL_MISDEEDS(DECLARE)

#define MEBIBYTE (1L << 20)

static inline void pause_for(long milliseconds) { usleep(milliseconds * 1000); }
