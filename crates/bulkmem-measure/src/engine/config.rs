//! Configurations: the dimensions that tell rows of one candidate apart.

use std::collections::{BTreeMap, BTreeSet};

use bulkmem::{Intent, Operation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use strum::{IntoStaticStr, VariantArray};

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Alignment {
    /// On a cache line.
    #[default]
    Aligned,
    /// 1 to 63 bytes past a line, source and destination differently.
    Unaligned,
    /// The destination 8 bytes after the source, both modulo 4096, which makes REP MOVSB slow on some processors.
    #[serde(rename = "page-aliased")]
    PageAliased,
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
    /// The pages of the destination are not mapped yet: the kernel clears each through the cache at the first touch. For operations
    /// that persist, they are pages of a file in memory, which hold bytes already.
    Fresh,
}

/// The side of a copy that is measured alone: the other side is the same page in each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CopySide {
    /// What is read.
    Source,
    /// What is written.
    Destination,
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
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The operation.
    pub operation: Option<Operation>,
    /// Bytes of the memory worked on.
    pub size: Option<u64>,
    /// Bytes a call, where the memory is worked on in pieces.
    pub chunk: Option<u64>,
    /// Bytes one store writes.
    pub width: Option<u64>,
    /// Bytes of the pointer list that is walked.
    pub list: Option<u64>,
    /// The share of the result that is read back, percent.
    pub read_back: Option<f64>,
    /// The rate that background work is held to, GB/s; nothing where it has no limit.
    pub rate: Option<f64>,
    /// The pages behind the memory.
    pub page_size: Option<PageSize>,
    /// Threads that share the work.
    pub threads: Option<usize>,
    /// State of the memory before it is measured.
    pub memory: Option<Memory>,
    /// The order of places.
    pub pattern: Option<Pattern>,
    /// Reading or writing.
    pub direction: Option<Direction>,
    /// The share of reads among reads and writes, percent.
    pub mix: Option<u8>,
    /// Writes that are committed together.
    pub group: Option<u64>,
    /// The target of reads and writes: `ram`, or a path.
    pub target: Option<String>,
    /// The cache attribute of the target's mapping: `wb`, `wc`, `uc`, `wt`.
    pub attribute: Option<String>,
    /// True if persisted bytes of the target survive a power failure; absent otherwise.
    pub durable: Option<bool>,
    /// Content of the memory: `zeros`; absent if it holds mixed bytes.
    pub content: Option<String>,
    /// Bytes past the start of a page at which the memory starts; nothing where it starts on one.
    pub offset: Option<u64>,
    /// Alignment of the ranges.
    pub alignment: Option<Alignment>,
    /// State of the cache before an operation.
    pub cache: Option<CacheState>,
    /// The same for the source of a copy; `cache` is then that of the destination.
    pub source: Option<CacheState>,
    /// Use of the bytes afterwards: `reuse` includes reading them back, `stream` the slow-down of a neighbour in the
    /// cache.
    pub intent: Option<Intent>,
    /// The side of a copy that is measured alone; nothing where both are measured together.
    pub side: Option<CopySide>,
    /// The NUMA node whose processors do the work.
    pub processor_node: Option<usize>,
    /// The NUMA node of the memory; of a copy, of the destination.
    pub memory_node: Option<usize>,
    /// The NUMA node of the source of a copy.
    pub source_node: Option<usize>,
}

/// One of the fields of a [`Config`], in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
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
    Group,
    Target,
    Attribute,
    Durable,
    Content,
    Offset,
    Alignment,
    Cache,
    Source,
    Intent,
    Side,
    ProcessorNode,
    MemoryNode,
    SourceNode,
}

impl Dimension {
    /// The field's name in files.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// True if the values are bytes.
    pub fn is_bytes(self) -> bool {
        use Dimension::{Chunk, List, Offset, Size, Width};
        matches!(self, Size | Chunk | Width | List | Offset)
    }
}

impl Config {
    /// An operation on memory of so many bytes in pages of a size.
    pub(crate) fn of(operation: Operation, size: u64, pages: PageSize) -> Config {
        let (operation, size, page_size) = (Some(operation), Some(size), Some(pages));
        Config { operation, size, page_size, ..Config::default() }
    }

    /// Returns the value of a dimension as files have it; `None` if it is not set.
    pub fn get(&self, key: Dimension) -> Option<String> {
        self.values().remove(&key)
    }

    /// Returns the cache states in words: `fresh, cold source`.
    pub fn states(&self) -> String {
        let source = self.get(Dimension::Source).map(|state| format!("{state} source"));
        self.get(Dimension::Cache).into_iter().chain(source).collect::<Vec<_>>().join(", ")
    }

    /// The dimensions that are set, with their values as files have them.
    pub fn values(&self) -> BTreeMap<Dimension, String> {
        let fields = serde_json::to_value(self).and_then(serde_json::from_value);
        let fields: BTreeMap<Dimension, Value> = fields.expect("the fields are the dimensions");
        let text = |value: Value| match value {
            Value::String(text) => text,
            value => value.as_f64().map_or_else(|| value.to_string(), |number| number.to_string()),
        };
        fields.into_iter().map(|(key, value)| (key, text(value))).collect()
    }
}

/// Returns the dimensions that are set in any of the configurations.
pub fn dimensions<'c>(configs: impl IntoIterator<Item = &'c Config>) -> BTreeSet<Dimension> {
    configs.into_iter().flat_map(|config| config.values().into_keys()).collect()
}

/// Returns the dimensions in which the configurations differ.
pub fn varying<'c>(configs: impl IntoIterator<Item = &'c Config>) -> Vec<Dimension> {
    let all: Vec<_> = configs.into_iter().map(Config::values).collect();
    let varies = |key: &Dimension| all.iter().any(|values| values.get(key) != all[0].get(key));
    Dimension::VARIANTS.iter().copied().filter(varies).collect()
}

/// Returns the items, each once, in the order in which they come first.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for item in items {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
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
            group: Some(8),
            target: Some("ram".into()),
            attribute: Some("wb".into()),
            durable: Some(true),
            content: Some("zeros".into()),
            offset: Some(16),
            alignment: Some(Alignment::Unaligned),
            cache: Some(CacheState::Warm),
            source: Some(CacheState::Cold),
            intent: Some(Intent::Stream),
            side: Some(CopySide::Source),
            processor_node: Some(6),
            memory_node: Some(7),
            source_node: Some(9),
        };
        let json = serde_json::to_value(&config).unwrap();
        let fields = json.as_object().unwrap();
        assert_eq!(fields.len(), Dimension::VARIANTS.len());
        for &key in Dimension::VARIANTS {
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
