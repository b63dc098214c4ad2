//! Configurations: the dimensions that tell rows of one candidate apart.

use std::fmt;

use bulkmem::{Intent, Operation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::PageSize;

/// State of memory before it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// Never touched since it was mapped: the kernel clears it at the first touch.
    Fresh,
    /// Touched before: only the measured code clears it.
    Reused,
}

/// The order in which places in memory are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// In no order that a prefetcher guesses.
    Random,
}

/// Alignment of the ranges.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Alignment {
    /// On a cache line.
    #[default]
    Aligned,
    /// 1 to 63 bytes past a line, source and destination differently.
    Unaligned,
}

/// State of the cache before an operation.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum CacheState {
    /// Nothing: the ranges are random places in memory far larger than the caches.
    #[default]
    Cold,
    /// All of them, as far as they fit: the same ranges again and again.
    Warm,
}

/// Direction of input and output.
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

/// A configuration: what tells one row from another of the same candidate. Only what a measurement varies, or what must be known to
/// repeat it, is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
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
    /// State of the memory before it is measured.
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
    /// The target of reads and writes: `ram`, or a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The cache attribute of the target's mapping: `wb`, `wc`, `uc`, `wt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// Content of the memory: `zeros`; absent if it holds mixed bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Bytes past the start of a page at which the memory starts; nothing where it starts on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Alignment of the ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alignment: Option<Alignment>,
    /// State of the cache before an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheState>,
    /// What happens to the bytes next: `reuse` includes reading them back, `stream` the slow-down of a neighbour in the
    /// cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
}

/// One of the fields of a [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "as the fields of `Config`")]
pub enum Dimension {
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
    Alignment,
    Cache,
    Intent,
}

impl Dimension {
    /// All dimensions, in the order in which they are shown.
    pub const ALL: [Dimension; 20] = [
        Dimension::Operation,
        Dimension::Size,
        Dimension::Chunk,
        Dimension::Width,
        Dimension::List,
        Dimension::ReadBack,
        Dimension::Rate,
        Dimension::PageSize,
        Dimension::Threads,
        Dimension::Memory,
        Dimension::Pattern,
        Dimension::Direction,
        Dimension::Mix,
        Dimension::Target,
        Dimension::Attribute,
        Dimension::Content,
        Dimension::Offset,
        Dimension::Alignment,
        Dimension::Cache,
        Dimension::Intent,
    ];

    /// The field's name in files.
    pub fn name(self) -> &'static str {
        match self {
            Dimension::Operation => "operation",
            Dimension::Size => "size",
            Dimension::Chunk => "chunk",
            Dimension::Width => "width",
            Dimension::List => "list",
            Dimension::ReadBack => "read_back",
            Dimension::Rate => "rate",
            Dimension::PageSize => "page_size",
            Dimension::Threads => "threads",
            Dimension::Memory => "memory",
            Dimension::Pattern => "pattern",
            Dimension::Direction => "direction",
            Dimension::Mix => "mix",
            Dimension::Target => "target",
            Dimension::Attribute => "attribute",
            Dimension::Content => "content",
            Dimension::Offset => "offset",
            Dimension::Alignment => "alignment",
            Dimension::Cache => "cache",
            Dimension::Intent => "intent",
        }
    }

    /// True if the values are bytes.
    pub fn is_bytes(self) -> bool {
        matches!(
            self,
            Dimension::Size | Dimension::Chunk | Dimension::Width | Dimension::List | Dimension::Offset
        )
    }
}

impl Config {
    /// Returns the value of a dimension as files have it; `None` if it is not set.
    pub fn get(&self, key: Dimension) -> Option<String> {
        fn text<T: fmt::Display>(value: &Option<T>) -> Option<String> {
            value.as_ref().map(T::to_string)
        }
        match key {
            Dimension::Operation => text(&self.operation),
            Dimension::Size => text(&self.size),
            Dimension::Chunk => text(&self.chunk),
            Dimension::Width => text(&self.width),
            Dimension::List => text(&self.list),
            Dimension::ReadBack => text(&self.read_back),
            Dimension::Rate => text(&self.rate),
            Dimension::PageSize => text(&self.page_size),
            Dimension::Threads => text(&self.threads),
            Dimension::Memory => self.memory.map(|memory| word(&memory)),
            Dimension::Pattern => self.pattern.map(|pattern| word(&pattern)),
            Dimension::Direction => self.direction.map(|direction| word(&direction)),
            Dimension::Mix => text(&self.mix),
            Dimension::Target => text(&self.target),
            Dimension::Attribute => text(&self.attribute),
            Dimension::Content => text(&self.content),
            Dimension::Offset => text(&self.offset),
            Dimension::Alignment => self.alignment.map(|alignment| word(&alignment)),
            Dimension::Cache => self.cache.map(|cache| word(&cache)),
            Dimension::Intent => text(&self.intent),
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

    /// Each field is a dimension, by the same name and with the same text.
    #[test]
    fn keys_are_the_fields() {
        let config = Config {
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
            alignment: Some(Alignment::Unaligned),
            cache: Some(CacheState::Warm),
            intent: Some(Intent::Stream),
        };
        let json = serde_json::to_value(&config).unwrap();
        let fields = json.as_object().unwrap();
        assert_eq!(fields.len(), Dimension::ALL.len());
        for key in Dimension::ALL {
            let field = match &fields[key.name()] {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(config.get(key), Some(field), "{key:?}");
            assert_eq!(Config::default().get(key), None);
        }
        assert_eq!(serde_json::from_value::<Config>(json).unwrap(), config);
    }
}
