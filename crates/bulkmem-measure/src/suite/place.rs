//! Where something was measured: the keys that tell rows of one subject apart.

use std::fmt;

use bulkmem::Operation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PageSize;

/// Whether memory had been touched before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// Never touched since it was mapped: the kernel clears it at the first touch.
    Fresh,
    /// Touched before: nobody but the measured code clears it.
    Reused,
}

/// The order in which places in memory come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// In no order that a prefetcher guesses.
    Random,
}

/// Which way input and output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the target.
    Read,
    /// To the target.
    Write,
    /// Both.
    Mixed,
}

/// What tells one row from another of the same subject. Only what a measurement varies, or what must be known to
/// repeat it, is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Place {
    /// The operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// Bytes of the memory worked on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Bytes a call, where the memory is worked on in pieces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk: Option<u64>,
    /// Bytes one store writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u64>,
    /// Bytes of the pointer list that is walked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<u64>,
    /// The share of the result that is read back, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_back: Option<f64>,
    /// The rate that background work is held to, GB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The pages behind the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size: Option<PageSize>,
    /// Threads that share the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Whether the memory had been touched before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The order of places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Pattern>,
    /// Reading or writing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The share of reads among reads and writes, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<u8>,
    /// What is read from or written to: `ram`, or a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The cache attribute of the target's mapping: `wb`, `wc`, `uc`, `wt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// What the memory holds: `zeros`, or nothing where it is mixed bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Bytes past the start of a page at which the memory starts; nothing where it starts on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// One of the fields of a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "as the fields of `Place`")]
pub enum Key {
    Operation,
    Size,
    Chunk,
    Width,
    List,
    ReadBack,
    Rate,
    PageSize,
    Threads,
    Memory,
    Pattern,
    Direction,
    Mix,
    Target,
    Attribute,
    Content,
    Offset,
}

impl Key {
    /// All keys, in the order in which they are shown.
    pub const ALL: [Key; 17] = [
        Key::Operation,
        Key::Size,
        Key::Chunk,
        Key::Width,
        Key::List,
        Key::ReadBack,
        Key::Rate,
        Key::PageSize,
        Key::Threads,
        Key::Memory,
        Key::Pattern,
        Key::Direction,
        Key::Mix,
        Key::Target,
        Key::Attribute,
        Key::Content,
        Key::Offset,
    ];

    /// The field's name in files.
    pub fn name(self) -> &'static str {
        match self {
            Key::Operation => "operation",
            Key::Size => "size",
            Key::Chunk => "chunk",
            Key::Width => "width",
            Key::List => "list",
            Key::ReadBack => "read_back",
            Key::Rate => "rate",
            Key::PageSize => "page_size",
            Key::Threads => "threads",
            Key::Memory => "memory",
            Key::Pattern => "pattern",
            Key::Direction => "direction",
            Key::Mix => "mix",
            Key::Target => "target",
            Key::Attribute => "attribute",
            Key::Content => "content",
            Key::Offset => "offset",
        }
    }

    /// Whether the values are bytes.
    pub fn is_bytes(self) -> bool {
        matches!(self, Key::Size | Key::Chunk | Key::Width | Key::List | Key::Offset)
    }
}

impl Place {
    /// The value of a key as files have it; `None` where it is not set.
    pub fn get(&self, key: Key) -> Option<String> {
        fn text<T: fmt::Display>(value: &Option<T>) -> Option<String> {
            value.as_ref().map(T::to_string)
        }
        match key {
            Key::Operation => text(&self.operation),
            Key::Size => text(&self.size),
            Key::Chunk => text(&self.chunk),
            Key::Width => text(&self.width),
            Key::List => text(&self.list),
            Key::ReadBack => text(&self.read_back),
            Key::Rate => text(&self.rate),
            Key::PageSize => text(&self.page_size),
            Key::Threads => text(&self.threads),
            Key::Memory => self.memory.map(|memory| word(&memory)),
            Key::Pattern => self.pattern.map(|pattern| word(&pattern)),
            Key::Direction => self.direction.map(|direction| word(&direction)),
            Key::Mix => text(&self.mix),
            Key::Target => text(&self.target),
            Key::Attribute => text(&self.attribute),
            Key::Content => text(&self.content),
            Key::Offset => text(&self.offset),
        }
    }
}

/// The word that a value has in files.
fn word<T: fmt::Debug>(value: &T) -> String {
    format!("{value:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each field is a key, by the same name and with the same text.
    #[test]
    fn keys_are_the_fields() {
        let place = Place {
            operation: Some(Operation::Clear),
            size: Some(1),
            chunk: Some(2),
            width: Some(3),
            list: Some(4),
            read_back: Some(12.5),
            rate: Some(0.5),
            page_size: Some("2M".parse().unwrap()),
            threads: Some(5),
            memory: Some(Memory::Fresh),
            pattern: Some(Pattern::Random),
            direction: Some(Direction::Mixed),
            mix: Some(70),
            target: Some("ram".into()),
            attribute: Some("wb".into()),
            content: Some("zeros".into()),
            offset: Some(16),
        };
        let json = serde_json::to_value(&place).unwrap();
        let fields = json.as_object().unwrap();
        assert_eq!(fields.len(), Key::ALL.len());
        for key in Key::ALL {
            let field = match &fields[key.name()] {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(place.get(key), Some(field), "{key:?}");
            assert_eq!(Place::default().get(key), None);
        }
        assert_eq!(serde_json::from_value::<Place>(json).unwrap(), place);
    }
}
