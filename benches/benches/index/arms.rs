//! What is compared: this crate's trees, kv-index's, and the least work any tree has to do.

use std::hint::black_box;
use std::ops::Range;

use smg_core::index::{Alphabet, Limits, Pages, RadixTree, Text, TextTree, TokenTree};

use crate::corpus::{CHARS_PER_TOKEN, PAGE_TOKENS, text_of, worker_id, worker_name};

/// Prompts of one kind, and trees over them.
pub trait Kind {
    type Alphabet: Alphabet<Prompt = Self::Prompt>;
    type Prompt: ?Sized;
    type Owned: Clone;
    type Peer;

    const NAME: &'static str;
    const UNITS_PER_TOKEN: usize;

    fn tree(limits: Limits) -> RadixTree<Self::Alphabet>;
    fn peer() -> Self::Peer;
    fn prompt(tokens: &[u32]) -> Self::Owned;
    fn borrow(prompt: &Self::Owned) -> &Self::Prompt;
    fn copy_into(prompt: &Self::Prompt, scratch: &mut Self::Owned);
    fn part(prompt: &Self::Prompt, units: Range<usize>) -> &Self::Prompt;
    fn head(prompt: &Self::Prompt, units: usize) -> &Self::Prompt {
        Self::part(prompt, 0..units)
    }
    fn is_equal(a: &Self::Prompt, b: &Self::Prompt) -> bool;
    fn copy(prompt: &Self::Prompt) -> Self::Owned;
    fn units(prompt: &Self::Prompt) -> usize;
    /// Appends what follows the first `from` units.
    fn append(slab: &mut Self::Owned, prompt: &Self::Prompt, from: usize);
    fn peer_record(peer: &Self::Peer, prompt: &Self::Prompt, worker: &'static str) -> usize;
    fn peer_evict(peer: &Self::Peer, units: usize);
    fn peer_units(peer: &Self::Peer) -> usize;
}

/// Text: one unit per character.
pub struct Chars;

/// Token IDs: one unit per token.
pub struct Tokens;

impl Kind for Chars {
    type Alphabet = Text;
    type Prompt = str;
    type Owned = String;
    type Peer = kv_index::StringTree;

    const NAME: &'static str = "string";
    const UNITS_PER_TOKEN: usize = CHARS_PER_TOKEN;

    fn tree(limits: Limits) -> TextTree {
        TextTree::new(limits)
    }

    fn peer() -> Self::Peer {
        kv_index::StringTree::new()
    }

    fn prompt(tokens: &[u32]) -> String {
        text_of(tokens)
    }

    fn borrow(prompt: &String) -> &str {
        prompt
    }

    fn copy_into(prompt: &str, scratch: &mut String) {
        scratch.clear();
        scratch.push_str(prompt);
    }

    fn part(prompt: &str, units: Range<usize>) -> &str {
        &prompt[units]
    }

    fn is_equal(a: &str, b: &str) -> bool {
        a == b
    }

    fn copy(prompt: &str) -> String {
        prompt.to_owned()
    }

    fn units(prompt: &str) -> usize {
        prompt.len()
    }

    fn append(slab: &mut String, prompt: &str, from: usize) {
        slab.push_str(&prompt[from..]);
    }

    fn peer_record(peer: &Self::Peer, prompt: &str, worker: &'static str) -> usize {
        peer.match_and_insert_with(prompt, |_| Some(worker)).matched_char_count
    }

    fn peer_evict(peer: &Self::Peer, units: usize) {
        peer.evict_tenant_by_size(units);
    }

    fn peer_units(peer: &Self::Peer) -> usize {
        peer.total_char_size()
    }
}

impl Kind for Tokens {
    type Alphabet = Pages;
    type Prompt = [u32];
    type Owned = Vec<u32>;
    type Peer = kv_index::TokenTree;

    const NAME: &'static str = "token";
    const UNITS_PER_TOKEN: usize = 1;

    fn tree(limits: Limits) -> TokenTree {
        TokenTree::new(limits, PAGE_TOKENS as u32)
    }

    fn peer() -> Self::Peer {
        kv_index::TokenTree::new()
    }

    fn prompt(tokens: &[u32]) -> Vec<u32> {
        tokens.to_vec()
    }

    fn borrow(prompt: &Vec<u32>) -> &[u32] {
        prompt
    }

    fn copy_into(prompt: &[u32], scratch: &mut Vec<u32>) {
        scratch.clear();
        scratch.extend_from_slice(prompt);
    }

    fn part(prompt: &[u32], units: Range<usize>) -> &[u32] {
        &prompt[units]
    }

    fn is_equal(a: &[u32], b: &[u32]) -> bool {
        a == b
    }

    fn copy(prompt: &[u32]) -> Vec<u32> {
        prompt.to_vec()
    }

    fn units(prompt: &[u32]) -> usize {
        prompt.len()
    }

    fn append(slab: &mut Vec<u32>, prompt: &[u32], from: usize) {
        slab.extend_from_slice(&prompt[from..]);
    }

    fn peer_record(peer: &Self::Peer, prompt: &[u32], worker: &'static str) -> usize {
        peer.match_and_insert_with(prompt, |_| Some(worker)).matched_token_count
    }

    fn peer_evict(peer: &Self::Peer, units: usize) {
        peer.evict_tenant_by_size(units);
    }

    fn peer_units(peer: &Self::Peer) -> usize {
        peer.total_token_size()
    }
}

/// This crate's tree with its clock.
pub struct Ours<K: Kind> {
    pub tree: RadixTree<K::Alphabet>,
    touch: u64,
}

impl<K: Kind> Ours<K> {
    pub fn new(limits: Limits) -> Self {
        Self { tree: K::tree(limits), touch: 0 }
    }

    /// One decision: look up, choose, record. Returns the matched units.
    pub fn record(&mut self, prompt: &K::Prompt, worker: usize) -> u64 {
        self.touch += 1;
        let found = black_box(self.tree.find(None, prompt, |_| true));
        self.tree.record(&found, prompt, worker_id(worker), self.touch);
        found.matched_units
    }
}

/// The same decision on kv-index.
pub fn record_peer<K: Kind>(peer: &K::Peer, prompt: &K::Prompt, worker: usize) -> usize {
    black_box(K::peer_record(peer, prompt, worker_name(worker)))
}
