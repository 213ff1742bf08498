#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| smg_fuzz_cases::admin::run(data));
