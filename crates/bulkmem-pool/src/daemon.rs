//! The daemon: one loop that handles requests, and one thread that fills units.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::UCred;

use crate::config::Config;
use crate::error::DaemonError;
use crate::fill::{FillError, Filler};
use crate::harden;
use crate::hooks::{Step, Weakness};
use crate::kind::{Kind, PageSize};
use crate::ledger::{Ledger, process_start};
use crate::memory::Memory;
use crate::protocol::{Code, Request, Response, UnitId};
use crate::records::{Lease, Records};
use crate::sockets::{self, Connection, RuntimeDir};
use crate::status::{Filling, KindStatus, Status, UserStatus};
use crate::supervisor::{Inherited, Supervisor};
use crate::unit::{SEALS, Unit};

/// Time between two looks at what others need.
const TICK: Duration = Duration::from_millis(500);
/// Time for which filling is suspended when others need memory.
const SUSPENSION: Duration = Duration::from_secs(5);
/// Connections that are accepted at a time.
const MOST_ACCEPTED: usize = 64;
/// Descriptors that are neither units nor connections.
const OTHER_DESCRIPTORS: u64 = 32;

/// One kind of units, and those that are ready.
#[derive(Debug)]
struct Stock {
    kind: Kind,
    count: u32,
    ready: VecDeque<Unit>,
    restored: u64,
    handed_out: u64,
    released: u64,
    empty: u64,
    /// No unit is filled until then, because the last one could not be.
    suspended: Option<Instant>,
}

/// A pool of ready memory, and its tenants.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    stocks: Vec<Stock>,
    records: Records,
    ledger: Ledger,
    memory: Memory,
    filler: Filler,
    /// The stock of the unit that is being filled.
    filling: Option<usize>,
    supervisor: Supervisor,
    listeners: Vec<OwnedFd>,
    connections: Vec<Connection>,
    max_connections: usize,
    rejected: u64,
    can_chown: bool,
    /// No unit is filled until then, because others need memory.
    suspended: Option<Instant>,
    /// The accumulated time for which tasks waited for memory, and when it was read.
    stalled: Option<(u64, Instant)>,
    #[cfg(feature = "test-hooks")]
    recycler: crate::weak::Recycler,
    _runtime: RuntimeDir,
}

impl Daemon {
    /// Opens the sockets, or takes those of the service manager, takes back the ready units that it has kept, and reads the
    /// leases. Drops everything that the daemon does not need. Call it in a process with one thread.
    ///
    /// # Errors
    /// If there is nothing to keep ready, another daemon uses the folder, or the kernel refuses something.
    pub fn start(config: Config) -> Result<Daemon, DaemonError> {
        if config.supplies.is_empty() {
            return Err(DaemonError::NoSupply);
        }
        let mut kinds = HashSet::new();
        if let Some(twice) = config.supplies.iter().find(|supply| !kinds.insert(supply.kind)) {
            return Err(DaemonError::Twice { kind: twice.kind });
        }
        let system = |doing| move |source: io::Error| DaemonError::System { doing, source };
        harden::keep_only_chown().map_err(system("drop capabilities"))?;
        if !config.hooks.is(Weakness::Dumpable) {
            harden::hide().map_err(system("hide this process from others"))?;
        }
        let units = config.supplies.iter().map(|supply| u64::from(supply.count)).sum();
        let limit = harden::raise_descriptors();
        let connections = limit.saturating_sub(OTHER_DESCRIPTORS).saturating_sub(units);
        if connections == 0 {
            return Err(DaemonError::Descriptors { units, limit });
        }
        let runtime = RuntimeDir::open(&config.runtime_dir)?;
        let unusable = |source| DaemonError::Runtime { path: config.runtime_dir.clone(), source };
        let records = Records::open(&config.runtime_dir).map_err(unusable)?;
        // Before leases that have ended are removed: a unit with a lease is never ready again.
        let ready = records.ready().map_err(unusable)?;
        let mut inherited = Inherited::take().map_err(system("take the service manager's descriptors"))?;
        let supervisor = Supervisor::new();
        let ledger =
            Ledger::open(&records, inherited.watches.take()).map_err(system("watch for the end of units"))?;
        supervisor.store_watches(&ledger.watches);
        let stock = |supply: &crate::kind::Supply| Stock {
            kind: supply.kind,
            count: supply.count,
            ready: VecDeque::new(),
            restored: 0,
            handed_out: 0,
            released: 0,
            empty: 0,
            suspended: None,
        };
        let mut stocks: Vec<Stock> = config.supplies.iter().map(stock).collect();
        take_back(&mut stocks, ready, inherited.units, &records, &supervisor).map_err(unusable)?;
        let listeners = match inherited.listeners {
            none if none.is_empty() => {
                sockets::create(&config.runtime_dir, config.socket_mode, &config.tenants)?
            }
            inherited => inherited,
        };
        let memory = Memory { root: config.root.clone(), keep_free: config.keep_free };
        let filler = Filler::start(memory.clone(), config.rate, config.hooks.clone())
            .map_err(system("start the thread that fills memory"))?;
        let can_chown = harden::can_chown();
        if config.filter_system_calls {
            harden::filter_system_calls()?;
        }
        Ok(Daemon {
            stocks,
            records,
            ledger,
            memory,
            filler,
            filling: None,
            supervisor,
            listeners,
            connections: Vec::new(),
            max_connections: config.max_connections.min(usize::try_from(connections).unwrap_or(usize::MAX)),
            rejected: 0,
            can_chown,
            suspended: None,
            stalled: None,
            #[cfg(feature = "test-hooks")]
            recycler: crate::weak::Recycler::default(),
            _runtime: runtime,
            config,
        })
    }

