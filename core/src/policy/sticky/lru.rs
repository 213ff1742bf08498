//! Values in order of last use: a slab with a list through it, so that neither finding the oldest
//! nor forgetting it walks anything.

const NONE: u32 = u32::MAX;

/// A slab of at most `u32::MAX - 1` values, each with the time of its last use.
#[derive(Debug)]
pub(super) struct Lru<T> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

#[derive(Debug)]
struct Node<T> {
    value: T,
    used_ms: u64,
    newer: u32,
    older: u32,
}

impl<T> Default for Lru<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), newest: NONE, oldest: NONE }
    }
}

impl<T: Default> Lru<T> {
    /// Adds a value as the newest, used at time 0 until it is touched.
    pub(super) fn push(&mut self, value: T) -> u32 {
        let node = Node { value, used_ms: 0, newer: NONE, older: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.link_newest(at);
        at
    }

    /// Removes the value at `at`, which must be in use.
    pub(super) fn remove(&mut self, at: u32) -> T {
        self.unlink(at);
        self.free.push(at);
        std::mem::take(&mut self.nodes[at as usize].value)
    }

    pub(super) fn get(&self, at: u32) -> &T {
        &self.nodes[at as usize].value
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut T {
        &mut self.nodes[at as usize].value
    }

    /// Makes the value at `at` the newest.
    pub(super) fn touch(&mut self, at: u32, now_ms: u64) {
        self.nodes[at as usize].used_ms = now_ms;
        if self.newest != at {
            self.unlink(at);
            self.link_newest(at);
        }
    }

    /// Place and last use of the value unused for longest.
    pub(super) fn oldest(&self) -> Option<(u32, u64)> {
        let node = self.nodes.get(self.oldest as usize)?;
        Some((self.oldest, node.used_ms))
    }

    fn link_newest(&mut self, at: u32) {
        let older = std::mem::replace(&mut self.newest, at);
        let node = &mut self.nodes[at as usize];
        (node.newer, node.older) = (NONE, older);
        match self.nodes.get_mut(older as usize) {
            Some(older) => older.newer = at,
            None => self.oldest = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let Node { newer, older, .. } = self.nodes[at as usize];
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => self.newest = older,
        }
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn the_order_of_use_is_that_of_a_plain_list() {
        let mut rng = Rng::new(4);
        let mut lru = Lru::default();
        let mut model: Vec<(u32, u64, u64)> = Vec::new(); // place, value, used; oldest first
        for now_ms in 0..5000 {
            match rng.below(4) {
                0 | 1 => {
                    let at = lru.push(now_ms);
                    lru.touch(at, now_ms);
                    model.push((at, now_ms, now_ms));
                }
                2 if !model.is_empty() => {
                    let (at, value, _) = model.remove(rng.below(model.len()));
                    lru.touch(at, now_ms);
                    model.push((at, value, now_ms));
                }
                3 if !model.is_empty() => {
                    let which = if rng.below(2) == 0 { 0 } else { rng.below(model.len()) };
                    let (at, value, _) = model.remove(which);
                    assert_eq!(lru.remove(at), value);
                }
                _ => {}
            }
            assert_eq!(lru.oldest(), model.first().map(|&(at, _, used)| (at, used)));
        }
        assert!(model.len() > 100);
        for (at, value, _) in model {
            assert_eq!(*lru.get(at), value);
            assert_eq!(lru.oldest().unwrap().0, at);
            lru.remove(at);
        }
        assert_eq!(lru.oldest(), None);
    }
}
