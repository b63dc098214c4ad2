//! `bulkmem pool serve`: the daemon.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use bulkmem_pool::{Config, Daemon, Supply, become_user};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use super::user::{self, User};
use super::{kind, logger};
use crate::failure::{Exit, Failure, Outcome};
use crate::parsers;

/// Keep memory ready and hand it out, until SIGTERM or Ctrl-C
///
/// Each unit is a memory file (memfd) whose pages the kernel has already allocated and cleared. It is handed out once, and
/// its memory returns to the kernel when the last process that has it is done. See docs/pool.md.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Huge pages must exist: /proc/sys/vm/nr_hugepages sets the number of 2 MiB pages. Units of base pages count as shared memory of \
the daemon's control group for life, not of the tenant's: limit tenants by --quota.

Under systemd, the daemon uses the sockets and the store of descriptors of its units, so that a restart keeps ready memory. \
`make install` installs bulkmem-pool.service and bulkmem-pool.socket.

Example, four machines of 2 GiB:
  bulkmem pool serve --keep 2M,unit=2G,count=4")]
pub(super) struct ServeArgs {
    /// Kind of memory to keep ready; repeat it for further kinds. PAGE is 4K, 2M or 1G; count is 1 by default; with a node,
    /// the pages come from that NUMA node
    #[arg(long, required = true, value_name = "PAGE,unit=SIZE[,count=N][,node=N]", value_parser = kind::supply)]
    keep: Vec<Supply>,
    /// Bytes that each user may have [default: as many as all units of --keep]
    #[arg(long, value_name = "SIZE", value_parser = parsers::size)]
    quota: Option<u64>,
    /// Bytes that one user may have, in place of --quota; repeat it for further users
    #[arg(long, value_name = "USER=SIZE", value_parser = user::quota)]
    user_quota: Vec<(u32, u64)>,
    /// Bytes per second to fill at most, so that others have the memory's bandwidth; `max` for no limit
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = rate)]
    rate: Rate,
    /// Percentage of the memory, and of the huge pages of each size, to leave to others; of huge pages, at least one is left
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
    keep_free: u8,
    /// Percentage of time for which tasks may wait for memory (/proc/pressure/memory) before ready units of base pages are
    /// freed
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    pressure: u8,
    /// Folder for sockets and records [default: RUNTIME_DIRECTORY, which systemd sets, else /run/bulkmem-pool]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// User to create a socket for that only this user can open; repeat it for further users
    #[arg(long, value_name = "USER", value_parser = user::user)]
    tenant: Vec<User>,
    /// Octal mode of the socket for all users
    #[arg(long, value_name = "MODE", default_value = "660", value_parser = mode)]
    mode: u32,
    /// User to become after the start, with no capability other than CAP_CHOWN. Choose one that runs nothing else
    #[arg(long, value_name = "USER", value_parser = user::user)]
    user: Option<User>,
}

/// A limit of bytes per second, or none.
#[derive(Clone, Copy, Debug)]
struct Rate(Option<u64>);

fn rate(text: &str) -> Result<Rate, String> {
    if text == "max" { Ok(Rate(None)) } else { parsers::size(text).map(|bytes| Rate(Some(bytes))) }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("`{text}` is not a mode: write 600, 660 or 666"))
}

pub(super) fn run(args: &ServeArgs) -> Outcome {
    logger::install();
    let mut config = Config::new(args.keep.clone());
    let systemd = || std::env::var_os("RUNTIME_DIRECTORY").map(PathBuf::from);
    config.runtime_dir = args.runtime_dir.clone().or_else(systemd).unwrap_or(config.runtime_dir);
    config.quota = args.quota;
    config.user_quotas = args.user_quota.iter().copied().collect();
    config.rate = args.rate.0;
    config.keep_free = args.keep_free;
    config.pressure = args.pressure;
    config.tenants = args.tenant.iter().map(|tenant| tenant.user).collect();
    config.socket_mode = args.mode;
    let (stop, signal) = UnixStream::pair().map_err(signals)?;
    for number in [SIGTERM, SIGINT] {
        pipe::register(number, signal.try_clone().map_err(signals)?).map_err(signals)?;
    }
    if let Some(user) = args.user {
        let folder = &config.runtime_dir;
        let prepared =
            fs::create_dir_all(folder).and_then(|()| chown(folder, Some(user.user), Some(user.group)));
        prepared.and_then(|()| become_user(user.user, user.group)).map_err(|error| {
            Failure::new(format!("cannot become user {}: {error}", user.user))
                .help("run as root, or without --user")
        })?;
    }
    let mut daemon = Daemon::start(config).map_err(Failure::new)?;
    daemon.run(stop.as_fd()).map_err(Failure::new)?;
    Ok(Exit::Done)
}

fn signals(error: std::io::Error) -> Failure {
    Failure::new(format!("cannot watch for signals: {error}"))
}