    /// Handles requests until `stop` is readable.
    ///
    /// # Errors
    /// If the kernel refuses to wait for requests.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> Result<(), DaemonError> {
        self.supervisor.ready();
        let mut next_tick = Instant::now();
        // Without a free descriptor, connections wait until the next tick.
        let mut listening = true;
        loop {
            let now = Instant::now();
            if now >= next_tick {
                self.tick(now);
                next_tick = now + TICK;
                listening = true;
            }
            self.order(now);
            let ready = self.wait(stop, next_tick, listening)?;
            let connected = self.connections.len();
            let [stopped, filled, watched, ..] = ready[..] else { unreachable!("three fixed descriptors") };
            if stopped {
                self.supervisor.stopping();
                self.end();
                return Ok(());
            }
            if watched && !self.config.hooks.is(Weakness::ForgetsEnds) {
                self.ledger.read_watches(&self.records);
            }
            if filled {
                self.take_filled(Instant::now());
            }
            self.answer(&ready[3..3 + connected]);
            if ready[3 + connected..].iter().any(|ready| *ready) {
                listening = self.accept();
            }
        }
    }

    /// Waits for the next event. Returns for stop, filler, watches, each connection and each listener whether it is ready.
    fn wait(&self, stop: BorrowedFd<'_>, until: Instant, listening: bool) -> Result<Vec<bool>, DaemonError> {
        let fixed = [stop, self.filler.wake.as_fd(), self.ledger.watches.as_fd()];
        let connections = self.connections.iter().map(AsFd::as_fd);
        let listeners = self.listeners.iter().filter(|_| listening).map(AsFd::as_fd);
        let all = fixed.into_iter().chain(connections).chain(listeners);
        let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let first = self.connections.iter().map(|it| it.deadline).min();
        let until = first.map_or(until, |deadline| deadline.min(until));
        let left = until.saturating_duration_since(Instant::now());
        let time = Timespec::try_from(left).map_err(|_| wait_error(rustix::io::Errno::INVAL))?;
        match poll(&mut fds, Some(&time)) {
            Ok(_) => Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect()),
            Err(rustix::io::Errno::INTR) => Ok(vec![false; fds.len()]),
            Err(error) => Err(wait_error(error)),
        }
    }

    /// Accepts waiting connections within the limits. Returns false if there is no free descriptor.
    fn accept(&mut self) -> bool {
        let unlimited = self.config.hooks.is(Weakness::NoConnectionLimit);
        let mut free = true;
        for listener in &self.listeners {
            // So that a tenant that connects without end leaves time for requests.
            for _ in 0..MOST_ACCEPTED {
                match Connection::accept(listener, self.config.silence) {
                    Ok(Some(new)) => {
                        let own = self.connections.iter().filter(|it| it.user() == new.user()).count();
                        let full = self.connections.len() >= self.max_connections;
                        if !unlimited && (own >= self.config.user_connections || full) {
                            self.rejected += 1;
                        } else {
                            self.connections.push(new);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        log::warn!("cannot accept a connection: {error}");
                        free = false;
                        break;
                    }
                }
            }
        }
        free
    }

    /// Answers the connections that have sent a request, and closes those that were silent for too long.
    fn answer(&mut self, ready: &[bool]) {
        let now = Instant::now();
        let unlimited = self.config.hooks.is(Weakness::NoConnectionLimit);
        let connections = std::mem::take(&mut self.connections);
        for (connection, ready) in connections.into_iter().zip(ready) {
            if *ready {
                self.handle(&connection);
            } else if now < connection.deadline || unlimited {
                self.connections.push(connection);
            } else {
                self.rejected += 1;
            }
        }
    }

    fn handle(&mut self, connection: &Connection) {
        let Ok(Some(bytes)) = connection.request() else {
            self.rejected += 1;
            return;
        };
        let code = match Request::decode(&bytes) {
            Ok(Request::Lease(kind)) => match self.lease(&connection.peer, &kind) {
                Ok(unit) => return self.hand_out(connection, unit),
                Err(code) => code,
            },
            Ok(Request::Status) => match self.status_file(connection.user()) {
                Ok((file, bytes)) => {
                    let response = Response { bytes, ..Response::without_file(Code::Ok) };
                    // A client that has gone needs no answer.
                    _ = connection.respond(&response, Some(file.as_fd()));
                    return;
                }
                Err(_) => Code::Busy,
            },
            #[cfg(feature = "test-hooks")]
            Ok(Request::Return(id)) => match self.recycler.take_back(id, &self.config.hooks) {
                Some(unit) => {
                    let stock = self.stocks.iter_mut().find(|it| it.kind == unit.kind);
                    stock.expect("it was handed out").ready.push_front(unit);
                    Code::Ok
                }
                None => Code::Malformed,
            },
            Err(_) => Code::Malformed,
        };
        self.rejected += u64::from(code != Code::Ok);
        _ = connection.respond(&Response::without_file(code), None);
    }

    /// Leases a unit to a tenant: afterwards, it can only be sent or closed. If anything fails, it is closed.
    fn lease(&mut self, peer: &UCred, wanted: &Kind) -> Result<Unit, Code> {
        let user = peer.uid.as_raw();
        if !self.can_chown && peer.uid != rustix::process::geteuid() {
            return Err(Code::Refused);
        }
        let usage = self.ledger.usage(user);
        let limited = !self.config.hooks.is(Weakness::NoQuota);
        let fitting = |stock: &&mut Stock| stock.kind.satisfies(wanted);
        // Of several stocks that fit, the fullest one.
        let stock = self.stocks.iter_mut().filter(fitting).max_by_key(|stock| stock.ready.len());
        let stock = stock.ok_or(Code::NoSuchKind)?;
        if limited && usage.bytes.saturating_add(stock.kind.unit) > self.config.quota_of(user) {
            return Err(Code::OverQuota);
        }
        let hooks = &self.config.hooks;
        hooks.reach(Step::Requested);
        let Some(unit) = stock.ready.pop_front() else {
            stock.empty += 1;
            return Err(Code::Empty);
        };
        hooks.reach(Step::Chosen);
        self.supervisor.remove(unit.id);
        hooks.reach(Step::Unstored);
        let prepared = self.prepare(&unit, peer);
        if let Err((doing, error)) = prepared {
            log::warn!("a unit was not handed out: cannot {doing}: {error}");
            if let Err(error) = self.records.remove_ready(unit.id) {
                log::warn!("cannot remove the record of a unit: {error}");
            }
            return Err(Code::Busy);
        }
        Ok(unit)
    }

    /// Watches, records, seals and gives away a unit. Returns what failed.
    fn prepare(&mut self, unit: &Unit, peer: &UCred) -> Result<(), (&'static str, io::Error)> {
        let hooks = &self.config.hooks;
        let failed = |doing| move |error| (doing, error);
        if hooks.is(Weakness::Recycles) {
            // The file may belong to its last tenant.
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            unit.give_to(user, group).map_err(failed("take it back"))?;
        }
        let watch =
            self.ledger.watch(&unit.file).map_err(failed("watch it (fs.inotify.max_user_watches)"))?;
        hooks.reach(Step::Watched);
        let (user, process) = (peer.uid.as_raw(), peer.pid.as_raw_nonzero().get());
        let started = process_start(process).unwrap_or_default();
        let lease = Lease { user, process, started, kind: unit.kind, watch: Some(watch) };
        self.ledger.add(&self.records, unit.id, lease).map_err(failed("record the lease"))?;
        hooks.reach(Step::Recorded);
        if !hooks.is(Weakness::Unsealed) {
            let sealed = unit.seal();
            // A weakened pool hands out a unit that is sealed already.
            if !hooks.is(Weakness::Recycles) {
                sealed.map_err(failed("seal it"))?;
            }
        }
        unit.give_to(peer.uid, peer.gid).map_err(failed("give it to the tenant"))?;
        hooks.reach(Step::Sealed);
        Ok(())
    }

    /// Sends a leased unit and closes it, even if it could not be sent. The kernel then reports its end.
    fn hand_out(&mut self, connection: &Connection, unit: Unit) {
        let response = Response { code: Code::Ok, id: unit.id, bytes: unit.kind.unit };
        #[cfg(feature = "test-hooks")]
        self.recycler.keep(&unit, &self.config.hooks).expect("a test has enough memory");
        match connection.respond(&response, Some(unit.file.as_fd())) {
            Ok(()) => {
                let stock = self.stocks.iter_mut().filter(|stock| stock.kind == unit.kind);
                stock.for_each(|stock| stock.handed_out += 1);
            }
            Err(error) => {
                self.rejected += 1;
                log::info!("user {} was gone when its unit was sent: {error}", connection.user());
            }
        }
        self.config.hooks.reach(Step::Sent);
        drop(unit);
        self.config.hooks.reach(Step::Closed);
    }

    /// Orders the next unit if none is being filled: of the stock that has the smallest share of its units.
    fn order(&mut self, now: Instant) {
        if self.filling.is_some() || self.suspended.is_some_and(|until| now < until) {
            return;
        }
        self.suspended = None;
        let wanted =
            |it: &Stock| it.ready.len() < it.count as usize && it.suspended.is_none_or(|until| now >= until);
        let missing = self.stocks.iter().enumerate().filter(|(_, it)| wanted(it));
        let share = |stock: &Stock| stock.ready.len() as u64 * 1_000_000 / u64::from(stock.count);
        if let Some((index, stock)) = missing.min_by_key(|(_, stock)| share(stock)) {
            self.filler.order(index, stock.kind);
            self.filling = Some(index);
        }
    }

    /// Takes the unit that was filled, or suspends filling units of this kind.
    fn take_filled(&mut self, now: Instant) {
        let Some((index, result)) = self.filler.result() else { return };
        self.filling = None;
        let added = result.and_then(|unit| {
            self.records.add_ready(unit.id, &unit.kind)?;
            self.config.hooks.reach(Step::ReadyRecorded);
            self.supervisor.store(unit.id, &unit.file);
            self.config.hooks.reach(Step::Stored);
            Ok(unit)
        });
        let stock = &mut self.stocks[index];
        match added {
            Ok(unit) => {
                stock.ready.push_back(unit);
                stock.suspended = None;
            }
            Err(error) => {
                // Once, until a unit can be filled again.
                let known = stock.suspended.replace(now + SUSPENSION).is_some();
                if !known && !matches!(error, FillError::NoRoom | FillError::Cancelled) {
                    let causes = std::iter::successors(std::error::Error::source(&error), |it| it.source());
                    let causes: String = causes.map(|cause| format!(": {cause}")).collect();
                    log::warn!("cannot fill {}: {error}{causes}", stock.kind);
                }
            }
        }
    }

    /// Frees ready units if others need memory.
    fn tick(&mut self, now: Instant) {
        self.ledger.check_processes(&self.records);
        let stalls = self.memory.stalled().zip(Some(now));
        if let (Some((total, at)), Some((before, since))) = (stalls, self.stalled) {
            let share = total.saturating_sub(before) as f64 / (at - since).as_micros().max(1) as f64;
            if share * 100.0 > f64::from(self.config.pressure) {
                self.release(now, "tasks wait for memory", |page| page == PageSize::Base);
            }
        }
        self.stalled = stalls;
        for page in PageSize::ALL {
            let of_page = |stock: &Stock| stock.kind.page == page && !stock.ready.is_empty();
            let nodes: Vec<_> = self.stocks.iter().filter(|it| of_page(it)).map(|it| it.kind.node).collect();
            if nodes.iter().any(|node| self.memory.room(page, *node).is_ok_and(|room| room < 0)) {
                self.release(now, "others have less than their share of memory", |it| it == page);
            }
        }
    }

    /// Frees one ready unit of the pages: of the stock with the most bytes. Suspends filling.
    fn release(&mut self, now: Instant, why: &str, pages: impl Fn(PageSize) -> bool) {
        self.filler.cancel();
        self.suspended = Some(now + SUSPENSION);
        let bytes = |stock: &&mut Stock| stock.ready.len() as u64 * stock.kind.unit;
        let stocks = self.stocks.iter_mut().filter(|it| pages(it.kind.page) && !it.ready.is_empty());
        let Some(stock) = stocks.max_by_key(bytes) else { return };
        let Some(unit) = stock.ready.pop_back() else { return };
        stock.released += 1;
        log::info!("freed {}: {why}", unit.kind);
        forget(&unit, &self.records, &self.supervisor);
    }

    fn status(&self, user: u32) -> Status {
        let own = rustix::process::geteuid().as_raw();
        let all = user == 0 || user == own;
        let of_user = |(user, usage): (u32, crate::ledger::Usage)| UserStatus {
            user,
            leases: usage.leases,
            bytes: usage.bytes,
            quota: self.config.quota_of(user),
        };
        let (done, filled_bytes) = self.filler.progress();
        Status {
            kinds: self.stocks.iter().map(Stock::status).collect(),
            users: self.ledger.users().filter(|(it, _)| all || *it == user).map(of_user).collect(),
            filling: self.filling.map(|index| Filling { kind: self.stocks[index].kind, done }),
            filled_bytes,
            suspended: self.suspended.is_some() || self.stocks.iter().any(|it| it.suspended.is_some()),
            connections: self.connections.len() as u64,
            rejected: self.rejected,
        }
    }

    /// Returns a sealed memory file with the state as JSON, and its length.
    fn status_file(&self, user: u32) -> io::Result<(File, u64)> {
        let text = serde_json::to_vec(&self.status(user))?;
        let file = memfd_create("bulkmem-pool-status", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(file);
        file.write_all(&text)?;
        io::Seek::rewind(&mut file)?;
        fcntl_add_seals(&file, SEALS | SealFlags::WRITE)?;
        Ok((file, text.len() as u64))
    }

    /// Leaves ready units to the service manager. Without one, they end with this process, and so do their records.
    fn end(&mut self) {
        self.filler.cancel();
        if !self.supervisor.is_present() {
            let units = self.stocks.iter().flat_map(|stock| &stock.ready);
            units.for_each(|unit| forget(unit, &self.records, &self.supervisor));
        }
    }
}

impl Stock {
    fn status(&self) -> KindStatus {
        KindStatus {
            kind: self.kind,
            count: self.count,
            ready: self.ready.len() as u64,
            restored: self.restored,
            handed_out: self.handed_out,
            released: self.released,
            empty: self.empty,
        }
    }
}

fn wait_error(error: rustix::io::Errno) -> DaemonError {
    DaemonError::System { doing: "wait for requests", source: error.into() }
}

/// Removes a ready unit from the store and from the records.
fn forget(unit: &Unit, records: &Records, supervisor: &Supervisor) {
    supervisor.remove(unit.id);
    if let Err(error) = records.remove_ready(unit.id) {
        log::warn!("cannot remove the record of a unit: {error}");
    }
}

/// Takes the stored units of an earlier daemon that no tenant has seen and that fit a stock. Closes all others.
fn take_back(
    stocks: &mut [Stock],
    ready: Vec<(UnitId, Kind)>,
    stored: Vec<(UnitId, OwnedFd)>,
    records: &Records,
    supervisor: &Supervisor,
) -> io::Result<()> {
    let mut ready: HashMap<UnitId, Kind> = ready.into_iter().collect();
    for (id, file) in stored {
        let unit = ready.remove(&id).and_then(|kind| Unit::adopt(id, kind, file));
        let stock = unit.as_ref().and_then(|unit| {
            stocks.iter_mut().find(|it| it.kind == unit.kind && it.ready.len() < it.count as usize)
        });
        match (unit, stock) {
            (Some(unit), Some(stock)) => {
                stock.ready.push_back(unit);
                stock.restored += 1;
            }
            (Some(unit), None) => forget(&unit, records, supervisor),
            (None, _) => {
                supervisor.remove(id);
                records.remove_ready(id)?;
            }
        }
    }
    // Records whose descriptor is gone.
    ready.into_keys().try_for_each(|id| records.remove_ready(id))
}
