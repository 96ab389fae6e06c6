#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = tidegate_lab::load::LoadFile::parse("fuzz.toml", text);
});
