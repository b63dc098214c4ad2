//! Samplers: a candidate, its configuration, and how one sample of it is taken.

use crate::engine::{Candidate, Config, MeasureError};

/// One sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// In the unit of the metric.
    pub(crate) value: f64,
    /// Other values of the same sample, by name.
    pub(crate) also: Vec<(&'static str, f64)>,
}

/// The name under which a sample reports how many operations it spans, if not one.
pub(crate) const OPERATIONS: &str = "operations";

impl Sample {
    pub(crate) fn operations(&self) -> f64 {
        self.also.iter().find(|(name, _)| *name == OPERATIONS).map_or(1.0, |(_, count)| *count)
    }
}

impl From<f64> for Sample {
    fn from(value: f64) -> Sample {
        Sample { value, also: Vec::new() }
    }
}

/// The note in place of findings if each row has one sample.
pub(crate) const SINGLE: &str = "each figure is a single sample: how much it varies is not known, and nothing is concluded; give --runs 5 or more";

/// Takes one sample.
pub(crate) type Taking<'c> = dyn FnMut() -> Result<Sample, MeasureError> + 'c;
/// Takes one sample that lasts seconds, and calls its argument every second or so with a text to show next to the
/// candidate's name.
pub(crate) type LongTaking<'c> = dyn FnMut(&mut dyn FnMut(&str)) -> Result<Sample, MeasureError> + 'c;

/// A candidate of a group, and how it is sampled.
pub(crate) type Sampler<'c> = SamplerOf<Taking<'c>>;
/// A candidate whose samples last seconds.
pub(crate) type LongSampler<'c> = SamplerOf<LongTaking<'c>>;

/// A candidate of a group, its configuration, and how it is sampled.
pub(crate) struct SamplerOf<S: ?Sized> {
    pub(crate) candidate: Candidate,
    pub(crate) config: Config,
    /// Takes one sample. [`MeasureError::Interrupted`] ends the group; the samples before it are kept.
    pub(crate) sample: Box<S>,
    /// True if the work happens in this thread, so that its hardware counters see it.
    pub(crate) counted: bool,
}

/// Takes samples, short or long.
pub(crate) trait Take {
    fn take(&mut self, say: &mut dyn FnMut(&str)) -> Result<Sample, MeasureError>;
}

impl Take for Taking<'_> {
    fn take(&mut self, _say: &mut dyn FnMut(&str)) -> Result<Sample, MeasureError> {
        self()
    }
}

impl Take for LongTaking<'_> {
    fn take(&mut self, say: &mut dyn FnMut(&str)) -> Result<Sample, MeasureError> {
        self(say)
    }
}
