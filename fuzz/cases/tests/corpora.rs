//! Every kept input of every target.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use smg_fuzz_cases::{CASES, Case};

#[test]
fn kept_inputs_pass() {
    std::thread::scope(|scope| {
        for &(name, case) in CASES {
            scope.spawn(move || assert_passes(name, case));
        }
    });
}

fn assert_passes(name: &str, case: Case) {
    let inputs = fs::read_dir(corpora().join(name)).expect("a corpus per target");
    let paths: Vec<_> = inputs.map(|entry| entry.expect("a readable directory").path()).collect();
    assert!(!paths.is_empty(), "{name} has no input");
    for path in paths {
        let bytes = fs::read(&path).expect("a readable file");
        let outcome = catch_unwind(AssertUnwindSafe(|| case(&bytes)));
        assert!(outcome.is_ok(), "{name} fails on {}", path.display());
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
