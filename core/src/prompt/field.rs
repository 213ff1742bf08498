//! The body fields that routing reads.

use super::tape::View;

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
pub(super) struct Fields<'t>([Option<View<'t>>; Field::COUNT]);

impl<'t> Fields<'t> {
    /// The fields of `body`; `None` if it is not an object.
    pub(super) fn of(body: View<'t>) -> Option<Self> {
        if !body.is_object() {
            return None;
        }
        let mut fields = Self([None; Field::COUNT]);
        for (key, value) in body.members() {
            if let Some(field) = Field::named(key.as_bytes()) {
                fields.0[field as usize] = Some(value);
            }
        }
        Some(fields)
    }

    pub(super) fn get(&self, field: Field) -> Option<View<'t>> {
        self.0[field as usize]
    }

    /// The field's value if it is a string.
    pub(super) fn str(&self, field: Field) -> Option<&'t str> {
        self.get(field)?.str()
    }
}
