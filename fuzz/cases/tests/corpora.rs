//! Every kept input of every target.

use std::fs;
use std::path::Path;

use smg_fuzz_cases::CASES;

#[test]
fn kept_inputs_pass() {
    for (name, case) in CASES {
        let inputs = fs::read_dir(corpora().join(name)).expect("a corpus per target");
        let mut seen = 0;
        for input in inputs {
            let path = input.expect("a readable directory").path();
            let bytes = fs::read(&path).expect("a readable file");
            let outcome = std::panic::catch_unwind(|| case(&bytes));
            assert!(outcome.is_ok(), "{} fails on {}", name, path.display());
            seen += 1;
        }
        assert!(seen > 0, "{name} has no input");
    }
}

#[test]
fn every_corpus_has_its_target() {
    let names = fs::read_dir(corpora()).expect("the corpora");
    for name in names.map(|entry| entry.expect("a readable directory").file_name()) {
        assert!(CASES.iter().any(|(case, _)| name == **case), "{name:?} is nobody's");
    }
}

fn corpora() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus"))
}
