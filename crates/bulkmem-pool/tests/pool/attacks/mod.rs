//! Attacks. Alice, a tenant, keeps something of a unit that she has returned, or attacks the daemon. Bob, another tenant, then
//! receives a unit and writes a secret into it. An attack succeeds if one sees or damages what the other has written, or if
//! Bob receives nothing.
//!
//! A returned unit is only used again by weakened pools. There, every attack must succeed; in the real pool, none may.

mod daemon;
mod direct;
mod holds;
mod kvm;
mod limits;
mod packets;
mod ring;

use bulkmem_pool::protocol::Request;
use bulkmem_pool::{Client, Weakness};
use testkit::harness::Suite;

use crate::pool::{
    ALICE, BOB, LONG, Mapping, Pool, bytes_of, full_of, lease_unchecked, read_file, test_both, unit,
    write_file,
};
use crate::process::{Channel, Child};
use holds::{ATTACKS, Attack, Hold};

const ALICES: &[u8; 16] = b"a secret of Ali.";
const BOBS: &[u8; 16] = b"a secret of Bob.";

pub(crate) fn add(suite: &mut Suite) {
    for attack in ATTACKS {
        let name = format!("attack::{}", attack.name);
        match (attack.skip)() {
            Some(why) => suite.skip(&name, &why),
            None if attack.only_base => suite.test(&name, move || {
                attack_twice(attack);
                Ok(())
            }),
            None => test_both(suite, &name, move || attack_twice(attack)),
        }
    }
    for attack in ["kept_mapping", "vmspliced", "io_uring_registered_buffer"] {
        let attack = ATTACKS.iter().find(|it| it.name == attack).expect("it is listed");
        suite.test(&format!("write_lease_does_not_see::{}", attack.name), move || {
            let harm = harm(&Pool::weak(1, &[Weakness::Recycles, Weakness::LeaseChecked]), attack);
            assert!(harm.any(), "the kernel has refused the write lease: {harm:?}");
            Ok(())
        });
    }
    daemon::add(suite);
    limits::add(suite);
}

/// What an attack has achieved, in bytes of a unit.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Harm {
    /// Bob's secret that Alice has read.
    read: usize,
    /// Alice's secret in Bob's unit when he received it.
    left: usize,
    /// Alice's secret in Bob's unit later.
    written: usize,
    /// Bob's secret that is gone from his unit.
    lost: usize,
    /// Bob's unit, if he could not write it.
    denied: usize,
}

impl Harm {
    fn any(&self) -> bool {
        self.read + self.left + self.written + self.lost + self.denied > 0
    }
}

/// Runs an attack on a weakened pool, where it must succeed, and on the real one, where it must not.
fn attack_twice(attack: &'static Attack) {
    let weak = harm(&Pool::weak(1, attack.weak), attack);
    assert!(
        weak.any(),
        "the attack achieves nothing even in a weakened pool, so this test proves nothing: {weak:?}"
    );
    let real = harm(&Pool::start(1, |_| ()), attack);
    assert!(!real.any(), "{real:?}");
    println!("{}: weakened pool {weak:?}; real pool: 0 bytes", attack.name);
}

fn harm(pool: &Pool, attack: &'static Attack) -> Harm {
    let client = pool.client.clone();
    let user = if attack.as_root { 0 } else { ALICE };
    let mut alice = Child::of_user(user, |channel| play_alice(channel, &client, attack));
    alice.channel.receive::<bool>();
    let mut bob = Child::of_user(BOB, |channel| play_bob(channel, &client));
    let left: usize = bob.channel.receive();
    alice.channel.send(true);
    let read: usize = alice.channel.receive();
    bob.channel.send(true);
    let harm: Harm = bob.channel.receive();
    Harm { left, read, ..harm }
}

fn play_alice(channel: &mut Channel, client: &Client, attack: &Attack) {
    let unit = lease_unchecked(client);
    let id = unit.id;
    assert!(write_file(&unit.file, &full_of(ALICES)), "it is hers");
    let mut hold: Hold = (attack.keep)(unit.file);
    // Real pools do not know the request, and weakened ones take the unit back.
    _ = client.request(&Request::Return(id), LONG);
    channel.send(true);
    channel.receive::<bool>();
    let seen = (hold.read)();
    (hold.write)(&full_of(ALICES));
    channel.send(bytes_of(BOBS, &seen));
    // Whatever she holds, she holds it until Bob has looked.
    channel.receive::<bool>();
}

fn play_bob(channel: &mut Channel, client: &Client) {
    let lease = lease_unchecked(client);
    let before = read_file(&lease.file);
    let unit_bytes = usize::try_from(unit()).expect("a small unit");
    let mut harm = Harm::default();
    // Attacks on the length would end the process with SIGBUS, so the descriptor is used unless it cannot be.
    if !write_file(&lease.file, &full_of(BOBS)) || Mapping::of(&lease.file).is_err() {
        harm.denied = unit_bytes;
    }
    channel.send(bytes_of(ALICES, &before));
    channel.receive::<bool>();
    let after = read_file(&lease.file);
    harm.written = bytes_of(ALICES, &after);
    if harm.denied == 0 {
        harm.lost = unit_bytes - bytes_of(BOBS, &after) - harm.written;
    }
    channel.send(harm);
}
