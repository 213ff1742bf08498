//! The body fields that routing reads.

use super::view::View;

/// A top-level field that some endpoint routes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Model,
    Stream,
    Rid,
    CacheSalt,
    ExtraKey,
    LoraPath,
    LoraId,
    Messages,
    System,
    Prompt,
    Text,
    InputIds,
    Input,
    Query,
}

impl Field {
    const COUNT: usize = Self::Query as usize + 1;

    /// The field of this name, unescaped.
    pub(super) fn named(key: &[u8]) -> Option<Self> {
        Some(match key {
            b"model" => Self::Model,
            b"stream" => Self::Stream,
            b"rid" => Self::Rid,
            b"cache_salt" => Self::CacheSalt,
            b"extra_key" => Self::ExtraKey,
            b"lora_path" => Self::LoraPath,
            b"lora_id" => Self::LoraId,
            b"messages" => Self::Messages,
            b"system" => Self::System,
            b"prompt" => Self::Prompt,
            b"text" => Self::Text,
            b"input_ids" => Self::InputIds,
            b"input" => Self::Input,
            b"query" => Self::Query,
            _ => return None,
        })
    }
}

/// The routing fields of one body. Of a repeated key the last value counts, as in the JSON parsers
/// the engines use.
#[derive(Debug)]
pub(super) struct Fields<V>([Option<V>; Field::COUNT]);

impl<V> Default for Fields<V> {
    fn default() -> Self {
        Self([const { None }; Field::COUNT])
    }
}

impl<V: View> Fields<V> {
    /// The fields of the object `body`.
    pub(super) fn of(body: V) -> Self {
        let mut fields = Self::default();
        for (key, value) in body.members() {
            if let Some(field) = Field::named(key.as_bytes()) {
                fields.set(field, value);
            }
        }
        fields
    }

    pub(super) fn set(&mut self, field: Field, value: V) {
        self.0[field as usize] = Some(value);
    }

    pub(super) fn get(&self, field: Field) -> Option<V> {
        self.0[field as usize]
    }

    /// The field's text if it is a string.
    pub(super) fn text(&self, field: Field) -> Option<V::Text> {
        self.get(field)?.text()
    }
}
