#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_proxy::fuzzing::http1(bytes));
