//! `bulkmem pool status`.

use std::time::Duration;

use bulkmem_pool::Status;
use clap::Args;

use super::SocketArgs;
use crate::failure::{Exit, Failure, Outcome, show};
use crate::output::{Column, Table, pairs, print_raw, section, size};

/// Show the memory that is ready, and who has memory of the pool
///
/// Root and the daemon's user see all users, others only themselves.
#[derive(Args, Debug)]
#[command(after_long_help = "\
JSON: `kinds` (each with `page`, `unit` in bytes, `node` or null, `count`, `ready`, `restored`: ready units of an earlier daemon, \
which systemd had stored when this one started, `handed_out`, `released`: units freed because \
others needed the memory, `empty`: requests that found no ready unit), `users` (each with `user`, `leases`, `bytes`, `quota`), \
`filling` (null, or `page`, `unit`, `node`, `done`: bytes), `filled_bytes`, `suspended`: whether filling is suspended because \
others need memory, or there is none for a kind of unit, `connections`, `rejected`: requests answered without a unit, and connections closed without a request. \
Counters start with the daemon.")]
pub(super) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print Prometheus's text format, for the textfile collector of node_exporter
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Time to wait for the daemon.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn run(args: &StatusArgs) -> Outcome {
    let status = args.socket.client().status(PATIENCE).map_err(Failure::new)?;
    if args.prometheus {
        print_raw(status.prometheus().as_bytes())?;
        return Ok(Exit::Done);
    }
    show(args.json, &status, |width| text(&status, width))
}

fn text(status: &Status, width: usize) -> String {
    let kinds = Table::of(&status.kinds)
        .column(Column::left("pages"), |it| it.kind.page.to_string())
        .column(Column::right("unit"), |it| size(it.kind.unit))
        .column(Column::left("node"), |it| it.kind.node.map_or_else(|| "any".into(), |node| node.to_string()))
        .column(Column::right("ready"), |it| format!("{}/{}", it.ready, it.count))
        .column(Column::right("restored").optional(0), |it| it.restored.to_string())
        .column(Column::right("handed out"), |it| it.handed_out.to_string())
        .column(Column::right("released").optional(1), |it| it.released.to_string())
        .column(Column::right("empty").optional(2), |it| it.empty.to_string());
    let mut text = section("Ready memory", &kinds.render(width), width);
    if !status.users.is_empty() {
        let users = Table::of(&status.users)
            .column(Column::left("user"), |it| it.user.to_string())
            .column(Column::right("units"), |it| it.leases.to_string())
            .column(Column::right("memory"), |it| size(it.bytes))
            .column(Column::right("quota"), |it| size(it.quota));
        text += &section("Users", &users.render(width), width);
    }
    let filling = match &status.filling {
        Some(it) => format!("{} of {}", size(it.done), size(it.kind.unit)),
        None if status.suspended => "suspended: too little memory".to_owned(),
        None => "nothing".to_owned(),
    };
    let rows = [
        ("filling", filling),
        ("filled", size(status.filled_bytes)),
        ("connections", status.connections.to_string()),
        ("rejected", status.rejected.to_string()),
    ];
    text += &section("Daemon", &pairs(&rows, width), width);
    text.pop();
    text
}
