//! Read-only views of a body that the SIMD parser has read.

use simd_json::{Node, StaticNode};

use super::view::View;

/// One JSON value of a tape: its node, followed by the nodes it contains.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nodes<'t>(&'t [Node<'t>]);

impl<'t> Nodes<'t> {
    /// The whole document.
    pub(super) fn root(tape: &'t [Node<'t>]) -> Self {
        Self(tape)
    }

    pub(super) fn is_object(self) -> bool {
        matches!(self.0.first(), Some(Node::Object { .. }))
    }
}

impl<'t> View for Nodes<'t> {
    type Text = &'t str;
    type Name = &'t str;
    type Elements = Elements<'t>;
    type Members = Members<'t>;

    fn text(self) -> Option<&'t str> {
        match self.0.first() {
            Some(&Node::String(text)) => Some(text),
            _ => None,
        }
    }

    fn name(self) -> Option<&'t str> {
        self.text()
    }

    fn is_true(self) -> bool {
        matches!(self.0.first(), Some(Node::Static(StaticNode::Bool(true))))
    }

    fn is_null(self) -> bool {
        matches!(self.0.first(), Some(Node::Static(StaticNode::Null)))
    }

    fn elements(self) -> Option<Elements<'t>> {
        match self.0 {
            [Node::Array { .. }, rest @ ..] => Some(Elements(rest)),
            _ => None,
        }
    }

    fn members(self) -> Members<'t> {
        match self.0 {
            [Node::Object { .. }, rest @ ..] => Members(rest),
            _ => Members(&[]),
        }
    }

    fn token(self) -> Option<u32> {
        match self.0.first() {
            Some(&Node::Static(StaticNode::U64(id))) => u32::try_from(id).ok(),
            Some(&Node::Static(StaticNode::I64(id))) => {
                i32::try_from(id).ok().map(i32::cast_unsigned)
            }
            _ => None,
        }
    }
}

/// Iterates the elements of an array.
#[derive(Debug, Clone)]
pub(super) struct Elements<'t>(&'t [Node<'t>]);

impl<'t> Iterator for Elements<'t> {
    type Item = Nodes<'t>;

    fn next(&mut self) -> Option<Nodes<'t>> {
        let value;
        (value, self.0) = split_value(self.0)?;
        Some(value)
    }
}

/// Iterates the members of an object.
#[derive(Debug, Clone)]
pub(super) struct Members<'t>(&'t [Node<'t>]);

impl<'t> Iterator for Members<'t> {
    type Item = (&'t str, Nodes<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        let (&Node::String(key), rest) = self.0.split_first()? else { return None };
        let value;
        (value, self.0) = split_value(rest)?;
        Some((key, value))
    }
}

/// The first value of a run of nodes, and the nodes after it.
fn split_value<'t>(nodes: &'t [Node<'t>]) -> Option<(Nodes<'t>, &'t [Node<'t>])> {
    let len = match *nodes.first()? {
        Node::Object { count, .. } | Node::Array { count, .. } => 1 + count,
        Node::String(_) | Node::Static(_) => 1,
    };
    nodes.split_at_checked(len).map(|(value, rest)| (Nodes(value), rest))
}
