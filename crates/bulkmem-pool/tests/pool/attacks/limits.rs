//! Attacks on other tenants' service: everything taken, nothing said, messages repeated and forged.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bulkmem_pool::protocol::{REQUEST_BYTES, Request, UnitId};
use bulkmem_pool::{Client, ClientError, Weakness};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use testkit::harness::Suite;

use super::{BOBS, bytes_of};
use crate::pool::{ALICE, BOB, CAROL, LONG, POOL_USER, Pool, UNIT, full_of, kind, lease, read_file};
use crate::process::{Child, wait_until};

/// Takes or blocks what the daemon has.
type Flood = fn(&Client);

pub(super) fn add(suite: &mut Suite) {
    let attacks: [(&str, Weakness, Flood); 3] = [
        ("tenant_that_never_exits", Weakness::NoQuota, take_all),
        ("a_thousand_silent_connections", Weakness::NoConnectionLimit, stay_silent),
        ("descriptor_exhaustion", Weakness::NoConnectionLimit, exhaust_descriptors),
    ];
    for (name, weakness, attack) in attacks {
        suite.test(&format!("attack::{name}"), move || {
            // Bob can win the race for a unit that was just filled; an attack that succeeds in one of five tries is one.
            assert!(
                (0..5).any(|_| !bob_is_served(Some(weakness), attack)),
                "Bob gets a unit even from a weakened pool: nothing is proven"
            );
            assert!(bob_is_served(None, attack));
            Ok(())
        });
    }
    suite.test("attack::tenant_that_dies_at_each_step", || {
        assert!(
            !alice_recovers(Some(Weakness::ForgetsEnds)),
            "a weakened pool notices too: nothing is proven"
        );
        assert!(alice_recovers(None));
        Ok(())
    });
    for (name, forged) in [("attack::replayed_return", false), ("attack::forged_return", true)] {
        suite.test(name, move || {
            let weak = returned_twice(&Pool::weak(2, &[Weakness::Recycles]), forged);
            assert!(weak > 0, "Carol reads nothing even from a weakened pool: nothing is proven");
            assert_eq!(returned_twice(&Pool::start(2, |_| ()), forged), 0);
            println!("{name}: weakened pool {weak} bytes; real pool: 0 bytes");
            Ok(())
        });
    }
    suite.test("attack::random_messages", || {
        random_messages();
        Ok(())
    });
}

/// Units of the pool in attacks on the service.
const UNITS: u32 = 4;

/// Alice attacks; then Bob requests a unit. Returns whether he gets one.
fn bob_is_served(weakness: Option<Weakness>, attack: Flood) -> bool {
    let limit = Rlimit { current: Some(256), maximum: Some(256) };
    let pool = Pool::start_as(
        POOL_USER,
        UNITS,
        |config| {
            config.hooks.weak = weakness.into_iter().collect();
            // Half of the pool for each tenant, and few units after the first ones.
            config.quota = Some(u64::from(UNITS) / 2 * UNIT);
            config.rate = Some(UNIT * 16);
        },
        || setrlimit(Resource::Nofile, limit).expect("a lower limit"),
    );
    let mut alice = Child::of_user(ALICE, |channel| {
        attack(&pool.client);
        channel.send(true);
        channel.receive::<bool>();
    });
    alice.channel.receive::<bool>();
    let mut bob = Child::of_user(BOB, |channel| {
        // The queue of the socket can be full for a moment; an answer is final.
        let answer = (0..20).find_map(|_| match pool.client.lease(&kind(), Duration::from_millis(250)) {
            Ok(_) => Some(true),
            Err(ClientError::Rejected(_)) => Some(false),
            Err(_) => {
                std::thread::sleep(Duration::from_millis(20));
                None
            }
        });
        let served = answer.unwrap_or(false);
        channel.send(served);
    });
    bob.channel.receive()
}

