#![no_main]

// A recording that anybody may have written: everything readable is read, without a panic.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let file = [b"TGREC\n\x01\x00".as_slice(), bytes].concat();
    let _ = tidegate_record::Recording::parse("fuzz", &file);
});
