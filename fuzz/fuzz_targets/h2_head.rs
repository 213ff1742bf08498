#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| smg_fuzz_cases::h2_head::run(data));
