//! The state of a pool, as JSON and in Prometheus's text format.

use std::fmt::{Display, Write};

use serde::{Deserialize, Serialize};

use crate::kind::Kind;

/// The state of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The kinds of units.
    pub kinds: Vec<KindStatus>,
    /// The users with leases: all for root and the daemon's user, only their own for others.
    pub users: Vec<UserStatus>,
    /// The unit that is being filled, if any.
    pub filling: Option<Filling>,
    /// Bytes filled since the daemon started.
    pub filled_bytes: u64,
    /// True while filling is suspended because others need memory, or there is none for a kind of unit.
    pub suspended: bool,
    /// Open connections.
    pub connections: u64,
    /// Requests answered without a unit since the daemon started, and connections closed without a request.
    pub rejected: u64,
}

/// The units of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindStatus {
    /// The kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// Number of units to keep ready.
    pub count: u32,
    /// Number of units that are ready.
    pub ready: u64,
    /// Ready units of an earlier daemon, which the service manager had stored when this one started.
    pub restored: u64,
    /// Units handed out since the daemon started.
    pub handed_out: u64,
    /// Ready units freed since the daemon started because others needed the memory.
    pub released: u64,
    /// Requests since the daemon started that found no ready unit.
    pub empty: u64,
}

/// The leases of one user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatus {
    /// The user's number.
    pub user: u32,
    /// Number of leases.
    pub leases: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that the user may have.
    pub quota: u64,
}

/// A unit that is being filled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filling {
    /// Its kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// Bytes that are filled.
    pub done: u64,
}

impl Status {
    /// Returns the state in Prometheus's text format, version 0.0.4.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        let kinds = |value: fn(&KindStatus) -> u64| {
            let sample = move |it: &KindStatus| (labels(&it.kind), value(it));
            self.kinds.iter().map(sample).collect::<Vec<_>>()
        };
        let users = |value: fn(&UserStatus) -> u64| {
            let sample = move |it: &UserStatus| (format!("{{user=\"{}\"}}", it.user), value(it));
            self.users.iter().map(sample).collect::<Vec<_>>()
        };
        let one = |value: u64| vec![(String::new(), value)];
        for (name, help, samples) in [
            ("bulkmem_pool_units", "Units to keep ready.", kinds(|it| it.count.into())),
            ("bulkmem_pool_ready_units", "Units that are ready.", kinds(|it| it.ready)),
            (
                "bulkmem_pool_restored_units",
                "Ready units of an earlier daemon, from the service manager's store.",
                kinds(|it| it.restored),
            ),
            ("bulkmem_pool_handed_out_total", "Units handed out.", kinds(|it| it.handed_out)),
            (
                "bulkmem_pool_released_total",
                "Ready units freed because others needed the memory.",
                kinds(|it| it.released),
            ),
            ("bulkmem_pool_empty_total", "Requests that found no ready unit.", kinds(|it| it.empty)),
            ("bulkmem_pool_leases", "Units that a user has.", users(|it| it.leases)),
            ("bulkmem_pool_leased_bytes", "Bytes of the units that a user has.", users(|it| it.bytes)),
            ("bulkmem_pool_quota_bytes", "Bytes that a user may have.", users(|it| it.quota)),
            (
                "bulkmem_pool_filling_bytes",
                "Filled bytes of the unit that is being filled.",
                one(self.filling.as_ref().map_or(0, |it| it.done)),
            ),
            ("bulkmem_pool_filled_bytes_total", "Bytes filled.", one(self.filled_bytes)),
            (
                "bulkmem_pool_suspended",
                "1 while filling is suspended because others need memory, or there is none for a kind of unit.",
                one(self.suspended.into()),
            ),
            ("bulkmem_pool_connections", "Open connections.", one(self.connections)),
            (
                "bulkmem_pool_rejected_total",
                "Requests answered without a unit, and connections closed without a request.",
                one(self.rejected),
            ),
        ] {
            metric(&mut text, name, help, &samples);
        }
        text
    }
}

/// Adds a metric. No name, text or label here needs an escape.
fn metric(text: &mut String, name: &str, help: &str, samples: &[(String, impl Display)]) {
    let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
    _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    for (labels, value) in samples {
        _ = writeln!(text, "{name}{labels} {value}");
    }
}

fn labels(kind: &Kind) -> String {
    let node = kind.node.map_or_else(|| "any".to_owned(), |node| node.to_string());
    format!("{{page=\"{}\",unit=\"{}\",node=\"{node}\"}}", kind.page, kind.unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::PageSize;

    #[test]
    fn prometheus_can_read_every_figure() {
        let kind = |node| Kind::new(PageSize::Huge2M, 1 << 30, node).unwrap();
        let units = |node| {
            let (ready, restored, handed_out, released, empty) = (4, 14, 3, 2, 1);
            KindStatus { kind: kind(node), count: 5, ready, restored, handed_out, released, empty }
        };
        let status = Status {
            kinds: vec![units(None), units(Some(1))],
            users: vec![UserStatus { user: 7, leases: 6, bytes: 8, quota: 9 }],
            filling: Some(Filling { kind: kind(None), done: 10 }),
            filled_bytes: 11,
            suspended: true,
            connections: 12,
            rejected: 13,
        };
        let metrics = testkit::prometheus::parse(&status.prometheus()).unwrap();
        let of_kind = "{page=\"2M\",unit=\"1073741824\",node=\"1\"}";
        for (sample, value) in [
            (format!("bulkmem_pool_units{of_kind}"), 5.0),
            (format!("bulkmem_pool_ready_units{of_kind}"), 4.0),
            (format!("bulkmem_pool_restored_units{of_kind}"), 14.0),
            (format!("bulkmem_pool_handed_out_total{of_kind}"), 3.0),
            (format!("bulkmem_pool_released_total{of_kind}"), 2.0),
            (format!("bulkmem_pool_empty_total{of_kind}"), 1.0),
            ("bulkmem_pool_leases{user=\"7\"}".to_owned(), 6.0),
            ("bulkmem_pool_leased_bytes{user=\"7\"}".to_owned(), 8.0),
            ("bulkmem_pool_quota_bytes{user=\"7\"}".to_owned(), 9.0),
            ("bulkmem_pool_filling_bytes".to_owned(), 10.0),
            ("bulkmem_pool_filled_bytes_total".to_owned(), 11.0),
            ("bulkmem_pool_suspended".to_owned(), 1.0),
            ("bulkmem_pool_connections".to_owned(), 12.0),
            ("bulkmem_pool_rejected_total".to_owned(), 13.0),
        ] {
            assert_eq!(metrics.samples.get(&sample), Some(&value), "{sample}");
        }
        assert!(
            metrics.samples.contains_key("bulkmem_pool_units{page=\"2M\",unit=\"1073741824\",node=\"any\"}")
        );
    }
}