/// Takes every unit as soon as there is one.
fn take_all(client: &Client) {
    let mut held = Vec::new();
    let mut failures = 0;
    while failures < 20 && held.len() < 200 {
        match client.lease(&kind(), LONG) {
            Ok(unit) => {
                held.push(unit);
                failures = 0;
            }
            Err(_) => {
                failures += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
    // An accomplice goes on: what is filled while Bob tries is gone too.
    let client = client.clone();
    let taker = Child::fork(move |_| {
        let mut more = Vec::new();
        loop {
            match client.lease(&kind(), LONG) {
                Ok(unit) => more.push(unit),
                // The daemon has ended, and with it the test.
                Err(ClientError::Connect { .. } | ClientError::Connection(_)) => return,
                Err(_) => {}
            }
        }
    });
    std::mem::forget((held, taker));
}

fn connected(client: &Client) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
    connect(&socket, &SocketAddrUnix::new(client.socket()).ok()?).ok()?;
    Some(socket)
}

/// Keeps a thousand connections and sends nothing.
fn stay_silent(client: &Client) {
    let mut held = Vec::new();
    let mut refused = 0;
    while held.len() < 1000 && refused < 500 {
        match connected(client) {
            Some(socket) => held.push(socket),
            None => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    std::mem::forget(held);
}

/// Keeps connections with a message that carries descriptors and is not a complete request, over and over.
fn exhaust_descriptors(client: &Client) {
    let mut held = Vec::new();
    for _ in 0..600 {
        let Some(socket) = connected(client) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        held.push(socket);
        let Some(other) = connected(client) else { continue };
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [other.as_fd(), other.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        _ = sendmsg(
            &other,
            &[std::io::IoSlice::new(&[0])],
            &mut control,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
        held.push(other);
    }
    std::mem::forget(held);
}

/// Tenants of one user die at each step of the protocol. Returns whether the user gets a unit afterwards.
fn alice_recovers(weakness: Option<Weakness>) -> bool {
    let pool = Pool::start(UNITS, |config| {
        config.hooks.weak = weakness.into_iter().collect();
        config.quota = Some(u64::from(UNITS) * UNIT);
    });
    let send = |socket: &OwnedFd, bytes: &[u8]| _ = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL);
    let request = Request::Lease(kind()).encode();
    let steps: [&dyn Fn(); 5] = [
        &|| _ = connected(&pool.client),
        &|| send(&connected(&pool.client).expect("it listens"), &request[..REQUEST_BYTES / 2]),
        // Without waiting for the response.
        &|| send(&connected(&pool.client).expect("it listens"), &request),
        // With the response in the socket.
        &|| {
            let socket = connected(&pool.client).expect("it listens");
            send(&socket, &request);
            let mut fds = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, None).expect("a response");
        },
        // With the unit mapped.
        &|| _ = crate::pool::Mapping::of(&lease(&pool.client).file),
    ];
    for step in steps {
        for _ in 0..3 {
            let mut tenant = Child::of_user(ALICE, |channel| {
                step();
                channel.send(true);
                channel.receive::<bool>();
            });
            let done =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tenant.channel.receive::<bool>()));
            tenant.kill();
            if done.is_err() {
                // The tenant got no unit: its user has no quota left.
                return false;
            }
        }
    }
    let mut alice = Child::of_user(ALICE, |channel| {
        let mut tries = 0..100;
        let served = tries.any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            pool.client.lease(&kind(), LONG).is_ok()
        });
        channel.send(served);
    });
    alice.channel.receive::<bool>() && {
        wait_until("all leases have ended", || pool.status().users.iter().all(|it| it.user != ALICE));
        true
    }
}

/// A return that is sent twice, or that names a foreign unit. Returns the bytes of Bob's secret that Carol finds.
fn returned_twice(pool: &Pool, forged: bool) -> usize {
    let mut alice = Child::of_user(ALICE, |channel| {
        let unit = lease(&pool.client);
        let own = unit.id.to_string();
        drop(unit);
        if !forged {
            for _ in 0..2 {
                _ = pool.client.request(&Request::Return(UnitId::parse(&own).expect("an identifier")), LONG);
            }
        }
        channel.send(true);
        let bobs: String = channel.receive();
        if forged {
            _ = pool.client.request(&Request::Return(UnitId::parse(&bobs).expect("an identifier")), LONG);
        }
        channel.send(true);
    });
    alice.channel.receive::<bool>();
    let mut bob = Child::of_user(BOB, |channel| {
        let unit = lease(&pool.client);
        channel.send(unit.id.to_string());
        channel.receive::<bool>();
        channel.send(rustix::io::pwrite(&unit.file, &full_of(BOBS), 0).is_ok());
        channel.receive::<bool>();
    });
    let bobs: String = bob.channel.receive();
    alice.channel.send(bobs);
    alice.channel.receive::<bool>();
    let mut carol = Child::of_user(CAROL, |channel| {
        let unit = lease(&pool.client);
        channel.send(true);
        channel.receive::<bool>();
        channel.send(bytes_of(BOBS, &read_file(&unit.file)));
    });
    carol.channel.receive::<bool>();
    bob.channel.send(true);
    assert!(bob.channel.receive::<bool>());
    carol.channel.send(true);
    carol.channel.receive()
}

/// Messages of random bytes and lengths, most of them nearly valid, get no unit and do not disturb the daemon.
fn random_messages() {
    let pool = Pool::start(1, |_| ());
    let mut alice = Child::of_user(ALICE, |_| {
        let mut random = fastrand::Rng::with_seed(7);
        let valid = Request::Lease(kind()).encode();
        for _ in 0..3000 {
            let mut bytes = valid.to_vec();
            for _ in 0..random.usize(1..4) {
                // At least one bit of the fixed fields changes: the magic, the version, the type, or the reserved bytes.
                let at = [0, 1, 2, 3, 4, 5, 7, 28, 29, 30, 31][random.usize(..11)];
                bytes[at] = valid[at] ^ random.u8(1..);
            }
            bytes.resize(if random.bool() { 32 } else { random.usize(1..200) }, random.u8(..));
            let Some(socket) = connected(&pool.client) else { continue };
            _ = rustix::net::send(&socket, &bytes, SendFlags::NOSIGNAL);
        }
    });
    assert_eq!(alice.wait().exit_status(), Some(0));
    // The queue of the socket is full for a moment.
    wait_until("all connections are handled", || {
        pool.client.status(LONG).is_ok_and(|status| status.connections == 0)
    });
    let status = pool.status();
    assert_eq!((status.kinds[0].handed_out, status.kinds[0].ready), (0, 1));
    assert!(status.rejected >= 100, "{status:?}");
    drop(lease(&pool.client));
}
