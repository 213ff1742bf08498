//! JSON values as routing reads them, whichever way they were parsed.

use std::ops::Deref;

/// One value of a document.
pub(super) trait View: Copy {
    /// A string's text.
    type Text: Text;
    /// A short string, to be compared.
    type Name: Deref<Target = str>;
    /// See [`View::elements`].
    type Elements: Iterator<Item = Self> + Clone;
    /// See [`View::members`].
    type Members: Iterator<Item = (Self::Name, Self)>;

    /// The text, if it is a string.
    fn text(self) -> Option<Self::Text>;

    /// The same of a string that may be a name of something. One that is none for sure may come out as
    /// another that is none.
    fn name(self) -> Option<Self::Name>;

    fn is_true(self) -> bool;

    fn is_null(self) -> bool;

    /// The elements, if it is an array.
    fn elements(self) -> Option<Self::Elements>;

    /// The members in order, repeated keys included; none if it is not an object.
    fn members(self) -> Self::Members;

    /// A token ID: an integer that fits `u32`, or a negative one that fits `i32`, by its bits.
    fn token(self) -> Option<u32>;
}

/// The text of a string, without escapes, in as many parts as it takes.
pub(super) trait Text: Copy {
    fn is_empty(self) -> bool;

    /// Hands the parts to `each` in order, until that returns false.
    fn for_each(self, each: impl FnMut(&str) -> bool);
}

impl Text for &str {
    #[inline]
    fn is_empty(self) -> bool {
        str::is_empty(self)
    }

    #[inline]
    fn for_each(self, mut each: impl FnMut(&str) -> bool) {
        each(self);
    }
}
