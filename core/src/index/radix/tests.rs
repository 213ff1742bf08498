use super::super::*;
use crate::fleet::WorkerId;

#[test]
fn smoke() {
    let mut tree = TextTree::new(Limits::new(1000));
    let w = WorkerId { slot: 1, generation: 0 };
    let f = tree.find(None, "hello world", |_| true);
    tree.record(&f, "hello world", w, 1);
    let f = tree.find(None, "hello", |_| true);
    assert_eq!((f.matched_units, f.total_units, f.holders()), (5, 5, &[w][..]));
}
